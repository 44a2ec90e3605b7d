"""Checks frameworks and plugins by their metadata, because an import takes seconds and may crash."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata

from farandole.launch.environment import version_of
from farandole.observe.doctor.finding import Finding, fail, ok, warn

GROUP = "farandole.plugins"

# import name -> the distributions that provide it
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-intel", "tensorflow-rocm"),
    "mxnet": ("mxnet", "mxnet-cu112", "mxnet-cu102", "mxnet-native"),
}
OLDEST: dict[str, tuple[int, ...]] = {"torch": (2, 3), "tensorflow": (2, 13), "mxnet": (1, 9, 1)}
UNKNOWN = "unknown version"


@dataclass(frozen=True)
class Plugin:
    """An entry of the group farandole.plugins."""

    name: str
    module: str
    distribution: str
    version: str
    importable: bool


@dataclass(frozen=True)
class Facts:
    """The installed packages."""

    farandole: str  # version, or ""
    numpy: str  # version, or ""
    frameworks: Mapping[str, str] = field(default_factory=dict)  # import -> version
    plugins: tuple[Plugin, ...] = ()


def gather() -> Facts:
    """Collect the facts about this Python installation."""
    found = {name: _framework(name, distributions) for name, distributions in FRAMEWORKS.items()}
    entries = sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    return Facts(
        farandole=version_of("farandole"),
        numpy=version_of("numpy"),
        frameworks={name: version for name, version in found.items() if version},
        plugins=tuple(_plugin(entry) for entry in entries),
    )


def _framework(name: str, distributions: tuple[str, ...]) -> str:
    if not _is_importable(name):
        return ""
    return next((version for version in map(version_of, distributions) if version), UNKNOWN)


def _plugin(entry: metadata.EntryPoint) -> Plugin:
    distribution = entry.dist
    name, version = (distribution.name, distribution.version) if distribution else ("?", UNKNOWN)
    return Plugin(entry.name, entry.module, name, version, _is_importable(entry.module))


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def findings_of(facts: Facts) -> list[Finding]:
    """Assess the installed packages."""
    found = [ok("numpy", facts.numpy or "not installed; only farandole.numpy needs it")]
    found += [_check_framework(name, version, facts) for name, version in facts.frameworks.items()]
    if not facts.frameworks:
        found.append(ok("frameworks", "none of PyTorch, TensorFlow and MXNet is installed; farandole.numpy needs none"))
    found += [_check_plugin(plugin, facts) for plugin in facts.plugins]
    if not facts.plugins:
        found.append(ok("plugins", "none is installed"))
    return found


def _check_framework(name: str, version: str, facts: Facts) -> Finding:
    oldest, numbers = OLDEST[name], _numbers(version)
    if numbers and numbers < oldest:
        wanted = ".".join(map(str, oldest))
        return warn(name, f"{version} is older than {wanted}", f"Upgrade it: python -m pip install '{name}>={wanted}'")
    if name == "mxnet" and numbers >= (2,):
        return fail(
            name,
            f"{version} is not served: its engine is called otherwise than that of 1.9",
            "Install the version that is: python -m pip install 'mxnet==1.9.1' 'numpy==1.23.5'",
        )
    if name == "mxnet" and _numbers(facts.numpy) >= (1, 24):
        return fail(
            name,
            f"{version} cannot be imported with numpy {facts.numpy}: it needs one before 1.24, which removed np.bool "
            "and more",
            "Install the last numpy that has it (Python 3.11 at most): python -m pip install 'numpy==1.23.5'",
        )
    if name == "tensorflow" and () < numbers < (2, 18) and _numbers(facts.numpy) >= (2,):
        return fail(
            name,
            f"{version} cannot be imported with numpy {facts.numpy}: it was built for numpy 1",
            "Upgrade TensorFlow, or install its numpy: python -m pip install 'numpy<2'",
        )
    if not any(plugin.name == name for plugin in facts.plugins):
        return warn(name, f"{version}, without its plugin", f"Install it: python -m pip install farandole-{name}")
    return ok(name, version)


def _check_plugin(plugin: Plugin, facts: Facts) -> Finding:
    check = f"plugin {plugin.name}"
    text = f"{plugin.distribution} {plugin.version}, import {plugin.module}"
    if not plugin.importable:
        return fail(
            check,
            f"{text}: the module is not there",
            f"Reinstall it: python -m pip install --force-reinstall --no-deps {plugin.distribution}",
        )
    ours, theirs = _numbers(facts.farandole)[:2], _numbers(plugin.version)[:2]
    if ours and theirs != ours:
        wanted = f"{plugin.distribution}=={ours[0]}.{ours[1]}.*"
        return fail(check, f"{text}, does not fit farandole {facts.farandole}", f"python -m pip install '{wanted}'")
    if plugin.name in FRAMEWORKS and plugin.name not in facts.frameworks:
        return fail(check, f"{text}, without its framework", f"Install it: python -m pip install {plugin.name}")
    return ok(check, text)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (2, 13, 0) for `2.13.0+cpu`; () if it begins with no number."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
