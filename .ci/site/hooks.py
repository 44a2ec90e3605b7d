"""Hooks of MkDocs: pages that no file of docs/ holds, and links that lead out of docs/.

    README.md of the tree       -> index.md
    docs/README.md              -> contents.md
    reference.py, mkdocs-click  -> reference/*.md
    a path outside docs/        -> that path of the repository

So the files of docs/ read alike on a forge and on the site. PYTHONPATH holds this folder and the packages' sources.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files
from reference import ROOT, page_text, public_modules

HERE = Path(__file__).resolve().parent
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
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


def on_config(config: Any) -> Any:
    """Complete the sections of the navigation that list all that there is."""
    for section in config["nav"]:
        for title, pages in section.items():
            if title == "Reference":
                pages[:0] = [{module: f"reference/{module}.md"} for module in public_modules()]
            elif title == "Guide":
                pages += guide_pages()
            elif not pages:
                folder = title.lower()
                pages += [f"{folder}/{path.name}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    return config


def guide_pages() -> list[Any]:
    """The pages that the table at the beginning of the guide lists, by subject."""
    table = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    pages: list[Any] = ["guide/README.md"]
    for subject, links in re.findall(r"^\| (\w[^|]*) \| (.*\]\(.*) \|$", table, re.MULTILINE):
        named = re.findall(r"\[([^\]]+)\]\(([\w-]+\.md)\)", links)
        pages.append(
            {subject[0].upper() + subject[1:]: [{name[0].upper() + name[1:]: f"guide/{page}"} for name, page in named]}
        )
    return pages


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are made."""
    files.remove(files.src_uris["README.md"])
    made = {place: (ROOT / origin).read_text(encoding="utf-8") for origin, place in _OTHER_PLACES.items()}
    made["index.md"] = f"---\nhide: [navigation]\n---\n\n{made['index.md']}"
    made |= {f"reference/{module}.md": page_text(module, path) for module, path in public_modules().items()}
    made |= {"reference/cli.md": _COMMANDS, "assets/site.css": (HERE / "site.css").read_text(encoding="utf-8")}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Let the links of a page lead to pages, or to the repository."""
    place = page.file.src_uri
    if place.startswith("reference/"):
        return markdown
    origin = next((origin for origin, other in _OTHER_PLACES.items() if other == place), f"docs/{place}")

    def leads_to(match: re.Match[str]) -> str:
        path, anchor = normpath(f"{dirname(origin)}/{match['path']}").lstrip("/"), match["anchor"] or ""
        if not (ROOT / path).exists():
            return match[0]  # MkDocs complains
        if path not in _OTHER_PLACES and not path.startswith("docs/"):
            return f"{config['repo_url']}/blob/main/{path}{anchor}"
        target = f"{path}/README.md" if (ROOT / path).is_dir() else path
        return relpath(_OTHER_PLACES.get(target, target.removeprefix("docs/")), dirname(place) or ".") + anchor

    parts, start = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(leads_to, markdown[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, _LINK.sub(leads_to, markdown[start:])])
