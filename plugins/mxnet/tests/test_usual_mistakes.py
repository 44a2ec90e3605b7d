"""Mistakes of new users that show before any rank meets another."""

import subprocess
import sys

import farandole_mxnet as hvd
import mxnet as mx
import pytest


def test_a_kvstore_with_servers_is_explained():
    parameter = mx.gluon.Parameter("weight", shape=(1,))
    parameter.initialize()
    with mx.autograd.record():
        loss = parameter.data().sum()
    loss.backward()
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD())
    trainer = mx.gluon.Trainer([parameter], optimizer, kvstore="dist_sync")
    with pytest.raises(ValueError, match=r"the kvstore 'dist_sync' needs MXNet's servers.* kvstore=None"):
        trainer.step(1)


def test_other_kvstores_stay_as_they_are():
    assert [mx.kvstore.create(kind).type for kind in ("local", "device")] == ["local", "device"]


def test_the_name_of_an_optimizer_is_no_optimizer():
    with pytest.raises(ValueError, match=r"not str: mx\.optimizer\.create\('sgd', \.\.\.\) makes one"):
        hvd.DistributedOptimizer("sgd")


def test_a_numpy_that_breaks_mxnet_is_named(tmp_path):
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.gone_since_1_24\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import farandole_mxnet"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: MXNet cannot be imported with this numpy, it needs one before 1.24 (")
    assert "numpy==1.23.5" in last
