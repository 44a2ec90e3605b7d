"""Small trainings, one for each framework, with the same few calls: a step, a sum of a metric, sets of ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


class Training:
    """A model on this rank. The subclasses have the calls of one framework."""

    hvd: Any

    def __init__(self) -> None:
        self.hvd.init()
        self.rank: int = self.hvd.rank()

    def step(self) -> None:
        """One step, with gradients averaged over all ranks."""
        raise NotImplementedError

    def tensor(self, size: int) -> Any:
        """A tensor of ones."""
        raise NotImplementedError

    def reduce(self, name: str, size: int = 2, of_set: Any = None) -> None:
        """Average a metric, and wait for it."""
        given = {} if of_set is None else {"process_set": of_set}
        self.hvd.allreduce(self.tensor(size), name=name, **given)

    def ranks(self, numbers: Sequence[int]) -> Any:
        """A set of these ranks; called on all."""
        return self.hvd.add_process_set(list(numbers))

    def leave(self) -> None:
        self.hvd.shutdown()


class Numpy(Training):
    def __init__(self) -> None:
        import farandole.numpy
        import numpy

        self.hvd, self.numpy = farandole.numpy, numpy
        super().__init__()
        self.gradients = {"bias": 10, "weight": 640}

    def step(self) -> None:
        handles = [
            self.hvd.allreduce_async(self.tensor(size), name=f"gradient.{name}")
            for name, size in self.gradients.items()
        ]
        for handle in handles:
            self.hvd.synchronize(handle)

    def tensor(self, size: int) -> Any:
        return self.numpy.ones(size, self.numpy.float32)


class Torch(Training):
    def __init__(self) -> None:
        import farandole_torch
        import torch

        torch.set_num_threads(1)
        self.hvd, self.torch = farandole_torch, torch
        super().__init__()
        self.start_model()

    def start_model(self) -> None:
        self.model = self.torch.nn.Linear(64, 10)
        optimizer = self.torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer = self.hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        self.hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.torch.randn(16, 64)).square().mean().backward()
        self.optimizer.step()

    def tensor(self, size: int) -> Any:
        return self.torch.ones(size)


class Ddp(Torch):
    """DistributedDataParallel over gloo, for `torchrun`."""

    def __init__(self) -> None:
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        self.torch, self.distributed = torch, distributed
        from datetime import timedelta

        distributed.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["DDP_TIMEOUT_S"])))
        self.rank = distributed.get_rank()
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def reduce(self, name: str, size: int = 2, of_set: Any = None) -> None:
        self.distributed.all_reduce(self.tensor(size), group=of_set)

    def ranks(self, numbers: Sequence[int]) -> Any:
        return self.distributed.new_group(list(numbers))

    def leave(self) -> None:
        self.distributed.destroy_process_group()


class TensorFlow(Training):
    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import farandole_tensorflow
        import tensorflow

        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        self.hvd, self.tensorflow = farandole_tensorflow, tensorflow
        super().__init__()
        self.weights = [tensorflow.Variable(tensorflow.ones(shape)) for shape in ((64, 10), (10,))]

    def step(self) -> None:
        tf = self.tensorflow
        with tf.GradientTape() as tape:
            weight, bias = self.weights
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.random.normal((16, 64)), weight) + bias))
        tape = self.hvd.DistributedGradientTape(tape)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.01 * gradient)

    def tensor(self, size: int) -> Any:
        return self.tensorflow.ones(size)


class Mxnet(Training):
    def __init__(self) -> None:
        import farandole_mxnet
        import mxnet

        self.hvd, self.mxnet = farandole_mxnet, mxnet
        super().__init__()
        self.net = mxnet.gluon.nn.Dense(10, in_units=64)
        self.net.initialize()
        self.trainer = self.hvd.DistributedTrainer(self.net.collect_params(), "sgd", {"learning_rate": 0.01})

    def step(self) -> None:
        with self.mxnet.autograd.record():
            loss = self.net(self.mxnet.nd.ones((16, 64))).square().mean()
        loss.backward()
        self.trainer.step(1)

    def tensor(self, size: int) -> Any:
        return self.mxnet.nd.ones(size)

    def reduce(self, name: str, size: int = 2, of_set: Any = None) -> None:
        given = {} if of_set is None else {"process_set": of_set}
        self.hvd.allreduce(self.tensor(size), name=name, **given).wait_to_read()


TRAININGS: dict[str, type[Training]] = {
    "numpy": Numpy,
    "torch": Torch,
    "tensorflow": TensorFlow,
    "mxnet": Mxnet,
    "ddp": Ddp,
}
