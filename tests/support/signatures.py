"""Compares functions with the signatures that programs written for another library expect."""

import inspect
from types import ModuleType

NONE_MEANS = {"process_set": "global_process_set", "compression": "Compression.none"}


def found(module: ModuleType, name: str) -> object:
    """The value that a dotted name, such as "Compression.none.compress", has in a module."""
    place: object = module
    for part in name.split("."):
        place = getattr(place, part)
    return place


def differences(module: ModuleType, name: str, theirs: str) -> list[str]:
    """Reasons why a call for `theirs` would fail here: our function may take more arguments, and require fewer."""
    wanted = _parameters(eval(f"lambda {theirs}: 0", dict(vars(module))))
    ours = _parameters(found(module, name))
    told = [f"{name}: {each.name}" for each in ours[len(wanted) :] if _is_required(each)]
    for want, got in zip(wanted, [*ours, *[None] * len(wanted)], strict=False):
        defaults = [inspect.Parameter.empty, got and got.default]
        if got and got.default is None and got.name in NONE_MEANS:
            defaults.append(found(module, NONE_MEANS[got.name]))
        same = got and want.name == got.name and want.default in defaults
        told += [] if same else [f"{name}: {want}, not {got}"]
    return told


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD


def _parameters(function: object) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
