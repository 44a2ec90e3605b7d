"""An extension of griffe: finds the docstrings of public names that an assignment or an empty subclass makes.

griffe reads sources and imports no framework. It follows imports, but not `allreduce = _collectives.allreduce`.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import griffe

_COLLECTIVES = ["_api.basic_collectives.BasicCollectives", "_api.row_collectives.RowCollectives"]
_COLLECTIVES += ["_api.collectives.Collectives", "_training.compression", "_api.forms.Form", "_api.forms.GroupedForm"]
# Variable of a plugin -> where the functions are that it has.
_PLACES = dict.fromkeys(("_collectives", "_operations", "collectives"), _COLLECTIVES)
_PLACES |= {"_training": ["_keras.training.Training"], "_values": ["_keras.values.Values"]}
_FORM = re.compile(r"(_async)?_?$")  # allreduce_async_ has its docstring where allreduce has it


class AssignedNames(griffe.Extension):
    """Puts what an assignment names in the place of the assignment."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Let the section `Example:` be what griffe calls `Examples:`, so that its lines are shown as code."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Complete a package, once its sources have been read."""
        core = pkg if pkg.name == "farandole" else loader.modules_collection.get_member("farandole")
        _complete(pkg, core)


def _complete(module: griffe.Module, core: griffe.Module) -> None:
    for name, member in list(module.members.items()):
        if isinstance(member, griffe.Module):
            _complete(member, core)
        elif isinstance(member, griffe.Object) and not name.startswith("_") and not member.docstring:
            found = _meant(member, core)
            if found is not None:
                module.set_member(name, _renamed(found, name))


def _meant(member: griffe.Object, core: griffe.Module) -> griffe.Object | None:
    """What is documented instead of this assignment, or instead of this class, whose first base has the docstring."""
    if isinstance(member, griffe.Class) and member.bases and ".keras." in member.path:
        return core["plugin.keras"][str(member.bases[0])].final_target
    variable, _, attribute = str(member.value).rpartition(".") if isinstance(member, griffe.Attribute) else ("", "", "")
    if variable not in _PLACES:
        return None
    forms_last = _PLACES[variable]
    for name, places in ((attribute, forms_last), (_FORM.sub("", attribute), reversed(forms_last))):
        for found in (core[place].members.get(name) for place in places):
            if isinstance(found, griffe.Function | griffe.Class):
                return found
    raise LookupError(f"no docstring for {member.path}: `_PLACES` in {__file__} does not lead to one")


def _renamed(found: griffe.Object, name: str) -> griffe.Object:
    shown = copy.copy(found)
    shown.name, shown.parent = name, None
    if isinstance(shown, griffe.Function):
        shown.parameters = griffe.Parameters(*[each for each in shown.parameters if each.name != "self"])
        shown.overloads = [_renamed(each, name) for each in shown.overloads or []]  # type: ignore[misc]
    return shown
