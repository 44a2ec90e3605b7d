"""Runs an example's training in a rank; then tells whether all ranks have equal parameters, and rank 0 saves them.

python training.py FRAMEWORK EXAMPLE OUTPUT [the example's arguments]
"""

from __future__ import annotations

import hashlib
import importlib
import os
import runpy
import socket
import sys

import numpy as np

MODELS = []  # that the example has made


def torchs(example: str) -> list[np.ndarray]:
    import torch

    class Kept(torch.nn.Sequential):
        def __init__(self, *layers: torch.nn.Module) -> None:
            super().__init__(*layers)
            MODELS.append(self)

    torch.nn.Sequential = Kept
    runpy.run_path(example, run_name="__main__")
    return [each.detach().numpy() for each in MODELS[0].parameters()]


def kerass(example: str) -> list[np.ndarray]:
    import keras

    fit = keras.Model.fit

    def kept(model: keras.Model, *args: object, **options: object) -> object:
        MODELS.append(model)
        return fit(model, *args, **options)

    keras.Model.fit = kept
    runpy.run_path(example, run_name="__main__")
    return MODELS[0].get_weights()


def gluons(example: str) -> list[np.ndarray]:
    import mxnet as mx

    trainer = mx.gluon.Trainer.__init__

    def kept(self: mx.gluon.Trainer, params: object, *args: object, **options: object) -> None:
        MODELS.append(params)
        trainer(self, params, *args, **options)

    mx.gluon.Trainer.__init__ = kept
    runpy.run_path(example, run_name="__main__")
    return [each.data().asnumpy() for each in MODELS[0].values()]


TRAINED = {"torch": torchs, "tensorflow": kerass, "mxnet": gluons}


def main() -> None:
    framework, example, output = sys.argv[1:4]
    sys.argv[1:] = sys.argv[4:]
    if "TORCHELASTIC_RUN_ID" in os.environ:  # on several hosts ranks of torchrun meet in torch's store
        importlib.import_module("farandole_torch")
    parameters = TRAINED[framework](example)
    hvd = importlib.import_module(f"farandole_{framework}")
    digest = hashlib.sha256(b"".join(each.tobytes() for each in parameters)).hexdigest()
    found = hvd.allgather_object((digest, socket.gethostname()))
    if hvd.rank() == 0:
        np.savez(output, *parameters)
        digests, hosts = (set(each) for each in zip(*found, strict=True))
        print(f"{'equal' if len(digests) == 1 else 'different'} on all {len(found)} ranks of {len(hosts)} hosts")


main()
