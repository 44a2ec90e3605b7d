"""Train a small Module on handwritten digits: alone, or on many workers.

    python examples/mxnet/module_digits.py
    farandole run -np 2 python examples/mxnet/module_digits.py

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
from sklearn.datasets import load_digits
from tqdm import tqdm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small Module on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits", help="begin of the files in which rank 0 saves")
    return parser.parse_args()


def load_share(rank: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Every size-th of 1797 images of 8 x 8 pixels, a fifth of them for the test; as many on every rank."""
    digits = load_digits()
    images = digits.images[:, np.newaxis].astype(np.float32) / 16.0
    order = np.random.RandomState(7).permutation(len(images))
    test, train = (part[rank : len(part) - len(part) % size : size] for part in (order[:360], order[360:]))
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def make_model() -> mx.sym.Symbol:
    net = mx.sym.Variable("data")
    net = mx.sym.Convolution(net, num_filter=16, kernel=(3, 3), pad=(1, 1))
    net = mx.sym.Activation(mx.sym.BatchNorm(net), act_type="relu")  # its running averages are auxiliary parameters
    net = mx.sym.Activation(mx.sym.Convolution(net, num_filter=32, kernel=(3, 3), pad=(1, 1)), act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.Dropout(mx.sym.Flatten(net), p=0.25)
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=64), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10), name="softmax")


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    mx.random.seed(42)
    np.random.seed(42)  # MXNet's iterators shuffle with it
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())

    # 2. Give each worker its share of the data.
    train, test = load_share(hvd.rank(), hvd.size())
    batches = mx.io.NDArrayIter(*train, batch_size=args.batch_size, shuffle=True, label_name="softmax_label")
    steps_per_epoch = -(-len(train[0]) // args.batch_size)

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = mx.mod.Module(make_model(), context=context)
    rate = args.learning_rate * hvd.size()
    schedule = mx.lr_scheduler.CosineScheduler(args.epochs * steps_per_epoch, base_lr=rate)
    optimizer = mx.optimizer.SGD(
        learning_rate=rate, momentum=0.9, lr_scheduler=schedule, rescale_grad=1.0 / args.batch_size
    )
    optimizer = hvd.DistributedOptimizer(optimizer)

    # 4. Start everywhere from rank 0's values.
    model.bind(data_shapes=batches.provide_data, label_shapes=batches.provide_label)
    model.init_params(mx.init.Xavier())
    arg_params, aux_params = model.get_params()
    hvd.broadcast_parameters(arg_params, root_rank=0)
    hvd.broadcast_parameters(aux_params, root_rank=0)
    model.set_params(arg_params, aux_params)

    # 5. Train, and show progress once.
    steps = tqdm(total=args.epochs * steps_per_epoch, unit="step", disable=hvd.rank() != 0)

    def show(progress: mx.model.BatchEndParam) -> None:
        steps.update()
        if progress.nbatch == 0:
            steps.set_postfix(epoch=progress.epoch + 1, loss=f"{progress.eval_metric.get()[1]:.3f}")

    model.fit(
        batches,
        optimizer=optimizer,
        kvstore=None,
        eval_metric="ce",
        num_epoch=args.epochs,
        batch_end_callback=show,
    )
    steps.close()

    # 6. Test every worker's share, average, save once.
    accuracy = hvd.allreduce(test_accuracy(model, test, args.batch_size), name="accuracy")
    if hvd.rank() == 0:
        model.save_checkpoint(args.checkpoint, args.epochs)
        print(f"test accuracy {accuracy.asscalar():.3f}", flush=True)


def test_accuracy(model: mx.mod.Module, data: tuple[np.ndarray, np.ndarray], batch_size: int) -> mx.nd.NDArray:
    images, labels = data
    guesses = model.predict(mx.io.NDArrayIter(images, batch_size=batch_size)).argmax(axis=1)
    return (guesses == mx.nd.array(labels, ctx=guesses.context)).mean()


if __name__ == "__main__":
    main()
