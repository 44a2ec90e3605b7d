"""The findings of mypy and pyright, both strict, in a user's program that uses every public name of a package."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / "core" / "python"), *map(str, sorted(ROOT.glob("plugins/*/src")))]
COMMON = Path(__file__).parent / "user_types"
LINT = ROOT / ".nox" / "lint" / "bin"  # where noxfile.py installs both
# Strict, and what is Any is found, too. Types of a framework may come without the framework.
PYRIGHT = {"typeCheckingMode": "strict", "reportAny": "error", "reportMissingModuleSource": "none"}


def findings(program: Mapping[str, str], folder: Path, interpreter: str = sys.executable) -> str:
    """In these files, by what `interpreter` has installed; `folder` is an empty one."""
    for name, text in program.items():
        (folder / name).write_text(text)
    settings = {**PYRIGHT, "include": list(program), "extraPaths": SOURCES}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    cache = ROOT / ".nox" / "mypy" / Path(interpreter).parents[1].name
    mypy = ["mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--python-executable", interpreter]
    mypy += ["--config-file", str(COMMON / "mypy.ini"), "--cache-dir", str(cache)]
    found = [
        *_lines([*mypy, *program], folder, MYPYPATH=os.pathsep.join(SOURCES)),
        *[line for line in _lines(["basedpyright", "--pythonpath", interpreter], folder) if " - " in line],
    ]
    return "\n".join(found)


def program_of(package: str, own: Path, tensor: str = "") -> dict[str, str]:
    """The files of a user of `package`; `tensor`: for which class it has the operations of `Collectives`."""
    world = (COMMON / "world.py").read_text()
    program = {"world.py": world.replace("import farandole as", f"import {package} as"), "own.py": own.read_text()}
    if tensor:
        text = (COMMON / "collectives.py").read_text().replace("import farandole.numpy as", f"import {package} as")
        module, _, name = tensor.rpartition(".")
        program["collectives.py"] = text.replace("from farandole.numpy import Array", f"from {module} import {name}")
    return program


def keras_program_of(package: str, own: Path, tensor: str) -> dict[str, str]:
    """The files of a user of a plugin's module `keras`, whose collectives are of `tensor`."""
    text = (COMMON / "keras.py").read_text().replace("import farandole.keras as", f"import {package} as")
    module, _, name = tensor.rpartition(".")
    text = text.replace("from farandole.keras import Tensor", f"from {module} import {name}")
    return {**program_of(package, own), "keras_values.py": text}


def unused_names(package: ModuleType, program: Mapping[str, str]) -> list[str]:
    """Public names that the files do not use."""
    nodes = [node for text in program.values() for node in ast.walk(ast.parse(text))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hvd"}
    return sorted(set(package.__all__) - used)


def lint_python() -> str:
    """The interpreter that has types of numpy and TensorFlow installed."""
    return str(Path(_found("mypy")).with_name("python"))


def _lines(command: list[str], folder: Path, **variables: str) -> list[str]:
    environment = {**os.environ, **variables}
    command = [_found(command[0]), *command[1:]]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    if done.returncode > 1 or done.stderr:
        raise RuntimeError(f"{command[0]} does not work: {done.stderr or done.stdout}")
    return done.stdout.splitlines()


def _found(program: str) -> str:
    found = shutil.which(program, path=f"{LINT}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise FileNotFoundError(f"there is no {program} in {LINT}: python3 noxfile.py -s lint installs it")
    return found
