"""The site of docs/ lists every page, and its reference has every public name; `noxfile.py -s docs` builds it."""

import ast
import importlib
import importlib.util
import inspect
import re

import pytest
import yaml
from python_rules import declared_names, module_of
from reference import HOMES, PAGES, WITH_LOCAL_LAYERS, definitions, file_of, page_text
from tree import ROOT, Source, python_sources, sources

REFERENCE = {page.module: [name for names in page.sections.values() for name in names] for page in PAGES}
DECLARED = {module_of(each.path): names for each in python_sources() if (names := declared_names(each)) is not None}
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
MADE_PAGES = {"index.md", "contents.md", "reference/cli.md"}


def public_names(module: str) -> set[str]:
    """The names that the sources give the module, without those that it passes on from farandole."""
    names = set(DECLARED.get(module, ()))
    if module == "farandole_torch":
        names |= set(DECLARED["farandole_torch.mpi_ops"])
    if module == "farandole.keras":
        names |= {*DECLARED["farandole_torch.keras"], *DECLARED["farandole_tensorflow.keras"]}
        names -= {"init", "callbacks", "elastic"}
        names |= {f"callbacks.{name}" for name in DECLARED["farandole_torch.keras.callbacks"]}
        own = {*DECLARED["farandole_torch.keras.elastic"]} - {*DECLARED["farandole_torch.elastic"]}
        names |= {f"elastic.{name}" for name in own}
    return names


@pytest.mark.parametrize("module", REFERENCE)
def test_the_reference_has_every_public_name_once(module: str) -> None:
    assert public_names(module)
    assert sorted(REFERENCE[module]) == sorted(public_names(module))


def test_the_reference_has_every_public_module() -> None:
    others = re.compile(r"\._|\.launch\.(?!events)|\.observe|^horovod|^sparkdl|_autoload$|template|^plugins\.")
    listed = {module for module in DECLARED if not others.search(module)} | {"farandole.keras"}  # which passes names on
    elsewhere = {"farandole_torch.mpi_ops", "farandole_torch.keras", "farandole_tensorflow.keras"}
    elsewhere |= {f"{module}.{part}" for module in elsewhere for part in ("callbacks", "elastic")}
    elsewhere |= {"farandole_torch.distributed"}  # has no names
    assert listed - elsewhere == {*REFERENCE}
    assert DECLARED["farandole_torch.distributed"] == []


@pytest.mark.parametrize("path", HOMES)
def test_the_docstring_of_a_name_is_where_the_reference_looks_for_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with what Python says, where the module is installed; the place is there in any case."""
    written = ast.get_docstring(definitions(HOMES[path])[-1])
    assert written
    module = max((page.module for page in PAGES if path.startswith(f"{page.module}.")), key=len)
    name = path.removeprefix(f"{module}.")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    if (
        importlib.util.find_spec(module.partition(".")[0]) and name != "broadcast_global_variables"
    ):  # TensorFlow's alone
        value: object = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        assert inspect.getdoc(value) == written


def test_names_with_local_layers_have_an_example() -> None:
    for path, (plain, module) in WITH_LOCAL_LAYERS.items():
        assert path.rpartition(".")[2] == f"Partial{plain}"
        assert re.search(r"^_EXAMPLE_OF_PARTIAL = ", file_of(module).read_text(), re.M)


def test_a_page_asks_for_each_name() -> None:
    for page in PAGES:
        asked = re.findall(r"^::: (\S+)$", page_text(page), re.M)
        assert asked == [page.module, *(f"{page.module}.{name}" for name in REFERENCE[page.module])]


def navigation() -> list[str]:
    class Loader(yaml.SafeLoader):
        """Reads mkdocs.yml, whose tags name objects of Python."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / ".ci" / "site" / "mkdocs.yml").read_text(encoding="utf-8"), Loader)

    def paths(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [path for each in (entry.values() if isinstance(entry, dict) else entry) for path in paths(each)]

    return paths(settings["nav"])


def test_the_navigation_lists_every_page_once() -> None:
    pages = {each.path.removeprefix("docs/") for each in sources(ROOT, "docs/*.md")} - {"README.md"}  # contents.md
    pages |= MADE_PAGES | {f"reference/{module}.md" for module in REFERENCE}
    assert sorted(navigation()) == sorted(pages)


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
