"""Models of Keras that tests compile and fit."""

import warnings

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
from digits_like import data, keras, network
from farandole._keras import agreement


def compiled(optimizer=None, seed=None, wrap=True, model=None, **options):
    """A model; with other weights on each rank unless there is a seed."""
    model = model or network("float32", hvd.rank() if seed is None else seed)
    optimizer = optimizer or keras.optimizers.SGD(0.05, momentum=0.9)
    options = {"jit_compile": False, "loss": "mse", **options}
    model.compile(optimizer=khvd.DistributedOptimizer(optimizer) if wrap else optimizer, **options)
    return model


def fit(model, *callbacks, epochs=1, batches=3, **options):
    x, y, batch_size = data(batches, "float32")
    options = {"batch_size": batch_size, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **options)


def start():
    return khvd.callbacks.BroadcastGlobalVariablesCallback(0)


def warnings_of(function, words):
    """What all ranks say in it that contains these words, as if for the first time."""
    agreement._reported.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    mine = [str(each.message) for each in caught if words in str(each.message)]
    return [said for of_rank in hvd.allgather_object(mine) for said in of_rank]
