from __future__ import annotations

from typing import Any

import farandole_mxnet
import mxnet as mx
import numpy as np
from faces import Face
from steps import LEARNING_RATE, STEPS, Options, factors, start

mx.util.set_np_shape(True)  # else MXNet has neither scalars nor arrays without elements


def make(array: np.ndarray) -> Any:
    return mx.nd.array(array, dtype=array.dtype)


def train(make_trainer: Any, dtype: str, options: Options) -> list[np.ndarray]:
    weights = [
        mx.gluon.Parameter(f"mxnet.{i}", shape=array.shape, dtype=dtype, init=mx.init.Constant(make(array)))
        for i, array in enumerate(start(dtype))
    ]
    for weight in weights:
        weight.initialize()
    trainer = make_trainer(weights, mx.optimizer.SGD(learning_rate=LEARNING_RATE))
    for step in range(STEPS):
        with mx.autograd.record():
            losses = [(w.data() * w.data() * make(x)).sum() for w, x in zip(weights, factors(dtype, step), strict=True)]
        mx.autograd.backward(losses)
        trainer.step(1)
    return [weight.data().asnumpy() for weight in weights]


def optimizer(dtype: str, options: Options) -> list[np.ndarray]:
    def make_trainer(weights: Any, sgd: Any) -> Any:
        distributed = farandole_mxnet.DistributedOptimizer(sgd, options.predivide, options.groups)
        return mx.gluon.Trainer(weights, distributed, kvstore=None)

    return train(make_trainer, dtype, options)


def trainer(dtype: str, options: Options) -> list[np.ndarray]:
    def make_trainer(weights: Any, sgd: Any) -> Any:
        return farandole_mxnet.DistributedTrainer(
            weights,
            sgd,
            compression=getattr(farandole_mxnet.Compression, options.compression),
            gradient_predivide_factor=options.predivide,
            num_groups=options.groups,
        )

    return train(make_trainer, dtype, options)


TRAINERS = {"DistributedOptimizer": optimizer, "DistributedTrainer": trainer}
FACE = Face("mxnet", farandole_mxnet, make, lambda array: array.asnumpy(), TRAINERS)
