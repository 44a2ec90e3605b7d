"""Train a small network on handwritten digits with tf.function and a tape: alone, or on many workers.

    python examples/tensorflow/tape_digits.py
    farandole run -np 2 python examples/tensorflow/tape_digits.py

Needs farandole-tensorflow, scikit-learn (whose digits need no download) and tqdm.
"""

from __future__ import annotations

import argparse

import farandole_tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tqdm import tqdm

keras = tf.keras


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits.weights.h5", help="where rank 0 saves the weights")
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

    # 2. Give each worker its share of the data; all take as many steps.
    train, test = load_data()
    dataset = tf.data.Dataset.from_tensor_slices(train).shard(hvd.size(), hvd.rank())
    steps_per_epoch = len(train[0]) // hvd.size() // args.batch_size
    batches = dataset.shuffle(len(train[0])).batch(args.batch_size).take(steps_per_epoch)

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = make_model()
    schedule = keras.optimizers.schedules.CosineDecay(args.learning_rate * hvd.size(), args.epochs * steps_per_epoch)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
        return loss

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_variables(model.weights, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)

    # 5. Train, and show progress once.
    steps = tqdm(total=args.epochs * steps_per_epoch, unit="step", disable=hvd.rank() != 0)
    for epoch in range(args.epochs):
        for images, labels in batches:
            loss = step(images, labels)
            steps.update()
        average_loss = hvd.allreduce(loss, name="loss")
        steps.set_postfix(epoch=epoch + 1, loss=f"{average_loss.numpy():.3f}")
    steps.close()

    # 6. Test every worker's share, average, save once.
    own_images, own_labels = (part[hvd.rank() :: hvd.size()][: len(part) // hvd.size()] for part in test)
    hits = tf.argmax(model(own_images), axis=1) == own_labels
    accuracy = hvd.allreduce(tf.reduce_mean(tf.cast(hits, tf.float64)), name="accuracy")
    if hvd.rank() == 0:
        model.save_weights(args.checkpoint)
        print(f"test accuracy {accuracy.numpy():.3f}", flush=True)


if __name__ == "__main__":
    main()
