"""Published programs for PyTorch, unmodified, on two ranks."""

from pathlib import Path

import pytest
from published import STAND_INS, horovods_tests, installed, on_two_ranks

pytestmark = pytest.mark.timeout(900)

# Of Horovod 0.19.5's own tests -> why it cannot pass.
NOT_RUN = {
    "broadcast_state": "calls inspect.getargspec, which Python 3.11 lacks",
    "force_allreduce": "likewise",
    "dynamic_requires_grad": "reads gradients after zero_grad, which are None since PyTorch 2.0",
    "allgather_grad": "wants summed gradients; those of 0.28.1 and ours are averages",
    "broadcast_grad": "likewise",
    "join_allreduce": "expects that PyTorch divides integers without a remainder, as it once did",
    "join_broadcast": "wants an error where ours works",
    "join_allgather": "likewise",
    "synchronize_step_warning": "wants a warning that has no reason here: a step reduces unreduced gradients only",
    "duplicate_name_error": "wants a name to be in use for a millisecond; here a small sum is complete before",
}
LIGHTNING = """
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.demos.boring_classes import BoringModel

seed_everything(1)
model = BoringModel()
few = {"max_epochs": 2, "limit_train_batches": 8, "limit_val_batches": 2}
off = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = Trainer(strategy="horovod", accelerator="cpu", devices=1, **few, **off)
trainer.fit(model)
print("sum of weights", model.layer.weight.sum().item(), "of", trainer.world_size, flush=True)
"""
PYRO = """
import horovod.torch as hvd
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam, HorovodOptimizer

hvd.init()
pyro.set_rng_seed(20)
data = torch.randn(200) + 3


def model(batch, size):
    location = pyro.sample("location", dist.Normal(0.0, 10.0))
    with pyro.plate("data", size, subsample=batch):
        pyro.sample("x", dist.Normal(location, 1.0), obs=batch)


guide = AutoNormal(model)
guide(data[:5], 200)
hvd.broadcast_parameters(guide.state_dict(), root_rank=0)
inference = SVI(model, guide, HorovodOptimizer(Adam({"lr": 0.1})), Trace_ELBO())
for step in range(60):
    inference.step(data[hvd.rank() :: hvd.size()], 200)
print("median", guide.median()["location"].item(), "of", hvd.size(), flush=True)
"""
IGNITE = """
import ignite.distributed as idist
import torch
from ignite.engine import Engine
from ignite.metrics import Accuracy


def training(local_rank):
    torch.manual_seed(idist.get_rank())
    model = idist.auto_model(torch.nn.Linear(10, 2))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(64, 10)
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())

    def step(engine, batch):
        optimizer.zero_grad()
        predicted = model(batch[0])
        torch.nn.functional.cross_entropy(predicted, batch[1]).backward()
        optimizer.step()
        return predicted, batch[1]

    trainer = Engine(step)
    Accuracy().attach(trainer, "accuracy")
    trainer.run(idist.auto_dataloader(data, batch_size=16), max_epochs=5)
    print(idist.backend(), trainer.state.metrics["accuracy"], "of", idist.get_world_size(), flush=True)


with idist.Parallel(backend="horovod") as parallel:
    parallel.run(training)
"""


def equal_lines(output: str, word: str) -> list[str]:
    """The texts of the ranks' lines with this word, without their [rank]: one text where the ranks agree."""
    return sorted({line.partition(" ")[2] for line in output.splitlines() if word in line})


def run(text: str, folder: Path, *packages: str) -> str:
    (folder / "program.py").write_text(text)
    return on_two_ranks("program.py", folder=folder, paths=(installed(*packages),))


def test_horovods_own_tests() -> None:
    chosen = " and ".join(f"not {name}" for name in NOT_RUN)
    output = on_two_ranks(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_torch.py", "-k", chosen),
        folder=horovods_tests(),
        paths=(STAND_INS,),
    )
    assert output.count("27 passed") == 2


def test_pytorch_lightning(tmp_path: Path) -> None:
    packages = ["pytorch-lightning==1.8.6", "lightning-utilities==0.15.3", "torchmetrics==0.11.4", "setuptools==69.5.1"]
    output = run(LIGHTNING, tmp_path, *packages, "tensorboardX==2.6.5", "protobuf==4.25.3")
    (line,) = equal_lines(output, "sum of weights")
    assert line.endswith("of 2")


def test_pyro(tmp_path: Path) -> None:
    packages = ["pyro-ppl==1.9.1", "pyro-api==0.1.2", "opt-einsum==3.4.0", "tqdm"]
    (line,) = equal_lines(run(PYRO, tmp_path, *packages), "median")
    assert line.endswith("of 2") and 2.0 < float(line.split()[1]) < 4.0


def test_ignite_as_a_library(tmp_path: Path) -> None:
    (line,) = equal_lines(run(IGNITE, tmp_path, "pytorch-ignite==0.5.5"), "horovod 0.")
    assert line.endswith("of 2") and float(line.split()[1]) > 0.6
