"""The import of the plugin changes nothing in its framework."""

import pytest
from unchanged import changed_by_import


@pytest.mark.parametrize(
    ("framework", "plugin"), [("tensorflow", "farandole_tensorflow"), ("keras", "farandole_tensorflow.keras")]
)
def test_the_import_changes_nothing(framework, plugin):
    assert changed_by_import(framework, plugin) == []
