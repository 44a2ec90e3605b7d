"""The import of the plugin changes nothing in its frameworks."""

import os

from unchanged import changed_by_import


def test_the_import_changes_nothing():
    assert changed_by_import(["torch", "keras"], ["farandole_torch", "farandole_torch.keras"]) == []


def test_what_an_import_changes_is_found(tmp_path, monkeypatch):
    texts = {
        "frame/__init__": "import types\nfrom . import early\nclass Late(types.ModuleType): ...\nlate = Late('late')\n"
        "class Box:\n    def __init__(self): ...\n    def put(self): ...\nkept = taken = lost = 1",
        "frame/early": "",
        "frame/part": "",
        "patch": "import frame, frame.part\nframe.Box.__init__ = frame.Box.put = len\nframe.taken = 2\ndel frame.lost\n"
        "frame.added = 3\nframe.early = frame.late = frame.part",
    }
    (tmp_path / "frame").mkdir()
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    changed = ["frame.Box.__init__", "frame.Box.put", "frame.added", "frame.early", "frame.lost", "frame.taken"]
    assert sorted(changed_by_import(["frame"], ["patch"])) == changed
