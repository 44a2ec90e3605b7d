"""`import farandole.keras` gives the plugin of the framework that Keras runs on, or says what to install or to set.

Keras and the plugin are stand-ins here; plugins/torch/tests and plugins/tensorflow/tests have the real ones.
"""

import subprocess
import sys

import pytest

STAND_INS = """
import sys
from types import ModuleType, SimpleNamespace

def module(name, **contents):
    made = ModuleType(name)
    vars(made).update(contents)
    sys.modules[name] = made
    return made

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def lacks(name):
    finder = Lacking()
    finder.name = name
    sys.meta_path.insert(0, finder)

def keras_on(backend):
    module("keras", backend=SimpleNamespace(backend=lambda: backend))
"""
PLUGIN = """
package = module("farandole_torch", __path__=[])
callbacks = module("farandole_torch.keras.callbacks", Warmup=int)
elastic = module("farandole_torch.keras.elastic", KerasState=int)
names = {"answer": 42, "callbacks": callbacks, "elastic": elastic}
package.keras = module("farandole_torch.keras", __all__=[*names], **names)
"""


def python(code):
    command = [sys.executable, "-c", STAND_INS + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "use",
    [
        "import farandole.keras as hvd; print(hvd.answer)",
        "from farandole.keras import answer; print(answer)",
        "from farandole.keras import *; print(answer)",
        "import farandole.keras.callbacks as callbacks; print(callbacks.Warmup(42))",
        "from farandole.keras.callbacks import Warmup; print(Warmup(42))",
        "from farandole.keras.elastic import KerasState; print(KerasState(42))",
        "import farandole.keras as hvd; print(42 if 'answer' in dir(hvd) and not hasattr(hvd, 'question') else 0)",
    ],
)
def test_it_is_the_plugin_of_the_framework_that_keras_runs_on(use):
    done = python(f"keras_on('torch')\n{PLUGIN}\n{use}")
    assert done.stdout.strip() == "42", done.stderr


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("lacks('keras')", "python -m pip install 'keras>=3'"),
        ("keras_on('torch'); lacks('farandole_torch')", "python -m pip install farandole-torch"),
        (
            "keras_on('tensorflow'); lacks('farandole_tensorflow')",
            "needs farandole_tensorflow, since Keras uses tensorflow: python -m pip install farandole-tensorflow",
        ),
        ("keras_on('jax')", "Keras uses jax: set the environment variable KERAS_BACKEND=torch or KERAS_BACKEND="),
    ],
)
def test_what_is_missing_is_told_in_one_sentence(before, told):
    done = python(f"{before}\nimport farandole.keras")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: farandole.keras ")
    assert told in last


def test_what_a_plugin_itself_lacks_is_not_taken_for_the_plugin():
    done = python("keras_on('torch'); module('farandole_torch', __path__=[])\nimport farandole.keras")
    assert "ModuleNotFoundError: No module named 'farandole_torch.keras'" in done.stderr


def test_a_framework_that_keras_lacks_is_told(tmp_path):
    (tmp_path / "keras.py").write_text("import a_framework")
    done = python(f"sys.path.insert(0, {str(tmp_path)!r})\nimport farandole.keras")
    assert "No module named 'a_framework'): install what Keras runs on, or set the environment variable" in done.stderr


def test_the_core_does_without_it():
    done = python("import farandole.plugin; print([x for x in sys.modules if x.endswith(('.keras', 'torch'))])")
    assert done.stdout.strip() == "[]"
