"""Functions by value: what other processes see of them."""

import importlib
import pickle
import sys
import threading
import traceback
import types

import cloudpickle
import pytest
from farandole import ArgumentTypeError
from farandole._functions.call_payload import for_elsewhere, load
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


def test_a_module_of_a_class_of_its_own_travels_by_name(monkeypatch):
    class Operators(types.ModuleType): ...

    module = Operators("not_in_any_file")
    module.value = 7
    monkeypatch.setitem(sys.modules, module.__name__, module)
    function = eval("lambda: module.value", {"module": module, "__name__": "not_to_be_imported"})
    assert pickle.loads(pickling.dumps(function))() == 7
    assert pickle.loads(pickling.dumps(module)) is module


def test_two_threads_that_pickle_at_once_do_not_disturb_each_other():
    module = types.ModuleType("of_a_notebook")
    sys.modules[module.__name__] = module
    began, errors = threading.Event(), []

    def second():
        began.wait()
        try:
            with pickling.by_value([module]):
                pass
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    with pickling.by_value([module]):
        began.set()
        thread.join(0.3)  # the other one waits
        assert thread.is_alive()
        assert module.__name__ in cloudpickle.list_registry_pickle_by_value()
    thread.join()
    del sys.modules[module.__name__]
    assert errors == [] and module.__name__ not in cloudpickle.list_registry_pickle_by_value()


def test_a_package_that_cannot_travel_is_expected_on_the_ranks(tmp_path, monkeypatch):
    for name in ("packaged", "plain"):
        folder = tmp_path / name
        monkeypatch.syspath_prepend(str(folder))
        (folder / f"of_{name}").mkdir(parents=True)
        code = "import threading\nlock = threading.Lock()\ndef work():\n    return lock.locked()\n"
        (folder / f"of_{name}" / "__init__.py").write_text(code)
    (tmp_path / "packaged" / "of_packaged-1.dist-info").mkdir()  # as pip's option --target leaves it
    call = for_elsewhere(importlib.import_module("of_packaged").work, (), {}, "test")
    assert load(call)[0] is sys.modules["of_packaged"].work
    with pytest.raises(ArgumentTypeError, match=r"test cannot send 'work' to the ranks: .* cannot be pickled"):
        for_elsewhere(importlib.import_module("of_plain").work, (), {}, "test")
