"""The import of the plugin changes nothing in its frameworks."""

from unchanged import changed_by_import


def test_the_import_changes_nothing():
    assert changed_by_import(["tensorflow", "keras"], ["farandole_tensorflow", "farandole_tensorflow.keras"]) == []
