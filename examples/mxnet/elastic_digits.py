"""Train a small Gluon network on handwritten digits while workers come to an end: the others go on within a step.

    farandole run -np 4 --min-np 2 python examples/mxnet/elastic_digits.py

Kill a worker meanwhile (kill -9 its pid, which each prints), or ask it to leave (kill its pid). Needs farandole-mxnet
and scikit-learn (whose digits need no download): pip install scikit-learn 'numpy<1.24'
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when MXNet is imported; the network is too small for more

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network, whatever becomes of single workers.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="for one worker")
    return parser.parse_args()


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """1797 images of 8 x 8 pixels, a fifth of them for the test."""
    digits = load_digits()
    images = digits.images[:, np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = order[:360], order[360:]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model() -> gluon.HybridBlock:
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Flatten(),
        gluon.nn.Dense(64, activation="relu"),
        gluon.nn.Dense(10),
    )
    net.hybridize()
    return net


def main() -> None:
    args = arguments()

    # 1. Find the other workers.
    hvd.init()
    mx.random.seed(42)
    print(f"worker {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)

    # 2. Give the state all that must survive. The loader shares out what is left of a pass over the data.
    train_data, (test_images, test_labels) = load_data()
    data = gluon.data.ArrayDataset(*train_data)
    batches = hvd.elastic.DataLoader(data, batch_size=args.batch_size, shuffle=True, seed=42)
    model = make_model()
    model.initialize(mx.init.Xavier())
    model(mx.nd.array(test_images[:1]))  # from now on the parameters have their shapes
    options = {"learning_rate": args.learning_rate * hvd.size(), "momentum": 0.9}
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", options)
    state = hvd.elastic.MXNetState(model, trainer, batches=batches, epoch=0)

    # 3. Set again what depends on the number of workers when they change.
    state.register_reset_callbacks([lambda: trainer.set_learning_rate(args.learning_rate * hvd.size())])

    # 4. Train. Called again after each change, with the state of the last commit.
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    @hvd.elastic.run
    def train(state: hvd.elastic.MXNetState) -> None:
        while state.epoch < args.epochs:
            batches.set_epoch(state.epoch)
            loss = mx.nd.zeros(1)
            for images, labels in batches:
                with autograd.record():
                    loss = cross_entropy(model(images), labels)
                loss.backward()
                trainer.step(len(images))
                state.commit()
            average_loss = hvd.allreduce(loss.mean(), name="loss").asscalar()
            state.epoch += 1
            state.commit()
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} by {hvd.size()} workers: loss {average_loss:.3f}", flush=True)

    train(state)

    # 5. All workers have the same model; one tests it.
    if hvd.rank() == 0:
        hits = model(mx.nd.array(test_images)).argmax(axis=1).asnumpy() == test_labels
        print(f"test accuracy {hits.mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
