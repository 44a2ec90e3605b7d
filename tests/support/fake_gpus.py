"""GPUs, CUDA's driver and NCCL that are none (core/tests/fake_cuda, core/tests/fake_nccl), and a torch and an MXNet
that believe in them: for tests of what happens to tensors on a GPU where there is neither a GPU nor a build for CUDA.

The fake driver takes all host memory for its device's, and some tensors say that they are there: torch's of floats,
MXNet's of the contexts cpu(1), cpu(2), ... So the framework computes at once; for torch, what is to be late is launched
in the fake stream that is torch's current one.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_SOURCES = (_ROOT / "core" / "tests", _ROOT / "tests" / "support")
_MADE = _ROOT / ".nox" / "fakes"


def built(name: str, *flags_of_linker: str) -> Path:
    """The library of the fake `name`, such as "cuda"; compiled where that was not done since its sources changed."""
    sources = sorted(path for folder in _SOURCES for path in (folder / f"fake_{name}").glob("*.cc"))
    read = [*sources, *sources[0].parent.glob("*.h"), *(_SOURCES[0] / "cpp" / "support").glob("fake_*.h")]
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(read))).hexdigest()[:12]
    library = _MADE / f"libfake_{name}_{state}.so"
    _MADE.mkdir(parents=True, exist_ok=True)
    with (_MADE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            fresh = library.with_suffix(".new")
            flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off"]
            folders = [f"-I{_SOURCES[0] / 'cpp'}", f"-I{_ROOT / 'core' / 'src'}"]
            command = [os.environ.get("CXX", "g++"), *flags, *folders, *map(str, sources), "-o", str(fresh)]
            subprocess.run([*command, *flags_of_linker, "-ldl", "-lpthread"], check=True, timeout=200)
            fresh.rename(library)
    return library


def variables(folder: Path, backend: str = "nccl,native") -> dict[str, str]:
    """The variables that ranks need; the fake communicators meet in `folder`."""
    return {
        "FARANDOLE_BACKEND": backend,
        "FARANDOLE_CUDA_DRIVER": str(built("cuda")),
        "FARANDOLE_NCCL_LIB": str(built("nccl")),
        "TMPDIR": str(folder),
    }


class Gpu:
    """This rank's, and the NCCL on it."""

    def __init__(self, ordinal: int) -> None:
        self.cuda = ctypes.CDLL(os.environ["FARANDOLE_CUDA_DRIVER"])
        self.nccl = ctypes.CDLL(os.environ["FARANDOLE_NCCL_LIB"])
        for function in (self.cuda.fake_cuda_make_stream, self.cuda.fake_cuda_record, self.cuda.fake_cuda_contents):
            function.restype = ctypes.c_void_p
        self.cuda.fake_cuda_own_everything(ordinal)
        self.stream = self.cuda.fake_cuda_make_stream(ordinal)
        self.recorded: list[tuple[Any, int]] = []  # element types of what torch was told of, and which stream reads it
        self.is_capturing = False
        self._ordinal = ordinal
        self._sources: list[Any] = []

    def launch_copy(self, target: Any, source: Any) -> None:
        """Copy in torch's current stream: later than torch is told to. The source is kept, the target is not."""
        self._sources.append(source)
        addresses = ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr())
        self.cuda.fake_cuda_copy(ctypes.c_void_p(self.stream), *addresses, ctypes.c_size_t(target.nbytes))

    def set_delay(self, microseconds: int) -> None:
        """Of all that is launched from now on."""
        self.cuda.fake_cuda_set_delay(microseconds)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for this stream, by default torch's current one."""
        self.cuda.fake_cuda_synchronize(ctypes.c_void_p(stream or self.stream))

    def change_stream(self, ordinal: int) -> None:
        """Make another stream of this GPU torch's current one."""
        self.stream = self.cuda.fake_cuda_make_stream(ordinal)

    def set_capturing(self, capturing: bool) -> None:
        """Returns whether a graph is being captured in torch's current stream."""
        self.cuda.fake_cuda_set_capturing(capturing)
        self.is_capturing = capturing

    def settle(self) -> None:
        """Wait for everything that the device has been told, in whatever stream."""
        context = ctypes.c_void_p()
        self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._ordinal)
        self.cuda.cuCtxPushCurrent_v2(context)
        self.cuda.cuCtxSynchronize()
        self.cuda.cuCtxPopCurrent_v2(ctypes.byref(context))

    def calls(self, name: str) -> int:
        """How often this function of the driver or of NCCL was called."""
        counts = self.nccl.fake_nccl_calls if name.startswith("nccl") else self.cuda.fake_cuda_calls
        return int(counts(name.encode()))

    def check(self) -> None:
        """Nothing was called that the driver or NCCL forbids; what was stands on stderr."""
        assert self.cuda.fake_cuda_misuses() == 0
        assert self.nccl.fake_nccl_misuses() == 0


def torch_with_gpu(ordinal: int) -> Gpu:
    """Have torch, in this process, take its tensors of floats for tensors on this GPU."""
    import torch
    from farandole_torch import _adapter

    gpu = Gpu(ordinal)

    class Stream(int):
        def synchronize(self) -> None:
            gpu.synchronize(self)

    class Event:
        def record(self, stream: int) -> None:
            self.cuda_event = gpu.cuda.fake_cuda_record(ctypes.c_void_p(stream))

    plain = torch.as_tensor

    def as_tensor(data: Any, *args: Any, **others: Any) -> Any:
        if not isinstance(data, _adapter._Bytes):
            return plain(data, *args, **others)
        described = data.__cuda_array_interface__
        address = gpu.cuda.fake_cuda_contents(ctypes.c_void_p(described["data"][0]))
        memory = type("Memory", (ctypes.c_uint8 * described["shape"][0],), {}).from_address(address)
        memory.keep = data
        return torch.frombuffer(memory, dtype=torch.uint8)

    torch.as_tensor = as_tensor
    torch.cuda.Event = Event
    torch.cuda.current_stream = lambda device=None: Stream(gpu.stream)
    torch.Tensor.record_stream = lambda tensor, stream: gpu.recorded.append((tensor.dtype, stream))
    torch.cuda.is_current_stream_capturing = lambda: gpu.is_capturing
    torch.Tensor.is_cuda = property(torch.Tensor.is_floating_point)
    torch.Tensor.is_cpu = property(lambda tensor: not tensor.is_floating_point())
    return gpu


def mxnet_with_gpu(ordinal: int) -> Gpu:
    """Have MXNet and farandole_mxnet, in this process, take arrays of the context cpu(1) for arrays on this GPU."""
    import mxnet as mx
    from farandole.plugin.native import api_address
    from farandole_mxnet import _native

    real = mx.libinfo.find_lib_path()[0]
    shim = str(built("mxnet", "-Wl,--no-as-needed,--allow-shlib-undefined", real))
    ctypes.CDLL(shim)
    assert _native._library.farandole_mxnet_open(shim.encode(), api_address()) == 0
    names = mx.Context.devtype2str
    mx.Context.__str__ = lambda self: f"{names[self.device_typeid]}({self.device_id})"  # what operators are told
    mx.Context.device_type = property(lambda self: "gpu" if self.device_id > 0 else names[self.device_typeid])
    return Gpu(ordinal)
