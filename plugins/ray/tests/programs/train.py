"""Ray Train: reports, checkpoints, shards of data, and a worker that dies."""

import tempfile
from pathlib import Path

import ray.data
from cluster import nodes
from farandole_ray import FarandoleConfig
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train(config):
    import os

    import farandole_torch as hvd
    import ray.train
    import torch

    hvd.init()
    context, start = ray.train.get_context(), 0
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    assert (hvd.local_rank(), hvd.local_size()) == (context.get_local_rank(), context.get_local_world_size())
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            found = torch.load(Path(folder, "state.pt"))
            start = found["epoch"] + 1
            model.load_state_dict(found["model"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    rows = 0
    for epoch in range(start, 3):
        for batch in ray.train.get_dataset_shard("train").iter_torch_batches(batch_size=4):
            rows += len(batch["id"])
            optimizer.zero_grad()
            (model(batch["id"].float().unsqueeze(1) / 32) ** 2).mean().backward()
            optimizer.step()
        dies = config["mark"] and epoch == 1 and hvd.rank() == 1 and not Path(config["mark"]).exists()
        if dies:
            Path(config["mark"]).touch()
            os._exit(1)
        both = hvd.allgather(model.weight.detach())
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"epoch": epoch, "model": model.state_dict()}, Path(folder, "state.pt"))
            kept = Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
            ray.train.report({"epoch": epoch, "alike": torch.equal(*both), "rows": rows}, checkpoint=kept)


def fit(kind, mark, name, options):
    with tempfile.TemporaryDirectory() as folder:
        return kind(
            train,
            train_loop_config={"mark": mark},
            scaling_config=ScalingConfig(num_workers=2),
            datasets={"train": ray.data.range(32)},
            run_config=RunConfig(name=name, storage_path=folder, failure_config=FailureConfig(max_failures=2)),
            **options,
        ).fit()


with nodes(2, cpus=2):
    result = fit(DataParallelTrainer, "", "calm", {"backend_config": FarandoleConfig()})
    assert result.metrics == {"epoch": 2, "alike": True, "rows": 48}, result.metrics
    assert result.checkpoint is not None
    result = fit(TorchTrainer, str(Path("dead").absolute()), "dies", {"torch_config": FarandoleConfig(timeout_s=60)})
    assert Path("dead").exists() and result.metrics["epoch"] == 2 and result.metrics["alike"], result.metrics
