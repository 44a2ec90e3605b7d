"""Hooks of MkDocs: pages that no file of docs/ holds, and links that lead out of docs/.

    README.md of the tree       -> index.md
    docs/README.md              -> contents.md
    reference.py, mkdocs-click  -> reference/*.md
    a file outside docs/        -> source/<path>.md, where a page links to it
    a folder outside docs/      -> source/<path>/index.md, a list of its files

So the files of docs/ read alike on a forge and on the site. PYTHONPATH holds this folder and core/python.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from reference import ROOT, page_text, public_modules

HERE = Path(__file__).resolve().parent
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".cc": "cpp", ".h": "cpp", ".def": "cpp", ".py": "python", ".pyi": "python", ".yaml": "yaml"}
_LANGUAGES |= {".md": "markdown", ".toml": "toml", ".json": "json", ".sh": "bash", ".c": "c"}
_OTHER_PLACES = {"README.md": "index.md", "docs/README.md": "contents.md"}
_COMMANDS = """# Command line

These are the texts of `farandole --help` and `farandole VERB --help`. [Launching](../guide/launching.md) explains them,
and [a file or the environment](../guide/launching.md#options-from-a-file-and-the-environment) can set the options.

::: mkdocs-click
    :module: farandole.launch.cli
    :command: farandole
    :depth: 1
    :style: plain
"""
_SOURCE = "---\nsearch: {exclude: true}\nhide: [navigation, toc]\n---\n\n"


def on_config(config: Any) -> Any:
    """List the pages of the reference in the navigation."""
    (reference,) = [each["Reference"] for each in config["nav"] if "Reference" in each]
    reference[:0] = [{module: f"reference/{module}.md"} for module in public_modules()]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are made."""
    for page in list(files.documentation_pages()):
        if page.src_uri == "README.md":
            files.remove(page)
    made = {place: (ROOT / origin).read_text(encoding="utf-8") for origin, place in _OTHER_PLACES.items()}
    files.append(File.generated(config, "assets/site.css", content=(HERE / "site.css").read_text(encoding="utf-8")))
    made["index.md"] = f"---\nhide: [navigation]\n---\n\n{made['index.md']}"
    made |= {f"reference/{module}.md": page_text(module, path) for module, path in public_modules().items()}
    made["reference/cli.md"] = _COMMANDS
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    written = {page.src_uri: page.content_string for page in files.documentation_pages()}
    sources = _linked_sources(written)
    for path in sources:
        text, inclusion = _source_page(path, sources), InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _place(path), content=text, inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let the links of a page lead to pages."""
    place = page.file.src_uri
    if place.startswith(("source/", "reference/")):
        return markdown

    def leads_to(match: re.Match[str]) -> str:
        path = normpath(f"{dirname(_origin(place))}/{match['path']}").lstrip("/")
        return relpath(_place(path), dirname(place) or ".") + (match["anchor"] or "")

    parts, start = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(leads_to, markdown[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, _LINK.sub(leads_to, markdown[start:])])


def _origin(place: str) -> str:
    """The path in the tree of the file that is at this place of the site."""
    return next((origin for origin, other in _OTHER_PLACES.items() if other == place), f"docs/{place}")


def _place(path: str) -> str:
    """The place on the site of this path of the tree."""
    if path in _OTHER_PLACES:
        return _OTHER_PLACES[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return f"{inside}/README.md" if (ROOT / path).is_dir() else inside
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


def _linked_sources(written: dict[str, str]) -> list[str]:
    """The paths outside docs/ that pages link to, with the examples in folders among them."""
    found = set()
    for place, text in written.items():
        for match in _LINK.finditer(_FENCE.sub("", text)) if not place.startswith("reference/") else ():
            path = normpath(f"{dirname(_origin(place))}/{match['path']}").lstrip("/")
            if path not in _OTHER_PLACES and not path.startswith("docs/") and (ROOT / path).exists():
                found.add(path)
                if path.startswith("examples"):
                    found |= {str(each.relative_to(ROOT)) for each in (ROOT / path).rglob("*.py")}
    return sorted(found)


def _source_page(path: str, pages: list[str]) -> str:
    file = ROOT / path
    if file.is_dir():
        left_out = ("__pycache__", ".so", ".pyc", ".egg-info")
        inside = {str(each.relative_to(ROOT)) for each in file.iterdir() if not each.name.endswith(left_out)}
        inside |= {each for each in pages if each.startswith(f"{path}/")}
        links = {each: f"[{each}]({relpath(_place(each), f'source/{path}')})" for each in inside.intersection(pages)}
        return "\n".join([f"{_SOURCE}# {path}/", "", *(f"- {links.get(each, each)}" for each in sorted(inside)), ""])
    text = file.read_text(encoding="utf-8")
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{_SOURCE}# {path}\n\n{ticks}{_LANGUAGES.get(file.suffix, 'text')}\n{text}{ticks}\n"
