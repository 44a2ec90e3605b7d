from __future__ import annotations

from typing import Any

import farandole_tensorflow
import numpy as np
import tensorflow as tf
from faces import Face, Perform
from steps import LEARNING_RATE, STEPS, Options, factors, start


def make(array: np.ndarray) -> tf.Tensor:
    if array.dtype.name == "bfloat16":
        return tf.bitcast(tf.constant(array.view(np.uint16)), tf.bfloat16)
    return tf.constant(array)


def read(tensor: tf.Tensor) -> np.ndarray:
    return np.asarray((tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor).numpy())


def in_a_function(perform: Perform, tensors: list[Any]) -> list[list[Any]]:
    """All at once, as nodes of a graph."""
    return tf.function(perform)(tensors)


def arguments(options: Options) -> dict[str, Any]:
    return {
        "compression": getattr(farandole_tensorflow.Compression, options.compression),
        "op": getattr(farandole_tensorflow, options.op),
        "gradient_predivide_factor": options.predivide,
        "num_groups": options.groups,
    }


def loss_of(weights: list[Any], step: Any, xs: list[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(w * w * x[step]) for w, x in zip(weights, xs, strict=True)])


def all_factors(dtype: str) -> list[Any]:
    """[weight] -> [step, ...]"""
    steps = [factors(dtype, step) for step in range(STEPS)]
    return [tf.stack([make(each) for each in of_weight]) for of_weight in zip(*steps, strict=True)]


def tape(dtype: str, options: Options) -> list[np.ndarray]:
    weights, xs = [tf.Variable(make(array)) for array in start(dtype)], all_factors(dtype)

    @tf.function
    def train(step: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, step, xs)
        distributed = farandole_tensorflow.DistributedGradientTape(tape, **arguments(options))
        for weight, gradient in zip(weights, distributed.gradient(loss, weights), strict=True):
            weight.assign_sub(LEARNING_RATE * gradient)

    for step in range(STEPS):
        train(tf.constant(step))
    return [weight.numpy() for weight in weights]


def of_keras(dtype: str, options: Options) -> list[np.ndarray]:
    weights, xs = [tf.Variable(make(array)) for array in start(dtype)], all_factors(dtype)
    sgd = farandole_tensorflow.DistributedOptimizer(tf.keras.optimizers.SGD(LEARNING_RATE), **arguments(options))
    for step in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(weights, step, xs)
        sgd.apply_gradients(list(zip(tape.gradient(loss, weights), weights, strict=True)))
    return [weight.numpy() for weight in weights]


def of_version_1(dtype: str, options: Options) -> list[np.ndarray]:
    sgd = tf.compat.v1.train.GradientDescentOptimizer(LEARNING_RATE)
    with tf.Graph().as_default() as graph:
        weights = [tf.compat.v1.get_variable(f"w{i}", initializer=array) for i, array in enumerate(start(dtype))]
        step, xs = tf.compat.v1.placeholder(tf.int32, []), all_factors(dtype)
        train = farandole_tensorflow.DistributedOptimizer(sgd, **arguments(options)).minimize(
            loss_of(weights, step, xs)
        )
        initialize = tf.compat.v1.global_variables_initializer()
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(initialize)
        for number in range(STEPS):
            session.run(train, {step: number})
        return session.run(weights)


TRAINERS = {
    "DistributedGradientTape": tape,
    "DistributedOptimizer of Keras": of_keras,
    "DistributedOptimizer of TF1": of_version_1,
}
FACE = Face("tensorflow", farandole_tensorflow, make, read, TRAINERS, {"in a function": in_a_function})
