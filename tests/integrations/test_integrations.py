"""Scripts of other libraries on two ranks, each beside one process whose batch has all rows.

The libraries are the real ones, in the versions of `.ci/dev/pins.py`; models are small and random, nothing is fetched.
"""

import json
import sys
from pathlib import Path

import docstring_examples
import farandole
import pytest
import torch
from running import launched, run

pytest.importorskip("lightning", reason="`python3 noxfile.py -s python -- tests/integrations` installs it")
import farandole_torch.lightning

pytestmark = pytest.mark.timeout(300)
HERE = Path(__file__).parent
CHECKPOINTS = [f"epoch={epoch}.ckpt" for epoch in range(4)]


def results(folder, ranks, script, *arguments):
    """Each rank's."""
    folder.mkdir()
    start = launched(ranks) if ranks > 1 else [sys.executable]
    run([*start, HERE / script, folder, *arguments], folder, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def alike(some, expected):
    return all(abs(one - other) <= 1e-12 for one, other in zip(some, expected, strict=True))


@pytest.mark.parametrize("batches", ["1", "2"])
def test_lightnings_trainer_steps_as_one_process_does(tmp_path, batches):
    (alone,) = results(tmp_path / "alone", 1, "lightning_trainer.py", "auto", "1")
    both = results(tmp_path / "both", 2, "lightning_trainer.py", "farandole", batches)
    for each in both:
        assert alike(each["weights"], alone["weights"])
        assert (each["size"], each["backend"], each["rows of the first epoch"]) == (2, "farandole", 32)
        assert each["mean rank"] == 0.5 and alike([each["loss"], each["again"]], [alone["loss"], alone["again"]])
        assert each["files"] == alone["files"] == CHECKPOINTS


def test_fabric_steps_as_one_process_does(tmp_path):
    (alone,) = results(tmp_path / "alone", 1, "fabric_loop.py", "auto", "1")
    for each in results(tmp_path / "both", 2, "fabric_loop.py", "farandole", "2"):
        assert alike(each.pop("weights"), alone["weights"])
        assert each == {
            "size": 2,
            "mean rank": 0.5,
            "ranks": [0, 1],
            "root's": 0,
            "loaded": True,
            "backend": "farandole",
        }


def test_the_strategy_in_a_world_of_one(tmp_path):
    (plain,) = results(tmp_path / "plain", 1, "lightning_trainer.py", "auto", "2")
    (alone,) = results(tmp_path / "alone", 1, "lightning_trainer.py", "farandole", "2")
    assert (alone["size"], alone["backend"]) == (1, "farandole") and alike(alone["weights"], plain["weights"])


@pytest.mark.parametrize("batches", ["1", "2"])
def test_accelerate_steps_as_one_process_does(tmp_path, batches):
    (alone,) = results(tmp_path / "alone", 1, "accelerate_loop.py", "", "1")
    for each in results(tmp_path / "both", 2, "accelerate_loop.py", "farandole", batches):
        assert alike(each.pop("weights"), alone["weights"])
        assert each == {"size": 2, "type": "MULTI_CPU", "ranks": [0, 1], "mean rank": 0.5, "backend": "farandole"}
    assert (tmp_path / "both" / "state" / "model.safetensors").stat().st_size > 0


@pytest.mark.parametrize("batches", ["1", "2"])
def test_hugging_faces_trainer_steps_as_one_process_does(tmp_path, batches):
    (alone,) = results(tmp_path / "alone", 1, "hf_trainer.py", "", "1")
    for each in results(tmp_path / "both", 2, "hf_trainer.py", "farandole", batches):
        assert alike([*each["weights"], each["loss"]], [*alone["weights"], alone["loss"]])
        assert each["moved by"] > 1e-2
        assert (each["size"], each["mode"], each["backend"]) == (2, "distributed", "farandole")
        assert (each["steps"], each["accuracy"], each["files"]) == (alone["steps"], alone["accuracy"], alone["files"])


def test_transformers_shares_layers_among_ranks(tmp_path):
    (alone,) = results(tmp_path / "alone", 1, "transformers_tp.py", tmp_path / "model")
    for each in results(tmp_path / "both", 2, "transformers_tp.py", tmp_path / "model"):
        assert alike(each["logits"], alone["logits"]) and each["words"] == alone["words"]
        assert (each["backend"], each["own rows"], alone["own rows"]) == ("farandole", 64, 128)


def test_every_public_name_for_lightning_has_an_example_that_holds_on_two_ranks():
    assert docstring_examples.lacking(farandole_torch.lightning) == []
    assert docstring_examples.run_on_two_ranks("farandole_torch.lightning", {}) == ["", ""]


def test_another_backend_and_too_few_gpus_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="the strategy farandole has the backend 'farandole' and no other"):
        farandole_torch.lightning.FarandoleStrategy(process_group_backend="gloo")
    strategy = farandole_torch.lightning.FarandoleStrategy()
    strategy.parallel_devices = [torch.device("cuda", 0), torch.device("cuda", 1)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert strategy.root_device == torch.device("cuda", 0)
    monkeypatch.setattr(farandole, "local_rank", lambda: 2)
    with pytest.raises(ValueError, match="is number 2 on its host, and devices= names 2 GPUs: leave"):
        assert strategy.root_device
