"""The pages of the API reference: one for each public module, with all names that its sources list in `__all__`.

mkdocstrings fills them. Only the standard library is needed here, so that a test can compare the names with Python's.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "core" / "python", *sorted(ROOT.glob("plugins/*/src"))]
# Horovod's own names; the launcher's and the viewers' modules, which only `farandole` itself uses; what registers.
_NO_PAGE = re.compile(r"horovod$|horovod\.|sparkdl|.*template|.*_autoload|farandole\.(launch\.(?!events)|observe)")
_NO_PAGE_EITHER = {"farandole_torch.distributed", "farandole_torch.mpi_ops"}  # no names; those of farandole_torch
_GUIDES = {
    "farandole_ray": "ray.md",
    "farandole_spark": "spark.md",
    **{f"farandole_spark.ml.{name}": "estimators.md" for name in ("backend", "keras", "lightning", "store", "torch")},
    "farandole_torch.lightning": "torch-distributed.md#lightning",
    "farandole.launch": "notebooks.md#commands-from-a-program",
}
_OTHER_NAMES = "It also has all names of [farandole](farandole.md), which are not repeated here."
_KERAS = "It has the names of [farandole_torch.keras](farandole_torch.keras.md) or of "
_KERAS += "[farandole_tensorflow.keras](farandole_tensorflow.keras.md), and their modules `callbacks` and `elastic`."


@functools.cache
def public_modules() -> dict[str, Path]:
    """The modules that have a page, and their sources."""
    found = {}
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            private = "._" in module or _NO_PAGE.match(module) or module in _NO_PAGE_EITHER
            if not private and ("\n__all__ = " in path.read_text() or module == "farandole.keras"):
                found[module] = path
    return found


def page_text(module: str, path: Path) -> str:
    """The Markdown of a page."""
    names = [*names_of(path)]
    guide = _GUIDES.get(module, "elastic.md" if module.endswith(".elastic") else "")
    remarks = [f"[The guide](../guide/{guide}) says more."] if guide else []
    remarks += [_KERAS] if module == "farandole.keras" else []
    remarks += [_OTHER_NAMES] if "farandole.*" in names else []
    about = f"::: {module}\n    options: {{heading_level: 2, members: false, show_root_heading: false}}"
    modules = [name for name in names if f"{module}.{name}" in {*public_modules(), *_NO_PAGE_EITHER}]
    pages = [f"[{module}.{name}]({module}.{name}.md)" for name in modules if name != "mpi_ops"]
    remarks += [f"Modules: {', '.join(pages)}."] if pages else []
    directives = [f"::: {module}.{name}" for name in names if name not in (*modules, "farandole.*")]
    return "\n\n".join([f"# `{module}`", about, *remarks, *directives, ""])


def names_of(path: Path) -> Iterator[str]:
    """The names in a module's `__all__`, with those of its own parts; `farandole.*` for all names of the core."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) != "__all__":
                continue
            if isinstance(node.value, ast.List):
                yield from ast.literal_eval(node.value)
            else:
                part = ast.unparse(node.value).removesuffix(".__all__")
                yield from ["farandole.*"] if part == "farandole" else names_of(path.with_name(f"{part}.py"))
