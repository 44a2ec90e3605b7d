"""The trials of the compiled core by `farandole doctor`, each in a process of its own: a crash does not end doctor.

describe   load the core, and look at the environment as init() does -> where it is, its ABI, our place
backends  look for the libraries of all backends               -> which are found or missing, which are asked for
exercise   init, sums against a closed formula, shutdown         -> rank, size, instruction set, groups
"""

from __future__ import annotations

import ctypes
import json
import sys

_FLOAT32, _SUM, _ALLREDUCE = 8, 0, 0
_LENGTHS = (1, 1000, 300_000)  # finished by the last arriver, small, longer than a slot of staging


def main() -> None:
    """Do what the last argument names; print one line of JSON, or end with a traceback."""
    answer = {"describe": describe, "backends": backends, "exercise": exercise}[sys.argv[-1]]()
    print(json.dumps(answer), flush=True)


def describe() -> dict[str, object]:
    import farandole
    from farandole._runtime.native import core

    struct_size, abi = (ctypes.c_uint32 * 2).from_address(core.api_address)
    return {
        "version": farandole.__version__,
        "path": core.__file__,
        "abi": abi,
        "api_bytes": struct_size,
        "place": place(),
    }


def place() -> dict[str, str]:
    """This process's launcher, and what init() would say: an error, a warning, an error about the key's file."""
    from farandole._start import environment, key_exchange

    found = {"launcher": "", "refusal": "", "doubt": "", "key_error": ""}
    try:
        if path := environment.given_key_file():
            key_exchange.read_key(path)
    except ValueError as error:
        found["key_error"] = str(error)
    try:
        world = environment.discover()
        found |= {"launcher": world.launcher, "doubt": environment.doubt(world)}
    except ValueError as error:
        found["refusal"] = str(error)
    return found


def backends() -> dict[str, object]:
    from farandole._runtime.native import core
    from farandole._start import environment

    environment.find_libraries(["gloo", "nccl"])  # asked for or not, those that would be used
    return {"found": [(name, *core.find_backend(name)) for name in core.backends], "asked_for": environment.backends()}


def exercise() -> dict[str, object]:
    import farandole
    from farandole._runtime.native import core

    farandole.init()
    rank, size = farandole.rank(), farandole.size()
    for length in _LENGTHS:
        values = (ctypes.c_float * length)(*(float((i + rank) % 1000) for i in range(length)))
        address = ctypes.addressof(values)
        call = address, address, _FLOAT32, (length,)
        core.run_one(_ALLREDUCE, values, values, call, ("farandole.doctor", _SUM, 0, 1.0, 1.0, 0))
        for i in range(length):
            expected = float(sum((i + other) % 1000 for other in range(size)))
            if values[i] != expected:
                raise AssertionError(
                    f"element {i} of {length} is {values[i]:g} on rank {rank} after a sum over {size} ranks; "
                    f"{expected:g} is right"
                )
    info = core.info()
    farandole.shutdown()
    return {"rank": rank, "size": size, "isa": info["isa"], "nodes": info["nodes"], "lengths": _LENGTHS}
