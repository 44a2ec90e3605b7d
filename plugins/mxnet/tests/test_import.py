"""The import of the plugin changes nothing in MXNet but its list of errors, which gets room; see csrc/errors.h."""

from unchanged import changed_by_import


def test_the_import_changes_nothing():
    assert changed_by_import(["mxnet"], ["farandole_mxnet"]) == []
