"""Packages that use horovod.torch in a script of their user's: unmodified, on two ranks."""

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import pytest
from published import installed, on_two_ranks

pytestmark = pytest.mark.timeout(900)

SIMPLE_FRAMEWORK = """
import horovod.torch as hvd
import torch
from simple_framework.trainer.BaseTrainerClass import SimpleFrameworkWrapper
from simple_framework.trainer.trainer import Trainer


class Wrapped(SimpleFrameworkWrapper):
    def __init__(self, model, loss_fn):
        super().__init__(model, loss_fn)

    def train_step(self, batch):
        loss = self.loss_fn(self.model(batch[0]), batch[1])
        return loss, {"loss": loss.item()}

    validation_step = train_step

    def get_optimizer_scheduler(self):
        return torch.optim.SGD(self.parameters(), lr=0.05), None


torch.manual_seed(1)
inputs = torch.randn(64, 10)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
model = Wrapped(torch.nn.Linear(10, 2), torch.nn.functional.cross_entropy)
cfg = {"description": "one", "save_path": ".", "experiment_path": ".", "backbone": "Horovod"}
Trainer(model, cfg).fit(train_dataset=data, batch_size=8, epochs=2, callbacks=[])
print("result", model.model.weight.sum().item(), "of", hvd.size(), flush=True)
"""
ELASTICAI = """
import horovod.torch as hvd
import torch
from elasticai_api.pytorch.optimizer import DistributedOptimizer

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
kept = {"global_batch_num_per_step": 4, "fixed_global_batch_size": True, "backward_passes_per_step": 2}
optimizer = DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **kept)
for batch in range(10):
    inputs = torch.randn(8, 10)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long()).backward()
    optimizer.step()
print("result", model.weight.sum().item(), "of", hvd.size(), flush=True)
"""
SMDEBUG = """
import horovod.torch as hvd
import torch
from smdebug.pytorch import Hook, SaveConfig
from smdebug.trials import create_trial

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(10, 2)
hook = Hook(out_dir="tensors", save_config=SaveConfig(save_interval=1), save_all=True, include_workers="all")
hook.register_module(model)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for batch in range(3):
    inputs = torch.randn(8, 10) + hvd.rank()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long()).backward()
    optimizer.step()
hook.close()
hvd.barrier()
found = create_trial("tensors")
print("result", sorted(found.workers()), len(found.steps()), "of", hvd.size(), flush=True)
"""
DETERMINED = """
import determined as det
import horovod.torch as hvd

hvd.init()
context = det.core.DistributedContext.from_horovod(hvd, chief_ip="127.0.0.1")
with det.core.init(distributed=context) as core:
    gathered = core.distributed.gather(hvd.rank() + 1)
    told = core.distributed.broadcast("epoch 3" if core.distributed.rank == 0 else None)
    everywhere = core.distributed.allgather(core.distributed.rank)
    assert gathered == ([1, 2] if hvd.rank() == 0 else None)
    print("result", told, everywhere, "of", core.distributed.size, flush=True)
"""
ITWINAI = """
import torch
from itwinai.torch.distributed import HorovodStrategy

strategy = HorovodStrategy()
strategy.init()
torch.manual_seed(strategy.global_rank())
model = torch.nn.Linear(10, 2)
model, optimizer, _ = strategy.distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
inputs = torch.randn(64, 10)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
for batch in strategy.create_dataloader(data, batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()
gathered = strategy.gather_obj(strategy.global_rank(), dst_rank=0)
assert gathered == ([0, 1] if strategy.is_main_worker else None), gathered
print("result", model.weight.sum().item(), "of", strategy.global_world_size(), flush=True)
strategy.clean_up()
"""
# The package index's torchvision is for CUDA: beside PyTorch for CPUs it cannot load its operators, and misses two.
CLIP_TRAINING = """
import runpy
import torch

for name in ("nms", "qnms") if not torch.version.cuda else ():
    torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
runpy.run_module("open_clip_train.main", run_name="__main__", alter_sys=True)
"""
CLIP = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def agreed(output: str) -> list[str]:
    """The words of the ranks' results, which are equal."""
    (line,) = {line.partition("result ")[2] for line in output.splitlines() if "result " in line}
    return line.split()


def run(text: str, folder: Path, *packages: str, **variables: str) -> list[str]:
    (folder / "program.py").write_text(text)
    return agreed(on_two_ranks("program.py", folder=folder, paths=(installed(*packages),), **variables))


def test_simple_framework(tmp_path: Path) -> None:
    packages = ["simple-framework==0.0.1.8", "pandas==2.3.3", "python-dateutil", "pytz", "tzdata", "six"]
    packages += ["tensorboard==2.20.0", "protobuf==6.33.1", "absl-py", "werkzeug", "markdown", "grpcio"]
    packages += ["setuptools==69.5.1"]
    assert run(SIMPLE_FRAMEWORK, tmp_path, *packages)[1:] == ["of", "2"]


def test_elasticai(tmp_path: Path) -> None:
    """An optimizer of its own, on Horovod's asynchronous operations, with two backward passes a step."""
    assert run(ELASTICAI, tmp_path, "elasticai-api==1.4.2", "protobuf==6.33.1", "grpcio")[1:] == ["of", "2"]


def test_smdebug(tmp_path: Path) -> None:
    """A hook that saves tensors of each rank."""
    packages = [
        "smdebug==1.0.34",
        "numpy==1.26.4",
        "protobuf==3.20.3",
        "boto3",
        "botocore",
        "s3transfer",
        "jmespath",
        "urllib3",
    ]
    packages += [
        "pandas==2.3.3",
        "pytz",
        "tzdata",
        "python-dateutil",
        "six",
        "pyinstrument==3.4.2",
        "pyinstrument-cext",
        "requests",
        "idna",
    ]
    packages += ["charset-normalizer", "certifi", "packaging"]
    assert run(SMDEBUG, tmp_path, *packages) == ["['worker_0',", "'worker_1']", "3", "of", "2"]


def test_determined(tmp_path: Path) -> None:
    """Its core API outside of its cluster."""
    packages = ["determined==0.38.0", "ruamel.yaml", "requests", "urllib3", "idna", "certifi", "charset-normalizer"]
    packages += ["pyzmq", "python-dateutil", "six", "filelock", "tabulate", "termcolor", "docker", "gitpython", "gitdb"]
    packages += ["smmap", "pathspec", "boto3", "botocore", "s3transfer", "jmespath", "backoff", "monotonic", "appdirs"]
    packages += ["lomond", "bcrypt", "pyOpenSSL", "cryptography", "cffi", "pycparser", "argcomplete", "packaging"]
    assert run(DETERMINED, tmp_path, *packages) == ["epoch", "3", "[0,", "1]", "of", "2"]


def test_itwinai(tmp_path: Path) -> None:
    packages = ["itwinai==0.4.2", "pydantic==2.12.5", "pydantic-core==2.41.5", "annotated-types", "typing-inspection"]
    assert run(ITWINAI, tmp_path, *packages, ITWINAI_FORCE_DIST="1")[1:] == ["of", "2"]


def png(color: bytes) -> bytes:
    """An image of 32 x 32 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + color * 32) * 32)
    head = chunk(b"IHDR", struct.pack(">2I5B", 32, 32, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def make_shards(folder: Path) -> None:
    """Two tar files of 16 images with captions."""
    for shard in range(2):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for number in range(16):
                for ending, data in (("png", png(bytes([16 * number, 0, 128]))), ("txt", b"an image")):
                    member = tarfile.TarInfo(f"{shard}-{number}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def test_open_clip(tmp_path: Path) -> None:
    """Its training program with --horovod, on a model of two layers. Its other data sets need torch.distributed."""
    model = {"model_cfg": CLIP, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "open_clip_config.json").write_text(json.dumps(model))
    packages = ["open-clip-torch==3.3.0", "timm==1.0.22", "ftfy==6.3.1", "wcwidth", "regex", "safetensors"]
    packages += ["huggingface-hub==0.36.0", "hf-xet", "requests", "urllib3", "idna", "certifi", "charset-normalizer"]
    packages += ["webdataset==0.2.86", "braceexpand", "pandas==2.3.3", "python-dateutil", "pytz", "tzdata", "six"]
    packages += ["torchvision==0.28.0", "pillow", "tqdm"]
    (tmp_path / "program.py").write_text(CLIP_TRAINING)
    make_shards(tmp_path)
    words = ["program.py", "--horovod", "--model", f"local-dir:{tmp_path / 'clip'}", "--device", "cpu"]
    words += [
        "--train-data",
        str(tmp_path / "{0..1}.tar"),
        "--train-num-samples",
        "32",
        "--batch-size",
        "8",
        "--epochs",
        "1",
    ]
    words += ["--workers", "0", "--precision", "fp32", "--name", "run", "--logs", str(tmp_path / "logs")]
    on_two_ranks(*words, folder=tmp_path, paths=(installed(*packages),))
    assert "Train Epoch: 0" in (tmp_path / "logs" / "run" / "out.log").read_text()
    assert (tmp_path / "logs" / "run" / "checkpoints" / "epoch_1.pt").is_file()
