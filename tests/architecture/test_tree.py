from pathlib import Path

from tree import ROOT, line_of, sources, tracked_paths


def test_the_tree_that_is_judged_is_this_one() -> None:
    assert "noxfile.py" in tracked_paths(ROOT)


def test_what_is_built_is_not_judged() -> None:
    assert not [path for path in tracked_paths(ROOT) if path.startswith((".nox/", "core/build/"))]


def test_patterns_reach_into_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.py").write_text("1\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "d.py").write_text("2\n")
    assert [source.path for source in sources(tmp_path, "*.py")] == ["a/b/c.py"]


def test_lines_are_counted_from_one() -> None:
    assert [line_of("a\nb\n", offset) for offset in (0, 1, 2)] == [1, 1, 2]
