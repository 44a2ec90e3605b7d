"""Train a small network on handwritten digits while workers come to an end: the others go on within a step.

    farandole run -np 4 --min-np 2 python examples/torch/elastic_digits.py

Kill a worker meanwhile (kill -9 its pid, which each prints), or ask it to leave (kill its pid). Needs farandole-torch
and scikit-learn (whose digits need no download).
"""

from __future__ import annotations

import argparse
import os

import farandole_torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network, whatever becomes of single workers.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="for one worker")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 images of 8 x 8 pixels, a fifth of them for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(7))
    test, train = order[:360], order[360:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main() -> None:
    args = arguments()

    # 1. Find the other workers.
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)  # the network is too small for more
    print(f"worker {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)

    # 2. Give the state all that must survive. The loader shares out what is left of a pass over the data.
    train_data, (test_images, test_labels) = load_data()[0], load_data()[1].tensors
    batches = hvd.elastic.DataLoader(train_data, batch_size=args.batch_size, shuffle=True, seed=42)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, batches=batches, epoch=0)

    # 3. Set again what depends on the number of workers when they change.
    def on_change() -> None:
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * hvd.size()

    state.register_reset_callbacks([on_change])

    # 4. Train. Called again after each change, with the state of the last commit.
    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch < args.epochs:
            batches.set_epoch(state.epoch)
            loss = torch.zeros(())
            for images, labels in batches:
                optimizer.zero_grad()
                loss = cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                state.commit()
            average_loss = hvd.allreduce(loss.detach(), name="loss")
            state.epoch += 1
            state.commit()
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} by {hvd.size()} workers: loss {average_loss.item():.3f}", flush=True)

    train(state)

    # 5. All workers have the same model; one tests it.
    if hvd.rank() == 0:
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).double().mean()
        print(f"test accuracy {accuracy.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
