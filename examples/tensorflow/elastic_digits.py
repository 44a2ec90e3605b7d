"""Train a small Keras model on handwritten digits while workers come to an end: the others go on within a step.

    farandole run -np 4 --min-np 2 python examples/tensorflow/elastic_digits.py

Kill a worker meanwhile (kill -9 its pid, which each prints), or ask it to leave (kill its pid). Needs
farandole-tensorflow and scikit-learn (whose digits need no download).
"""

from __future__ import annotations

import argparse
import os

import farandole_tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

keras = tf.keras


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model, whatever becomes of single workers.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="for one worker")
    return parser.parse_args()


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """1797 images of 8 x 8 pixels, a fifth of them for the test."""
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = order[:360], order[360:]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    args = arguments()

    # 1. Find the other workers.
    hvd.init()
    keras.utils.set_random_seed(42 + hvd.rank())
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the network is too small for more
    print(f"worker {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)

    # 2. Give the state all that must survive. The dataset shares out what is left of a pass over it.
    train_data, test = load_data()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.learning_rate * hvd.size(), momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    hits = keras.metrics.SparseCategoricalAccuracy(name="hits")
    model.compile(optimizer=optimizer, loss=loss, metrics=[hits], jit_compile=False)
    samples = tf.data.Dataset.from_tensor_slices(train_data)
    data = hvd.elastic.Dataset(samples, batch_size=args.batch_size, shuffle=True, seed=42)
    state = hvd.elastic.KerasState(model, data=data, epoch=0)

    # 3. Set again what depends on the number of workers when they change.
    state.register_reset_callbacks([lambda: optimizer.learning_rate.assign(args.learning_rate * hvd.size())])

    # 4. Train. Called again after each change, with the state of the last commit.
    callbacks = [hvd.elastic.UpdateDataCallback(data), hvd.elastic.CommitStateCallback(state)]

    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        while state.epoch < args.epochs:
            data.set_epoch(state.epoch)
            if len(data):  # else the last commit was that of the last step of this pass
                history = model.fit(data.batches(), callbacks=callbacks, verbose=0)
                if hvd.rank() == 0:
                    loss = history.history["loss"][0]
                    print(f"epoch {state.epoch + 1} by {hvd.size()} workers: loss {loss:.3f}", flush=True)
            state.epoch += 1

    train(state)

    # 5. All workers have the same model; one tests it.
    if hvd.rank() == 0:
        _, accuracy = model.evaluate(*test, batch_size=len(test[0]), verbose=0)
        print(f"test accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
