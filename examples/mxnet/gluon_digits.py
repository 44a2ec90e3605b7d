"""Train a small Gluon network on handwritten digits: alone, or on many workers.

    python examples/mxnet/gluon_digits.py
    farandole run -np 2 python examples/mxnet/gluon_digits.py

Needs farandole-mxnet, scikit-learn (whose digits need no download) and tqdm:
pip install scikit-learn tqdm 'numpy<1.24'
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
from tqdm import tqdm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small Gluon network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits.params", help="where rank 0 saves the trained model")
    return parser.parse_args()


def load_share(rank: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Every size-th of 1797 images of 8 x 8 pixels, a fifth of them for the test; as many on every rank."""
    digits = load_digits()
    images = digits.images[:, np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = (part[rank : len(part) - len(part) % size : size] for part in (order[:360], order[360:]))
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model() -> gluon.HybridBlock:
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 3, padding=1, activation="relu"),
        gluon.nn.Conv2D(32, 3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Flatten(),
        gluon.nn.Dropout(0.25),
        gluon.nn.Dense(64, activation="relu"),
        gluon.nn.Dense(10),
    )
    net.hybridize()
    return net


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    mx.random.seed(42)
    np.random.seed(42)  # MXNet's iterators shuffle with it
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())

    # 2. Give each worker its share of the data.
    train, test = load_share(hvd.rank(), hvd.size())
    batches = mx.io.NDArrayIter(*train, batch_size=args.batch_size, shuffle=True)
    steps_per_epoch = -(-len(train[0]) // args.batch_size)

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = make_model()
    model.initialize(mx.init.Xavier(), ctx=context)
    rate = args.learning_rate * hvd.size()
    schedule = mx.lr_scheduler.CosineScheduler(args.epochs * steps_per_epoch, base_lr=rate)
    optimizer = mx.optimizer.SGD(learning_rate=rate, momentum=0.9, lr_scheduler=schedule)
    optimizer = hvd.DistributedOptimizer(optimizer)
    trainer = gluon.Trainer(model.collect_params(), optimizer, kvstore=None)

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_parameters(model.collect_params(), root_rank=0)

    # 5. Train, and show progress once.
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    steps = tqdm(total=args.epochs * steps_per_epoch, unit="step", disable=hvd.rank() != 0)
    for epoch in range(args.epochs):
        batches.reset()
        for batch in batches:
            images = batch.data[0].as_in_context(context)
            labels = batch.label[0].as_in_context(context)
            with autograd.record():
                loss = cross_entropy(model(images), labels)
            loss.backward()
            trainer.step(args.batch_size)
            steps.update()
        average_loss = hvd.allreduce(loss.mean(), name="loss")
        steps.set_postfix(epoch=epoch + 1, loss=f"{average_loss.asscalar():.3f}")
    steps.close()

    # 6. Test every worker's share, average, save once.
    accuracy = hvd.allreduce(test_accuracy(model, test, context), name="accuracy")
    if hvd.rank() == 0:
        model.save_parameters(args.checkpoint)
        print(f"test accuracy {accuracy.asscalar():.3f}", flush=True)


def test_accuracy(model: gluon.HybridBlock, data: tuple[np.ndarray, np.ndarray], context: mx.Context) -> mx.nd.NDArray:
    images, labels = (mx.nd.array(each, ctx=context) for each in data)
    return (model(images).argmax(axis=1) == labels).mean()


if __name__ == "__main__":
    main()
