"""Train a small convolutional network on handwritten digits: alone, or on many workers.

    python examples/torch/digits.py
    farandole run -np 2 python examples/torch/digits.py

Needs farandole-torch, scikit-learn (whose digits need no download) and tqdm.
"""

from __future__ import annotations

import argparse

import farandole_torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="for one worker")
    parser.add_argument("--checkpoint", default="checkpoint-digits.pt", help="where rank 0 saves the trained model")
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
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)  # the network is too small for more
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")

    # 2. Give each worker its share of the data.
    train_data, test_data = load_data()
    sampler = DistributedSampler(train_data, num_replicas=hvd.size(), rank=hvd.rank(), seed=42)
    batches = DataLoader(train_data, batch_size=args.batch_size, sampler=sampler)
    test_sampler = DistributedSampler(test_data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(batches))

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    # 5. Train, and show progress once.
    steps = tqdm(total=args.epochs * len(batches), unit="step", disable=hvd.rank() != 0)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            scheduler.step()
            steps.update()
        average_loss = hvd.allreduce(loss.detach(), name="loss")
        steps.set_postfix(epoch=epoch + 1, loss=f"{average_loss.item():.3f}")
    steps.close()

    # 6. Test every worker's share, average, save once.
    accuracy = hvd.allreduce(test_accuracy(model, test_data, test_sampler, device), name="accuracy")
    if hvd.rank() == 0:
        torch.save(model.state_dict(), args.checkpoint)
        print(f"test accuracy {accuracy.item():.3f}", flush=True)


@torch.no_grad()
def test_accuracy(
    model: nn.Module, data: TensorDataset, sampler: DistributedSampler[TensorDataset], device: torch.device
) -> torch.Tensor:
    model.eval()
    images, labels = data[list(sampler)]
    return (model(images.to(device)).argmax(1) == labels.to(device)).double().mean()


if __name__ == "__main__":
    main()
