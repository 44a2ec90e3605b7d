"""Rules of the C++ tree: who includes whom, who names a backend, who reads the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cpp_scan import code_only, without_comments
from tree import Source, line_of

# Layer -> the layers that it may include, docs/design/architecture.md. A layer knows itself, too.
LAYERS: dict[str, set[str]] = {"common": set()}
LAYERS["reduce"] = {"common"}
LAYERS["transport"] = {"common"}
LAYERS["world"] = {"common", "transport"}
LAYERS["algorithms"] = {"common", "reduce", "transport", "world"}
LAYERS["device"] = {"common", "reduce", "transport", "world"}
LAYERS["controller"] = {"common", "reduce", "transport", "world", "algorithms"}
LAYERS["collectives"] = {"common", "reduce", "transport", "world", "algorithms", "device"}
LAYERS["backends"] = {*LAYERS["collectives"], "collectives"}
LAYERS["operation"] = {*LAYERS["backends"], "backends", "controller"}
LAYERS["execution"] = {*LAYERS["operation"], "operation"}
LAYERS["p2p"] = {"common", "transport", "world"}
LAYERS["engine"] = {*LAYERS["execution"], "execution", "p2p"}
LAYERS["capi"] = {"common", "operation", "engine", "p2p"}
LAYERS["bindings"] = {"common", "transport", "backends", "operation", "engine", "p2p"}

_C_HEADER = "farandole/farandole.h"
_MAY_SEE_C_HEADER = {"capi", "bindings"}

_IN_ANY_WORD = ("nccl", "gloo")  # names of backends that are a part of no other word
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?P<open>[<"])(?P<name>[^>"]+)[>"]', re.MULTILINE)
# Libraries of their own, which the core opens where they are: what is C++ cannot be looked up at run time.
_BRIDGES = ("core/gloo/",)
_FOREIGN = re.compile(r"^(?:torch|ATen|c10|tensorflow|tsl|xla|mxnet|dlpack|nccl|mpi|gloo|cuda|cudart)\b|^cuda_")
# A library of ours may be linked with a libstdc++ of its own beside a framework's; facets of locales are shared then.
_STREAMS = {"fstream", "iomanip", "iostream", "istream", "locale", "ostream", "regex", "sstream"}
_PYTHON = re.compile(r"^(?:pybind11/|Python\.h$)")
_ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\b(?:set|unset|put|clear)env\b|\benviron\b")
CHOOSER = "core/src/algorithms/plan."
_ISOLATED = r"(backends/[^/]+|transport/(?!shm/)[^/]+)/"
_CALL_OF_CHOOSER = re.compile(r"\b(?:ChooseProtocol|ChoosePlan)\(")
_ENDS = re.compile(r"\bdone_\.store\(true|\brequest\.done\(")
ENVIRONMENT_FILE = "core/src/common/config.cc"
# Registers with TensorFlow while it is loaded, before Python can call it.
_READS_WHILE_LOADED = "plugins/tensorflow/csrc/entry_points.cc"


def layer_of(path: str) -> str | None:
    """`core/src/world/layout.cc` -> "world"; None for what no layer rule judges (tests, benchmarks, plugins)."""
    if path.startswith("core/bindings/"):
        return "bindings"
    if match := re.match(r"core/src/([^/]+)/", path):
        return match[1]
    return "capi" if re.match(r"core/src/[^/]+$", path) else None


def _includes(source: Source) -> list[tuple[int, bool, str]]:
    """(line, written in quotes, name) for each include."""
    text = without_comments(source.text)
    return [(line_of(text, match.start()), match["open"] == '"', match["name"]) for match in _INCLUDE.finditer(text)]


def layer_violations(files: Iterable[Source]) -> list[str]:
    found = []
    for source in files:
        layer = layer_of(source.path)
        if layer is None:
            continue
        if layer not in LAYERS:
            found.append(f"{source.path}: {layer} is no layer; say in cpp_rules.py whom it may know")
            continue
        for line, quoted, name in _includes(source):
            where = f"{source.path}:{line}"
            if name == _C_HEADER:
                if layer not in _MAY_SEE_C_HEADER:
                    found.append(f"{where}: {layer} includes the C header")
            elif quoted and (target := name.split("/")[0]) not in {layer, *LAYERS[layer]}:
                known = target in LAYERS or "/" in name
                found.append(
                    f"{where}: {layer} may not know {target} ({name})"
                    if known
                    else f'{where}: write "{name}" with its path below core/src'
                )
    return found


def isolation_violations(files: Iterable[Source]) -> list[str]:
    """The folder of a backend or a concrete transport is included by itself only; others see rows or interfaces."""
    found = []
    for source in files:
        own = re.match(rf"core/src/{_ISOLATED}", source.path)
        for line, _, name in _includes(source):
            target = re.match(_ISOLATED, name)
            if target and layer_of(source.path) and (own is None or own[1] != target[1]):
                found.append(f"{source.path}:{line}: only its own folder knows {target[1]} ({name})")
    return found


def foreign_header_violations(files: Iterable[Source]) -> list[str]:
    """Not compiled against a framework nor, bridges apart, a communication library; Python in bindings/ only."""
    found = []
    for source in files:
        for line, _, name in _includes(source):
            if _FOREIGN.match(name) and not source.path.startswith(_BRIDGES):
                found.append(f"{source.path}:{line}: includes {name}; look such libraries up at run time")
            if _PYTHON.match(name) and layer_of(source.path) != "bindings":
                found.append(f"{source.path}:{line}: includes {name}; Python is met in core/bindings only")
            if source.path.startswith("plugins/") and name.startswith("farandole/") and name != _C_HEADER:
                found.append(f"{source.path}:{line}: includes {name}; plugins include {_C_HEADER} only")
    return found


def stream_violations(files: Iterable[Source]) -> list[str]:
    """C++'s streams in what is loaded into a framework's process; common/text.h reads text without them."""
    return [
        f"{source.path}:{line}: includes {name}; common/text.h reads text without streams"
        for source in files
        if layer_of(source.path) or "/csrc/" in source.path or source.path.startswith(_BRIDGES)
        for line, _, name in _includes(source)
        if name in _STREAMS
    ]


def _backend_names(files: Iterable[Source]) -> re.Pattern[str]:
    """Finds the name of each backend that has a folder, as a group of that name."""
    folders = {match[1] for source in files if (match := re.match(r"core/src/backends/([^/]+)/", source.path))}
    found = [f"(?P<{name}>(?i:{name}))" for name in folders & {*_IN_ANY_WORD}]
    for name in folders - {*_IN_ANY_WORD}:
        title = name.capitalize()
        word = f"(?<![A-Za-z])(?:{name}|{name.upper()})(?![A-Za-z])"
        found.append(f"(?P<{name}>{word}|(?<=k){title}|\\b{title})")
    return re.compile("|".join(found) or r"(?!)")


def backend_name_violations(files: Iterable[Source]) -> list[str]:
    """Below core/src, a backend's name appears in its folder and in the table, in comments no more than in code."""
    files = [source for source in files if source.path.startswith("core/src/")]
    names = _backend_names(files)
    found = []
    for source in files:
        if source.path.startswith("core/src/backends/table."):
            continue
        for match in names.finditer(source.text):
            if not source.path.startswith(f"core/src/backends/{match.lastgroup}/"):
                found.append(
                    f"{source.path}:{line_of(source.text, match.start())}: names the backend {match.lastgroup}"
                )
    return found


def second_choices(files: Iterable[Source]) -> list[str]:
    """One place chooses the protocol of a name, and one the plan of a task."""
    found: dict[str, list[str]] = {}
    for source in files:
        if source.path.startswith("core/src/") and not source.path.startswith(CHOOSER):
            code = code_only(source.text)
            for match in _CALL_OF_CHOOSER.finditer(code):
                found.setdefault(match[0], []).append(f"{source.path}:{line_of(code, match.start())}: {match[0]}")
    return [place for places in found.values() if len(places) > 1 for place in places]


def second_ends(files: Iterable[Source]) -> list[str]:
    """One place ends an operation: it marks it as done and calls the user's function."""
    found: dict[str, list[str]] = {}
    for source in files:
        if source.path.startswith("core/src/"):
            code = code_only(source.text)
            for match in _ENDS.finditer(code):
                found.setdefault(match[0], []).append(f"{source.path}:{line_of(code, match.start())}: {match[0]}")
    return [place for places in found.values() if len(places) > 1 for place in places]


def cpp_environment_violations(files: Iterable[Source]) -> list[str]:
    found = []
    for source in files:
        if source.path in (ENVIRONMENT_FILE, _READS_WHILE_LOADED) or not re.match(
            r"core/(?:src|bindings|include)/|plugins/[^/]+/csrc/", source.path
        ):
            continue
        code = code_only(source.text)
        for match in _ENVIRONMENT.finditer(code):
            found.append(
                f"{source.path}:{line_of(code, match.start())}: {match[0]}; the environment is {ENVIRONMENT_FILE}'s"
            )
    return found
