"""Train a small network on handwritten digits in a graph and session of TF1: alone, or on many workers.

    python examples/tensorflow/graph_digits.py
    farandole run -np 2 python examples/tensorflow/graph_digits.py

Needs farandole-tensorflow and scikit-learn (whose digits need no download).
"""

from __future__ import annotations

import argparse

import farandole_tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits in a session.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits", help="folder where rank 0 saves the trained model")
    return parser.parse_args()


def load_share(rank: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Every size-th of 1797 images of 8 x 8 pixels, a fifth of them for the test; as many on every rank."""
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = (part[rank : len(part) - len(part) % size : size] for part in (order[:360], order[360:]))
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model(images: tf.Tensor, drop_rate: tf.Tensor) -> tf.Tensor:
    """The logits."""

    def weights(name: str, *shape: int) -> tf.Variable:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(stddev=scale, seed=42))

    layer = tf.nn.relu(tf.nn.conv2d(images, weights("conv1", 3, 3, 1, 16), padding="SAME"))
    layer = tf.nn.relu(tf.nn.conv2d(layer, weights("conv2", 3, 3, 16, 32), padding="SAME"))
    layer = tf.reshape(tf.nn.max_pool2d(layer, 2, 2, "SAME"), [-1, 4 * 4 * 32])
    layer = tf.nn.dropout(layer, rate=drop_rate)
    layer = tf.nn.relu(tf.matmul(layer, weights("dense1", 4 * 4 * 32, 64)) + tf.get_variable("bias1", [64]))
    return tf.matmul(layer, weights("dense2", 64, 10)) + tf.get_variable("bias2", [10])


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    tf.disable_eager_execution()
    tf.set_random_seed(42 + hvd.rank())
    config = tf.ConfigProto(intra_op_parallelism_threads=1)  # the network is too small for more
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    # 2. Give each worker its share of the data.
    train, test = load_share(hvd.rank(), hvd.size())
    draw = np.random.RandomState(42 + hvd.rank())
    steps = args.epochs * (len(train[0]) // args.batch_size)

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    images, labels = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int64, [None])
    drop_rate = tf.placeholder_with_default(0.25, [])
    logits = make_model(images, drop_rate)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.cosine_decay(args.learning_rate * hvd.size(), step, steps)
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(rate, 0.9))
    minimize = optimizer.minimize(loss, global_step=step)
    own_accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float64))
    accuracy = hvd.allreduce(own_accuracy, name="accuracy")

    # 4. Start everywhere from rank 0's values.
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]

    # 5. Train, and show progress once.
    if hvd.rank() == 0:
        tf.logging.set_verbosity(tf.logging.INFO)
        hooks.append(tf.train.LoggingTensorHook({"step": step, "loss": loss}, every_n_iter=200))
    folder = args.checkpoint if hvd.rank() == 0 else None  # which makes rank 0 the only one that saves
    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, config=config, hooks=hooks) as session:
        for _ in range(steps):
            rows = draw.choice(len(train[0]), args.batch_size, replace=False)
            session.run(minimize, {images: train[0][rows], labels: train[1][rows]})

        # 6. Test every worker's share, average.
        found = session.run(accuracy, {images: test[0], labels: test[1], drop_rate: 0.0})
    if hvd.rank() == 0:
        print(f"test accuracy {found:.3f}", flush=True)


if __name__ == "__main__":
    main()
