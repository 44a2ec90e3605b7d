"""An extension of griffe: puts public names that an assignment makes where mkdocstrings looks for them.

griffe reads sources and imports no framework. It follows imports, but not `allreduce = _collectives.allreduce`, and not
functions that another function makes. `reference.py` tells where the docstrings of such names are.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe
from farandole._keras.arguments import with_local_layers
from reference import HOMES, WITH_LOCAL_LAYERS, definitions, file_of


class PublicNames(griffe.Extension):
    """Adds each name of `HOMES` and `WITH_LOCAL_LAYERS` to its module."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Let the section `Example:` be what griffe calls `Examples:`, so that its lines are shown as code."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete a package, once its sources have been read."""
        for path, home in HOMES.items():
            if path.split(".")[0] == pkg.name:
                _place(pkg, path, _read(path, home))
        for path, (plain, module) in WITH_LOCAL_LAYERS.items():
            if path.split(".")[0] == pkg.name:
                place = path.rpartition(".")[0]
                home = HOMES.get(f"{place}.{plain}", f"{module}:{plain}")
                _place(pkg, path, _read(path, home, plain, module))


def _place(package: griffe.Module, path: str, found: griffe.Object) -> None:
    inner = path.split(".")[1:]
    parent: Any = package
    for name in inner[:-1]:
        if name not in parent.members:  # farandole.keras.callbacks, which exists in no file
            parent.set_member(name, griffe.Module(name, filepath=parent.filepath))
        parent = parent.members[name]
    found.parent = None
    parent.set_member(inner[-1], found)


def _read(path: str, home: str, plain: str = "", module: str = "") -> griffe.Object:
    """The function or class at `home`, under its public name; with `local_layers` where `plain` is extended by it."""
    file, nodes = file_of(home.partition(":")[0]), definitions(home)
    for node in nodes:
        node.name = path.rpartition(".")[2]
        if isinstance(node, ast.FunctionDef) and node.args.args[:1] and node.args.args[0].arg == "self":
            del node.args.args[0]  # users call a bound method
    if plain:
        _extend(nodes[-1], plain, module)
    code = "\n".join(["from typing import overload", *map(ast.unparse, nodes)])
    extensions = griffe.load_extensions(PublicNames)
    return griffe.visit("read", filepath=file, code=code, extensions=extensions).members[nodes[-1].name]


def _extend(node: ast.AST, plain: str, module: str) -> None:
    """Give a function the argument and the docstring that `with_local_layers` gives it."""

    def stand_in(process_set: object = None) -> None: ...

    stand_in.__name__ = plain
    made: Any = with_local_layers(stand_in, "", example=_example(module))
    assert isinstance(node, ast.FunctionDef)
    node.body = [ast.Expr(ast.Constant(made.__doc__))]
    node.args.args.insert(-1, ast.arg("local_layers", None))
    node.args.defaults.insert(-1, ast.Constant(None))


def _example(module: str) -> str:
    for node in ast.parse(file_of(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_EXAMPLE_OF_PARTIAL":
            return str(ast.literal_eval(node.value))
    raise LookupError(f"no example in {module}")
