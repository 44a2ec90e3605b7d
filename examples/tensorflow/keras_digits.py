"""Train a small Keras model on handwritten digits with model.fit: alone, or on many workers.

    python examples/tensorflow/keras_digits.py
    farandole run -np 2 python examples/tensorflow/keras_digits.py

Needs farandole-tensorflow and scikit-learn (whose digits need no download).
"""

from __future__ import annotations

import argparse

import farandole_tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

keras = tf.keras


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small Keras model on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits.keras", help="where rank 0 saves the trained model")
    return parser.parse_args()


def load_share(rank: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Every size-th of 1797 images of 8 x 8 pixels, a fifth of them for the test; as many on every rank."""
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = (part[rank : len(part) - len(part) % size : size] for part in (order[:360], order[360:]))
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    keras.utils.set_random_seed(42 + hvd.rank())
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the network is too small for more
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    # 2. Give each worker its share of the data.
    (images, labels), test = load_share(hvd.rank(), hvd.size())

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = make_model()
    steps = args.epochs * -(-len(images) // args.batch_size)
    schedule = keras.optimizers.schedules.CosineDecay(args.learning_rate * hvd.size(), steps)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(schedule, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=[keras.metrics.SparseCategoricalAccuracy(name="hits")])

    # 4. Start everywhere from rank 0's values.
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]

    # 5. Train, and show progress once.
    verbose = 2 if hvd.rank() == 0 else 0
    model.fit(images, labels, batch_size=args.batch_size, epochs=args.epochs, callbacks=callbacks, verbose=verbose)

    # 6. Test every worker's share, average, save once.
    _, own_accuracy = model.evaluate(*test, batch_size=len(test[0]), verbose=0)
    accuracy = hvd.allreduce(own_accuracy, name="accuracy")
    if hvd.rank() == 0:
        model.save(args.checkpoint)
        print(f"test accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
