"""Every example for MXNet runs, and learns; one of them under `mpirun`.

FARANDOLE_LONG=1: all under both, and alone.
"""

import re
import signal
import struct
import sys
import zlib
from pathlib import Path

import pytest
from farandole import testing
from farandole.testing import spawn
from running import (
    EPOCHS,
    EXAMPLES,
    LIMIT_S,
    LONG,
    accuracy,
    fitted_line,
    forked,
    launched,
    outlived,
    run,
    scripts,
    written,
)

pytestmark = pytest.mark.timeout(300)

MXNET = EXAMPLES / "mxnet"
TUTORIAL = Path(__file__).with_name("gluon_tutorial.py")
RESNET = [MXNET / "resnet_imagenet.py", "--image-size", "32", "--batch-size", "2", "--steps", "2"]
OF_MPIRUN = 3 if LONG else 2  # ranks, each of which imports MXNet
MPIRUN = f"mpirun -np {OF_MPIRUN} -H localhost:{OF_MPIRUN} --bind-to none --map-by slot python".split()
LAUNCHERS = {"forked": (2, None), "farandole": (2, launched(2)), "mpirun": (OF_MPIRUN, MPIRUN)}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container


testing.preload("mxnet", "sklearn.datasets")


@pytest.fixture(params=["farandole", "mpirun"] if LONG else ["forked"])
def start(request, tmp_path):
    """A function that runs a script on several workers; how many they are."""
    ranks, launcher = LAUNCHERS[request.param]

    def on_workers(*command):
        if launcher is None:
            return forked(ranks, tmp_path, *command)
        return run([*launcher, *command], tmp_path, **AS_ROOT)

    on_workers.ranks = ranks
    return on_workers


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("gluon", ["checkpoint-digits.params"]),
        ("module", [f"checkpoint-digits-{EPOCHS:04}.params", "checkpoint-digits-symbol.json"]),
    ],
)
class TestDigits:
    if LONG:

        def test_alone(self, tmp_path, name, saved):
            assert accuracy(run([sys.executable, MXNET / f"{name}_digits.py"], tmp_path)) >= 0.96
            assert sorted(path.name for path in tmp_path.iterdir()) == saved

    def test_on_several_workers(self, start, tmp_path, name, saved):
        assert accuracy(start(MXNET / f"{name}_digits.py", "--epochs", str(EPOCHS))) >= 0.96
        assert sorted(path.name for path in tmp_path.iterdir()) == saved


@pytest.mark.parametrize("start", ["mpirun", *(["farandole"] if LONG else [])], indirect=True)
def test_the_tutorials_loop_runs_as_written(start):
    assert start(TUTORIAL)[-1].removeprefix("[0] ") == f"0.500 1.000 -2.000 3.000 the same on {start.ranks}"


def check_speeds(lines, ranks):
    found = [re.search(r"epoch 1: loss [\d.]+, ([\d.]+) images/s on (\d) workers$", line) for line in lines]
    speeds = [(float(match[1]), int(match[2])) for match in found if match]
    assert [(speed > 0, number) for speed, number in speeds] == [(True, ranks)], lines


if LONG:

    def test_resnet_says_how_fast_it_is(start):
        check_speeds(start(*RESNET), start.ranks)


def test_resnet_reads_its_part_of_a_file_and_says_how_fast_it_is(tmp_path):
    write_records(tmp_path / "train.rec", images=40)
    command = [*RESNET, "--records", tmp_path / "train.rec", "--checkpoint", tmp_path / "model.params"]
    check_speeds(forked(2, tmp_path, *command), 2)
    assert (tmp_path / "model.params").stat().st_size > 25_000_000 * 4


def test_resnet_refuses_float16_without_a_gpu():
    ((code, output),) = spawn(1, *RESNET, "--dtype", "float16", timeout=LIMIT_S, check=False)
    assert code == 2, output
    assert output.splitlines() == [
        "resnet_imagenet.py: MXNet computes float16 on GPUs only, and there is none: leave --dtype out"
    ]


if LONG:

    def test_the_script_of_the_page_for_users_of_a_kvstore_takes_the_steps_of_one_process(tmp_path):
        _, ours = scripts("docs/guide/coming-from-mxnet-kvstore.md")
        lines = run([*launched(2), written(ours, tmp_path)], tmp_path)
        assert lines[-1] == f"[0] weight {fitted_line(half_of_square=True)[0]:.4f}"


def write_records(path, images):
    import mxnet as mx

    records = mx.recordio.MXRecordIO(str(path), "w")
    for i in range(images):
        records.write(mx.recordio.pack(mx.recordio.IRHeader(0, i % 10, i, 0), png(80, colour=i)))
    records.close()


def png(side, colour):
    """A square of one colour."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes([colour, 2 * colour, 255 - colour]) * side) * side
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_digits_outlive_a_worker(tmp_path):
    assert outlived(MXNET / "elastic_digits.py", tmp_path, 1, signal.SIGKILL, "--epochs", "8") >= 0.9
