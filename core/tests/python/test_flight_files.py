"""The files of the flight recorder: which are removed, and when."""

import os
import struct
import subprocess
import sys
import time

import pytest
from farandole._start import flight_files

KEY = bytes(range(32))
HOUR_NS = 3600 * 10**9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "flights"
    monkeypatch.setenv("FARANDOLE_FLIGHT_RECORDER", str(path))
    return path


@pytest.fixture(scope="module")
def dead():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    return child.pid


def write(path, pid, late_ns=0, run="abc", epoch=0, state=1):
    """As FlightHeader of the core has it."""
    start = started(pid) if pid == os.getpid() else 0
    header = struct.pack("<8s3I3i2I5Qq", b"FRDFLT02", 1, 1, 1, pid, 0, 2, state, epoch, start, 0, 0, 0, 0, 0)
    header = header[:80] + struct.pack("<q2QiI16s", late_ns, 0, 0, -1, 0, run.encode())
    path.write_bytes(header.ljust(4096, b"\0"))


def started(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_the_users_alone(folder):
    file = flight_files.prepare(2, KEY, 0)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.path == f"{folder}/{file.run}.{os.getpid()}.flight" and len(file.run) == 12
    assert flight_files.prepare(2, KEY, 1).path == file.path, "a process has one file"
    assert flight_files.prepare(1, KEY, 0).path == ""


def test_a_folder_that_others_can_read_is_refused(folder, capfd):
    folder.mkdir()
    folder.chmod(0o755)
    assert flight_files.prepare(2, KEY, 0).path == ""
    assert "operations are not recorded for farandole inspect" in capfd.readouterr().err


def test_nothing_is_recorded_where_that_is_switched_off(monkeypatch):
    monkeypatch.setenv("FARANDOLE_FLIGHT_RECORDER", "0")
    assert flight_files.prepare(2, KEY, 0).path == ""


def test_of_dead_processes_the_latest_64_files_stay_for_an_hour(folder, dead):
    folder.mkdir(mode=0o700)
    now_ns = time.monotonic_ns()
    for number in range(70):
        write(folder / f"{number}.flight", dead, now_ns - number * 1000)
    write(folder / "running.flight", os.getpid(), now_ns - 2 * HOUR_NS)
    write(folder / "of_before.flight", dead, now_ns + HOUR_NS)
    (folder / "other.flight").write_bytes(b"not a recorder's")
    flight_files.prepare(2, KEY, 0)
    assert names(folder) == sorted([*(f"{n}.flight" for n in range(64)), "other.flight", "running.flight"])
    write(folder / "0.flight", dead, now_ns - 2 * HOUR_NS)
    flight_files.prepare(2, KEY, 0)
    assert "0.flight" not in names(folder)


def test_the_last_rank_that_leaves_removes_the_files_of_all(folder, dead):
    file = flight_files.prepare(2, KEY, 2)
    write(folder / "other.flight", dead, run="xyz")
    write(folder / "former.flight", dead, run=file.run, epoch=7)  # of a job that had the same key
    write(folder / "lost.flight", dead, run=file.run, epoch=1)
    write(folder / "mine.flight", os.getpid(), run=file.run, epoch=2, state=2)
    write(folder / "peer.flight", os.getpid(), run=file.run, epoch=2)
    flight_files.remove_if_all_have_left(file)
    assert len(names(folder)) == 5, "one is still in the epoch"
    write(folder / "peer.flight", os.getpid(), run=file.run, epoch=2, state=2)
    write(folder / "newcomer.flight", os.getpid(), run=file.run, epoch=3)
    flight_files.remove_if_all_have_left(file)
    assert len(names(folder)) == 6, "the job goes on"
    (folder / "newcomer.flight").unlink()
    flight_files.remove_if_all_have_left(file)
    assert names(folder) == ["former.flight", "other.flight"]


def test_a_job_that_has_shrunk_to_one_rank_keeps_no_files(folder, dead):
    file = flight_files.prepare(2, KEY, 0)
    write(folder / "lost.flight", dead, run=file.run, epoch=0)
    flight_files.prepare(1, KEY, 1)
    assert names(folder) == []


@pytest.mark.parametrize("begun", [b"", bytes(4096)])
@pytest.mark.parametrize("size", [1, 2])
def test_a_file_whose_rank_was_killed_while_it_made_it_is_removed(folder, dead, size, begun):
    file = flight_files.prepare(2, KEY, 0)
    write(folder / "mine.flight", os.getpid(), run=file.run, epoch=1, state=2)
    for pid in (dead, os.getpid()):
        (folder / f"{file.run}.{pid}.flight").write_bytes(begun)
    if size == 1:
        flight_files.prepare(1, KEY, 2)
    else:
        flight_files.remove_if_all_have_left(flight_files.FlightFile(file.path, file.run, 1))
    assert names(folder) == [f"{file.run}.{os.getpid()}.flight"], "a rank that lives may still be making its file"
