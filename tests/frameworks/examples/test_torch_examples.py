"""Every example runs, and learns, on several workers; FARANDOLE_LONG=1: on other numbers of them, too."""

import json
import re
import signal
import sys

import pytest
from farandole import testing
from running import EPOCHS, EXAMPLES, LONG, accuracy, forked, launched, outlived, run, scripts, written

pytestmark = pytest.mark.timeout(300)

testing.preload("torch", "torch._dynamo", "sklearn.datasets")

DIGITS = EXAMPLES / "torch" / "digits.py"
LINE = EXAMPLES / "numpy" / "line.py"


def test_digits_on_several_workers(tmp_path):
    lines = forked(2, tmp_path, DIGITS, "--checkpoint", tmp_path / "model.pt", "--epochs", str(EPOCHS))
    assert accuracy(lines) >= 0.96
    assert (tmp_path / "model.pt").stat().st_size > 1000


if LONG:

    def test_digits_alone(tmp_path):
        assert accuracy(run([sys.executable, DIGITS], tmp_path)) >= 0.97
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-digits.pt"]

    @pytest.mark.parametrize("ranks", [2, 4])
    def test_digits_by_the_launcher(tmp_path, ranks):
        assert accuracy(run([*launched(ranks), DIGITS], tmp_path)) >= 0.97


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_line_is_the_same_on_any_number_of_workers(tmp_path, ranks):
    launcher = [sys.executable, "-m", "farandole.launch", "run", "--no-prefix", "-np", str(ranks)]
    words = run([*launcher, sys.executable, LINE], tmp_path)[0].split()
    assert words == ["slope", "3.010", "height", "-2.008"]  # least squares of the 1000 points


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


KILLED, TOLD_TO_LEAVE = (0, signal.SIGKILL), (1, signal.SIGTERM)


@pytest.mark.parametrize(("victim", "signum"), [KILLED, TOLD_TO_LEAVE] if LONG else [KILLED])
def test_digits_outlive_a_worker(tmp_path, victim, signum):
    assert outlived(EXAMPLES / "torch" / "elastic_digits.py", tmp_path, victim, signum, "--epochs", "8") >= 0.9


def test_the_script_of_the_page_on_elastic_training(tmp_path):
    """Rank 1 is killed after the commit of a pass's last batch, when nothing is left of that pass."""
    (script,) = scripts("docs/guide/elastic.md")
    commit = "            state.commit()\n"
    dies = "            if hvd.rank() == 1 and loader.processed_num == 64:\n                os.kill(os.getpid(), 9)\n"
    assert commit in script
    script = "import os\n\n" + script.replace(commit, commit + dies)
    command = [*launched(2)[:-1], "--min-np", "1", sys.executable]
    assert run([*command, written(script, tmp_path)], tmp_path) == ["[0] 1 ranks: slope 3.0, height -2.0"]


def check_ddp(lines):
    assert sum("epoch" in line for line in lines) == 5
    assert accuracy(lines) >= 0.9


def test_ddp(tmp_path):
    check_ddp(forked(2, tmp_path, EXAMPLES / "torch" / "ddp.py"))


if LONG:

    @pytest.mark.parametrize("command", [launched(2), TORCHRUN], ids=["farandole run", "torchrun"])
    def test_ddp_by_its_launchers(tmp_path, command):
        check_ddp(run([*command, EXAMPLES / "torch" / "ddp.py"], tmp_path))


if LONG:

    def test_the_script_of_the_readme(tmp_path):
        (script,) = scripts("README.md")
        lines = run([*launched(2), written(script, tmp_path)], tmp_path)
        rows = [
            re.fullmatch(r"\[(\d)\] loss 0\.4\d\d of rank \1's data; sum of weights (-?\d\.\d{4})", each)
            for each in lines
        ]
        assert len(rows) == 2
        assert all(rows), lines
        assert rows[0][2] == rows[1][2]

    def test_the_scripts_of_the_page_for_users_of_ddp_print_the_same_loss(tmp_path):
        theirs, ours = scripts("docs/guide/coming-from-ddp.md")
        (loss,) = run([*TORCHRUN, written(theirs, tmp_path)], tmp_path)
        assert re.fullmatch(r"loss \d\.\d{4}", loss)
        with_our_backend = theirs.replace('"gloo"', '"farandole"')
        assert run([*launched(2), written(with_our_backend, tmp_path)], tmp_path) == [f"[0] {loss}"]
        assert run([*launched(2), written(ours, tmp_path)], tmp_path) == [f"[0] {loss}"]
        assert run([*TORCHRUN, written(ours, tmp_path)], tmp_path) == [loss]


@pytest.mark.parametrize("ranks", [2, *([1] if LONG else [])])
def test_the_tutorial_for_horovod(tmp_path, ranks):
    lines = forked(ranks, tmp_path, EXAMPLES / "torch" / "tutorial.py")
    assert sum("epoch" in line for line in lines) == 5
    assert accuracy(lines) >= 0.9


def test_uneven_inputs_and_process_sets(tmp_path):
    (line,) = forked(3, tmp_path, EXAMPLES / "torch" / "uneven.py")
    told, _, weights = line.rpartition(" weights ")
    assert told.endswith("rank 2 was last; errors [0.0, 0.0, 0.0];")
    assert [float(weight) for weight in weights.split()] == pytest.approx([2.0, -3.0, 0.5], abs=0.02)


def test_a_transformer_learns_to_write(tmp_path):
    small = ["--steps", "120" if LONG else "60", "--width", "64", "--layers", "2", "--learning-rate", "5e-3"]
    lines = forked(2, tmp_path, EXAMPLES / "torch" / "transformer.py", *small)
    bits = float(lines[-1].split("test: ")[1].split(" bits per byte")[0])
    assert bits < 4.0  # 4.7 where the frequencies of the bytes are all that is known
    assert "The following " in "".join(lines)


def test_two_process_sets_train_apart_and_end_alike(tmp_path):
    (line,) = forked(3, tmp_path, EXAMPLES / "torch" / "process_sets.py")
    told, final = line.split("; all workers have ")
    slow, fast = (float(each.split(": ")[1]) for each in told.split("learning rate ")[1].split(", "))
    assert fast < slow / 2
    assert json.loads(final) == [pytest.approx(fast, abs=1e-4)] * 3


def test_every_example_is_tested():
    assert [path.relative_to(EXAMPLES).as_posix() for path in sorted(EXAMPLES.rglob("*.py"))] == [
        *("mxnet/elastic_digits.py", "mxnet/gluon_digits.py", "mxnet/module_digits.py", "mxnet/resnet_imagenet.py"),
        *("numpy/line.py", "spark/digits.py"),
        *("tensorflow/elastic_digits.py", "tensorflow/graph_digits.py", "tensorflow/keras_digits.py"),
        *("tensorflow/resnet_synthetic.py", "tensorflow/tape_digits.py"),
        *("torch/ddp.py", "torch/digits.py", "torch/elastic_digits.py", "torch/process_sets.py"),
        *("torch/transformer.py", "torch/tutorial.py", "torch/uneven.py"),
    ]
