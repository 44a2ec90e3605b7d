"""The reference has every public name, and the site shows what a forge shows; `noxfile.py -s docs` builds it."""

import importlib
import inspect
import re

import farandole
import pytest
from reference import names_of, page_text, public_modules
from tree import ROOT, Source, sources

MODULES = public_modules()


@pytest.mark.parametrize("module", MODULES)
def test_a_page_of_the_reference_asks_for_each_public_name_once(module: str) -> None:
    asked = re.findall(r"^::: (\S+)$", page_text(module, MODULES[module]), re.M)
    assert asked[0] == module and len(asked) == len({*asked})


@pytest.mark.parametrize("module", ["farandole", "farandole.launch", "farandole.numpy", "farandole_torch"])
def test_the_names_are_those_that_python_sees(module: str) -> None:
    asked = re.findall(rf"^::: {module}\.(\S+)$", page_text(module, MODULES[module]), re.M)
    found = importlib.import_module(module)
    names = {name for name in found.__all__ if not inspect.ismodule(getattr(found, name))}
    of_the_core = {*farandole.__all__} if "farandole.*" in names_of(MODULES[module]) else set()
    assert {*asked} | of_the_core == names


def test_the_reference_has_the_modules_that_users_import() -> None:
    plugins = {f"farandole_{name}" for name in ("mxnet", "ray", "spark", "tensorflow", "torch")}
    assert plugins | {"farandole", "farandole.elastic", "farandole.numpy", "farandole_torch.keras"} <= {*MODULES}
    assert not [module for module in MODULES if re.search(r"\._|template|^horovod", module)]


def test_the_table_of_the_guide_lists_every_page_of_it() -> None:
    """Of which the site makes the navigation."""
    table = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    pages = {each.path.removeprefix("docs/guide/") for each in sources(ROOT, "docs/guide/*.md")} - {"README.md"}
    assert {*re.findall(r"\]\(([\w-]+\.md)", table)} == pages


# ---- Markdown that a forge and the site read alike -------------------------------------------------------------------


def other_markdown(files: list[Source]) -> list[str]:
    """Lists that Python-Markdown takes for text: right below a paragraph, or nested by fewer than four columns."""
    found = []
    for source in files:
        text = re.sub(
            r"^(```|~~~).*?^\1[^\n]*$", lambda match: "\n" * match[0].count("\n"), source.text, flags=re.M | re.S
        )
        lines = text.splitlines()
        for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), 1):
            begins = re.match(r"(?P<indent> *)(?:[-*]|\d+\.) ", line)
            in_list = re.match(r" *(?:[-*]|\d+\.) |#| {2,}\S", before)
            if begins and before.strip() and not in_list:
                found.append(f"{source.path}:{number}: an empty line must stand before a list")
            if begins and len(begins["indent"]) in (1, 2, 3):
                found.append(f"{source.path}:{number}: a list within a list is indented by four columns")
    return found


def test_lists_are_lists_on_the_site_too() -> None:
    assert other_markdown(sources(ROOT, "docs/*.md", "README.md")) == []


def test_a_list_that_the_site_would_miss_is_found() -> None:
    text = "Text:\n- a\n\n- b\n  c\n  - d\n    - e\n\n```\nx\n- y\n```\n# H\n- f\n"
    assert [each.split(": ")[0] for each in other_markdown([Source("a.md", text)])] == ["a.md:2", "a.md:6"]
