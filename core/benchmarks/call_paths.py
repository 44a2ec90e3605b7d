"""Counts the functions of ours that a blocking sum passes, from `hvd.allreduce` of PyTorch's plugin to its result.

    python3 core/benchmarks/call_paths.py            # prints both counts and both lists
    python3 core/benchmarks/call_paths.py --write    # writes them to docs/design/call-paths.md, too

Counted is every function of ours that is on the stack of rank 0's calling thread while a tensor takes one of the steps
below (CASES), each function once; the step's own function counts, too. Thus:

- Functions that return before a step begins, such as accessors and checks, do not count, nor does what a step calls.
- A lambda is part of the function around it. All instances of a template are one function; overloads are several.
- Functions of libraries (PyTorch, Python, pybind11, the standard library) do not count.
- Inlined functions count, since the core is compiled without optimisation: it is the source that is measured.

A step is the function that performs it. If one is renamed, its step is never seen: then this program fails, and CASES
needs the new name. Needs a Python with PyTorch, addr2line of binutils, and what builds.py needs. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builds import MADE, PACKAGES, ROOT, Build, BuildError, compile_sources, compiler, run

HERE = Path(__file__).resolve().parent
HOME = MADE.parent / "call-paths"
PAGE = ROOT / "docs" / "design" / "call-paths.md"
# Kernels call the functions of a vector for every few elements.
NOT_RECORDED = ("/usr/", "/pybind11/", "/reduce/kernels.h", "/reduce/vectors.h", "/reduce/conversions.h")
FLAGS = f"-O0 -g1 -finstrument-functions -finstrument-functions-exclude-file-list={','.join(NOT_RECORDED)}"
LIMIT_S = 300


@dataclass(frozen=True)
class Case:
    """Sums of one kind, on two ranks of this machine."""

    title: str
    size_bytes: int
    calls: int
    union: bool  # of all calls; otherwise the functions that are passed most often
    variables: Mapping[str, str]
    steps: Mapping[str, str]  # what happens to the tensor -> the function that does it


CASES = (
    Case(
        title="4 bytes, two ranks of one node",
        size_bytes=4,
        calls=200,
        union=False,
        variables={},
        steps={
            "address read": "LookByExchange",
            "name found": "SetNames::Find",
            "value written": "SlotBuffer::Write",
            "peers seen": "SlotBuffer::AllHaveWritten",
            "values reduced": "TensorReduction::Run",
        },
    ),
    Case(
        title="64 MB, two nodes of one rank",
        size_bytes=64 << 20,
        calls=5,
        union=True,
        variables={"FARANDOLE_ARENAS": "0"},  # each rank is a node of its own, and uses TCP
        steps={
            "address read": "LookByExchange",
            "submitted": "Negotiation::Submit",
            "arrival counted": "ArrivalCounters::Arrive",
            "log read": "LogReader::Read",
            "batch planned": "PlanBatch",
            "plan chosen": "ChoosePlan",
            "send posted": "OrderedLane::PostSend",
            "receive posted": "OrderedLane::PostReceive",
            "bytes sent": "FrameStream::Flush",
            "bytes received": "FrameStream::Dispatch",  # not Receive, which often finds nothing
            "chunk reduced": "Reduce",
            "operation ended": "Operations::Complete",
        },
    ),
)


class PathError(Exception):
    """The paths cannot be found. The message says why and what to do."""


@dataclass(frozen=True)
class Function:
    """A function of ours."""

    name: str
    file: str  # from the root of the repository
    signature: str = ""  # of C++, as addr2line writes it
    line: int = 0

    def title(self, functions: Iterable[Function]) -> str:
        """The name; among overloads with what the function takes."""
        alike = [each for each in functions if (each.name, each.file) == (self.name, self.file)]
        return self.name if len(alike) == 1 else self.name + parameters_of(self.signature)


Node = tuple[int, int]  # the index of the parent, and the function
Passed = dict[Function, list[str]]  # in the order of the first call -> the steps that a function leads to


# ---- Names of C++


def without_brackets(text: str) -> str:
    """Leave out the arguments of templates and functions: `int A<B>::f<C>(D) const` -> `int A::f const`."""
    kept, depth = [], 0
    for character in text.replace("(anonymous namespace)::", ""):
        depth += character in "(<"
        kept += [character] if depth == 0 else []
        depth -= character in ")>"
    return "".join(kept)


def name_of(signature: str) -> str:
    """Return the name without our namespace. For a lambda it is that of the function around it."""
    words = without_brackets(signature).partition("::{lambda")[0].removesuffix(" const").split()
    return words[-1].removeprefix("farandole::") if words else signature


def parameters_of(signature: str) -> str:
    text, count = signature.replace("(anonymous namespace)::", ""), 1
    while count:
        text, count = re.subn(r"<[^<>]*>", "", text)
    text = re.sub(r"\b(?:farandole|std)::", "", text)
    return text[text.find("(") : text.rfind(")") + 1]


def is_lambda(signature: str) -> bool:
    return "::{lambda" in without_brackets(signature)


# ---- Recording


def instrumented_build() -> Build:
    return compile_sources(ROOT, HOME, ["_core"], ["-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS={FLAGS}"])


def compile_recorder() -> Path:
    library = HOME / "libcall_recorder.so"
    source = str(HERE / "call_recorder.c")
    run(compiler(), "-x", "c", "-std=c11", "-O2", "-shared", "-fPIC", "-o", str(library), source)
    return library


def record(case: Case, build: Build, recorder: Path) -> Any:
    """Run two ranks, and return what rank 0 has recorded."""
    print(f"==> {case.title}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "record.json"
        worker = [sys.executable, str(HERE / "call_paths_worker.py"), str(case.size_bytes), str(case.calls)]
        command = [sys.executable, "-m", "farandole.launch", "run", "-np", "2", *worker, str(output)]
        variables = {"PYTHONPATH": str(build.packages), "LD_PRELOAD": str(recorder), "CALL_RECORDER": str(recorder)}
        environment = {**os.environ, **variables, **case.variables}
        try:
            subprocess.run(command, env=environment, check=True, timeout=LIMIT_S, stdout=sys.stderr)
            return json.loads(output.read_text())
        except (subprocess.SubprocessError, OSError) as error:
            raise PathError(f"the ranks of '{case.title}' have recorded nothing: {error}") from None


def functions_of(recorded: Any) -> dict[int, Function]:
    """Look up our functions among those that were recorded."""
    found = {int(number): python_function(*names) for number, names in recorded["python"].items()}
    library, base = recorded["core"]
    addresses = sorted({function for tree in recorded["trees"] for _, function in tree if function} - found.keys())
    lines = run("addr2line", "-f", "-C", "-e", library, *(hex(address - base) for address in addresses)).splitlines()
    for address, signature, place in zip(addresses, lines[::2], lines[1::2], strict=True):
        file, _, line = place.partition(" ")[0].rpartition(":")
        if file.startswith(f"{ROOT}/core/") and line.isdigit():
            found[address] = Function(name_of(signature), os.path.relpath(file, ROOT), signature, int(line))
    return merged(found)


def python_function(name: str, path: str) -> Function:
    folder = next(folder for folder in PACKAGES if (ROOT / folder / path).is_file())
    return Function(name, f"{folder}/{path}")


def merged(found: Mapping[int, Function]) -> dict[int, Function]:
    """Replace lambdas by the functions around them, and each instance of a template by the first one."""
    around = {each.signature: each for each in found.values() if not is_lambda(each.signature)}
    first: dict[tuple[str, str, int], Function] = {}
    result = {}
    for address, function in found.items():
        owners = [each for text, each in around.items() if text and function.signature.startswith(f"{text}::{{lambda")]
        owner = owners[0] if owners else function
        result[address] = first.setdefault((owner.name, owner.file, owner.line), owner)
    return result


# ---- Paths


def passed(tree: Sequence[Node], functions: Mapping[int, Function], steps: Mapping[str, str]) -> Passed:
    """Return the functions on the stack at each step of one call."""
    found: dict[int, list[str]] = {}  # by node
    for step, name in steps.items():
        for at, (_, address) in enumerate(tree):
            if address in functions and functions[address].name == name:
                add_stack(tree, at, step, found)
    result: Passed = {}
    for at in sorted(found):
        if function := functions.get(tree[at][1]):
            reached = result.setdefault(function, [])
            reached += [step for step in found[at] if step not in reached]
    return result


def add_stack(tree: Sequence[Node], at: int, step: str, found: dict[int, list[str]]) -> None:
    while at > 0 and step not in found.setdefault(at, []):
        found[at].append(step)
        at = tree[at][0]


def path_of(case: Case, calls: Sequence[Passed]) -> Passed:
    """Return the path of a case from those of its calls."""
    result: Passed = {}
    if case.union:
        for call in calls:
            for function, steps in call.items():
                reached = result.setdefault(function, [])
                reached += [step for step in steps if step not in reached]
    else:
        most, _ = Counter(tuple(call) for call in calls).most_common(1)[0]
        result = next(call for call in calls if tuple(call) == most)
    for step, name in case.steps.items():
        if not any(step in steps for steps in result.values()):
            raise PathError(
                f"'{case.title}' never reached the step '{step}', the function {name}; if that was renamed or another "
                "one does its work, change CASES in call_paths.py"
            )
    return result


# ---- Output

INTRODUCTION = """\
# Call paths

These are the functions of ours that a blocking sum passes, from `hvd.allreduce` of the PyTorch plugin to its result.
The fewer there are, the easier it is to follow a tensor through the code. [The engine](engine.md)
explains the first path.

[call_paths.py](../../core/benchmarks/call_paths.py) writes this page: run it with `--write` after a change to a path.
It also prints the files and the steps of the functions that are only named here.
It counts every function that is on the stack of rank 0's calling thread at one of the steps in the last column, each
function once. Functions that return before a step begins, such as accessors and checks, do not count, nor do those of
libraries. A lambda is part of the function around it, and inlined functions count.
"""
SECTION = """
## {title}: {count} functions

{kind}. The name is known to both ranks, and the other rank arrives first.

{functions}
"""
TABLE = """\
| function | file | step |
|---|---|---|
"""


def kind_of(case: Case) -> str:
    return f"{'All functions' if case.union else 'The most frequent path'} of {case.calls} calls"


def rows_of(case: Case, path: Passed) -> list[tuple[str, str, str]]:
    """Return the name, the file and the steps of each function."""
    return [(function.title(path), function.file, listed(list(case.steps), steps)) for function, steps in path.items()]


def listed(steps: Sequence[str], reached: Sequence[str]) -> str:
    """Name the steps that are reached, in order, and shortly where they follow each other."""
    places = [at for at, step in enumerate(steps) if step in reached]
    if len(places) == len(steps):
        return "all"
    if len(places) > 2 and places[-1] - places[0] == len(places) - 1:
        return f"{steps[places[0]]} to {steps[places[-1]]}"
    return ", ".join(steps[at] for at in places)


def section(case: Case, path: Passed) -> str:
    """Return a table of the functions; of all functions of several calls, which are many, only the names."""
    rows = rows_of(case, path)
    if case.union:
        functions = textwrap.fill(", ".join(f"`{title}`" for title, _, _ in rows) + ".", 120)
    else:
        functions = TABLE + "\n".join(
            f"| `{title}` | [{Path(file).name}](../../{file}) | {steps} |" for title, file, steps in rows
        )
    return SECTION.format(title=case.title, count=len(path), kind=kind_of(case), functions=functions)


def print_path(case: Case, path: Passed) -> None:
    print(f"{case.title}: {len(path)} functions")
    for title, file, steps in rows_of(case, path):
        print(f"  {title:<44} {file:<48} {steps}")


def find_path(case: Case, build: Build, recorder: Path) -> Passed:
    recorded = record(case, build, recorder)
    functions = functions_of(recorded)
    return path_of(case, [passed(tree, functions, case.steps) for tree in recorded["trees"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"writes {PAGE.relative_to(ROOT)}, too")
    options = parser.parse_args()
    try:
        build, recorder = instrumented_build(), compile_recorder()
        paths = [find_path(case, build, recorder) for case in CASES]
    except (BuildError, PathError) as error:
        sys.exit(f"call_paths: {error}")
    for case, path in zip(CASES, paths, strict=True):
        print_path(case, path)
    if options.write:
        PAGE.write_text(INTRODUCTION + "".join(map(section, CASES, paths)))


if __name__ == "__main__":
    main()
