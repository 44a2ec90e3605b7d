"""Train a small network on handwritten digits in tasks of Spark.

    spark-submit --master 'local[2]' examples/spark/digits.py
    spark-submit examples/spark/digits.py --ranks 8    # on a cluster

Needs farandole-spark with PySpark, farandole-torch and scikit-learn (whose digits need no download) on all nodes.
"""

from __future__ import annotations

import argparse

from farandole_spark import HorovodRunner, log_to_driver
from pyspark.sql import SparkSession


def train(epochs: int, batch_size: int, learning_rate: float) -> float:
    """Runs on every rank. Returns the accuracy on images that were not trained on."""
    import farandole_torch as hvd
    import torch
    from sklearn.datasets import load_digits

    # 1. Find the other ranks.
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)

    # 2. Read the data here, not on the driver; take this rank's share.
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16.0, torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(7))
    test, training = order[:360], order[360:]
    usable = len(training) - len(training) % (hvd.size() * batch_size)  # as many steps on each rank

    # 3. Average gradients over the ranks, and start everywhere from rank 0's values.
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    # 4. Train, and tell the driver how it gets on.
    for epoch in range(epochs):
        for batch in training[hvd.rank() : usable : hvd.size()].split(batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        average_loss = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0 and epoch % 5 == 4:
            log_to_driver(f"epoch {epoch + 1}: loss {average_loss.item():.3f}")
    with torch.no_grad():
        return (model(images[test]).argmax(1) == labels[test]).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits in tasks of Spark.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank")
    parser.add_argument("--learning-rate", type=float, default=0.02, help="for one rank")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("digits").getOrCreate()
    runner = HorovodRunner(np=args.ranks)
    accuracy = runner.run(train, epochs=args.epochs, batch_size=args.batch_size, learning_rate=args.learning_rate)
    print(f"test accuracy {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
