"""Functions by value: what other processes see of them."""

import pickle
import traceback

import pytest
from farandole._runtime import pickling

SCRIPT = """
def outer():
    def inner():
        raise ValueError("from inner")

    inner()
"""


def test_a_function_that_travels_by_value_keeps_the_name_of_its_file():
    names = {"__name__": "not_to_be_imported"}
    exec(compile(SCRIPT, "/home/user/train.py", "exec"), names)
    function = pickle.loads(pickling.dumps(names["outer"]))
    with pytest.raises(ValueError, match="from inner") as raised:
        function()
    frames = traceback.extract_tb(raised.value.__traceback__)[1:]
    assert [(frame.filename, frame.lineno, frame.name) for frame in frames] == [
        ("/home/user/train.py", 6, "outer"),
        ("/home/user/train.py", 4, "inner"),
    ]


def test_other_objects_are_as_they_were():
    obj = {"a": [1, 2.5, None], "b": (b"bytes", {3})}
    assert pickle.loads(pickling.dumps(obj)) == obj
