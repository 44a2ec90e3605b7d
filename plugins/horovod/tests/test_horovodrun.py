"""horovodrun: each option of 0.28.1 is parsed, and becomes one of Farandole's, a setting, or a sentence."""

import os
import sys

import pytest
from farandole.launch import messages
from horovod import _environment, runner
from horovod.runner import _config, launch
from horovod.runner._options import OPTIONS

# The options of 0.28.1, by its --help.
FLAGS = """-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
--cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune --autotune-log-file
--autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise
--min-np --min-num-proc --max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit
--blacklist-cooldown-range --timeline-filename --timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check
--stall-check --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-threads-disable
--no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds
--log-level --log-with-timestamp --log-without-timestamp -prefix-timestamp --prefix-output-with-timestamp
--log-hide-timestamp --no-log-hide-timestamp -H --hosts -hostfile --hostfile --host-discovery-script --gloo --mpi
--jsrun""".split()
SCRIPT = ["python", "train.py", "--verbose", "-np", "7"]


def parsed(*words):
    return vars(launch.parse_args([*words, *SCRIPT]))


def test_each_flag_is_parsed_and_has_one_meaning():
    assert sorted(name for option in OPTIONS for name in option.names.split()) == sorted(FLAGS)
    for option in OPTIONS:
        meanings = [option.passed_as, option.setting, option.ignored, option.handled]
        assert sum(map(bool, meanings)) == 1, option.names
        values = {"": [], "MIN MAX": ["1", "2"], "LEVEL": ["INFO"]}.get(option.metavar, ["1"])
        for name in option.names.split():
            given = parsed(name, *values)
            assert option.key in given and given["command"] == SCRIPT, name


def test_options_become_those_of_farandole():
    given = parsed("-np", "2", "-H", "localhost:2", "--output-filename", "out", "--verbose", "--start-timeout", "9")
    assert launch._args(given) == [
        *("-np", "2", "-H", "localhost:2", "--start-timeout", "9", "--output-dir", "out", "--verbose")
    ]


def test_options_become_settings():
    given = parsed("--fusion-threshold-mb", "0.5", "--no-stall-check", "--log-level", "INFO")
    assert launch._settings(given) == {
        "HOROVOD_FUSION_THRESHOLD": "524288",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "INFO",
    }


def test_options_without_effect_are_named_once_each_reason():
    sentences = launch._without_effect(parsed("--autotune", "--cycle-time-ms", "5", "--cache-capacity", "9"))
    assert len(sentences) == 2
    assert "--cycle-time-ms, --cache-capacity" in sentences[0]
    assert "--autotune" in sentences[1]


@pytest.mark.parametrize("words", [["--gloo", "--mpi"], ["-H", "a:1", "--hostfile", "f"], ["--no-such-option"]])
def test_options_that_cannot_be_together_are_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed("-np", "2", *words)
    assert ended.value.code == 2
    assert "horovodrun: error:" in capsys.readouterr().err


def test_options_of_elastic_jobs_are_passed_on():
    given = parsed(
        *("-np", "4", "--min-num-proc", "2", "--max-num-proc", "4", "--elastic-timeout", "9", "--reset-limit", "3"),
        *("--blacklist-cooldown-range", "5", "60"),
    )
    assert launch._args(given) == [
        *("-np", "4", "--min-np", "2", "--max-np", "4", "--elastic-timeout", "9", "--reset-limit", "3"),
        *("--blacklist-cooldown-range", "5", "60"),
    ]


def test_options_of_the_discovery_of_hosts_are_passed_on():
    given = parsed("-np", "4", "--host-discovery-script", "./discover", "--slots-per-host", "2")
    assert launch._args(given) == [
        *("-np", "4", "--host-discovery-script", "./discover", "--slots-per-host", "2"),
    ]


def test_options_for_other_hosts_are_passed_on():
    given = parsed("-hostfile", "hosts", "-p", "2222", "-i", "key", "--network-interface", "eth0")
    assert launch._args(given) == [
        *("--hostfile", "hosts", "--ssh-port", "2222", "--ssh-identity-file", "key", "--network-interfaces", "eth0")
    ]


def test_a_file_of_options(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "controller: gloo\nparams:\n  fusion_threshold_mb: 32\n  hierarchical_allreduce: false\n"
        "timeline:\n  filename: /tmp/t.json\n  mark_cycles: true\nstall_check:\n  enabled: false\n"
        "logging:\n  level: INFO\n"
    )
    assert _config.options(str(file)) == {
        "gloo": True,
        "fusion_threshold_mb": "32",
        "timeline_filename": "/tmp/t.json",
        "timeline_mark_cycles": True,
        "no_stall_check": True,
        "log_level": "INFO",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [("params:\n  fusion: 1\n", "params.fusion, which is no key"), ("- 1\n", "must have keys"), ("a: [", "is no YAML")],
)
def test_a_wrong_file_of_options_is_told(tmp_path, text, said):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(_config.FileError, match=said):
        _config.options(str(file))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fusion-threshold-mb", "-1"], "--fusion-threshold-mb: must be a number of MB from 0 to 1e+12, not '-1'"),
        (["--cycle-time-ms", "abc"], "--cycle-time-ms: must be a number of milliseconds from 0 to 1e+09, not 'abc'"),
        (["--cache-capacity", "1.5"], "--cache-capacity: must be a whole number from 0"),
        (["--stall-check-warning-time-seconds", "nan"], "must be a number of seconds from 0"),
        (["--min-num-proc", "0"], "--min-num-proc: must be a whole number from 1"),
        (["--log-level", "loud"], "--log-level: must be one of TRACE, DEBUG"),
        (["-p", "99999"], "must be a whole number from 1 to 65535, not '99999'"),
        (["--autotune-gaussian-process-noise", "2"], "must be a number from 0 to 1, not '2'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_under_the_name_that_was_typed(words, said, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        parsed("-np", "2", *words)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and "horovodrun: error: argument" in err and said in err


def test_a_value_of_a_file_is_checked_likewise(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("params:\n  cycle_time_ms: abc\n")
    with pytest.raises(_config.FileError, match=r"params\.cycle_time_ms must be a number of milliseconds .* not 'abc'"):
        _config.options(str(file))


@pytest.fixture
def horovodrun(monkeypatch, capsys):
    """Calls the command in this process, whose environment stays as it is. Returns exit code, stdout, stderr."""

    def call(*words, **variables):
        def execv(path, command):
            print(*command[1:], *(os.environ.get(name) for name in ("FARANDOLE_FUSION_THRESHOLD", "HOROVOD_TIMELINE")))
            sys.exit(3)

        monkeypatch.setattr(os, "environ", {**os.environ, **variables})
        monkeypatch.setattr(os, "execv", execv)
        with pytest.raises(SystemExit) as ended:
            launch.run_commandline(list(words))
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-np", "2"], 2, "say what to run: horovodrun -np 4 python train.py."),
        (["-np", "3", "-H", "localhost:2", "true"], 2, "-np 3 asks for more ranks than the 2 slots"),
        (["-np", "1", "no-such-program"], 127, "no-such-program: no such command in PATH."),
        (["-np", "1", "--timeline-filename", "/no/t.json", "true"], 2, "--timeline-filename /no/t.json: there is no "),
        (["-np", "1", "--jsrun", "true"], 2, "--jsrun is not supported: leave it out"),
    ],
)
def test_it_answers_in_its_own_name(horovodrun, words, code, said):
    ended, out, err = horovodrun(*words)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"horovodrun: {said.removesuffix('.')}") and "farandole run" not in err


def test_words_of_farandole_run_become_its_own(horovodrun):
    horovodrun("-np", "2")
    said = "run again with --output-dir DIR, --timestamp and -np 2: farandole run --help"
    ours = "run again with --output-filename DIR, --prefix-output-with-timestamp and -np 2: horovodrun --help"
    assert messages.spoken(said) == ours


def test_its_help_is_about_itself(horovodrun):
    code, text, _ = horovodrun("--help")
    assert code == 0 and text.startswith("usage: horovodrun -np N") and "farandole run" not in text
    assert "Number of ranks" in text


def mpirun(folder, version):
    (folder / "mpirun").write_text(f"#!/bin/sh\necho {version!r}\n")
    (folder / "mpirun").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (
            "mpirun (Open MPI) 4.1.4",
            "-np 2 --allow-run-as-root --tag-output -H localhost:2 --bind-to none --map-by slot --mca "
            "btl_tcp_if_include lo --mca oob_tcp_if_include lo --mca plm_rsh_args -p 22",
        ),
        ("HYDRA build details:", "-np 2 -prepend-rank -hosts localhost:2 -iface lo"),
    ],
)
def test_mpi_starts_by_the_mpirun_in_the_path(horovodrun, tmp_path, version, words):
    options = ["-np", "2", "-H", "localhost:2", "--network-interfaces", "lo", *["-p", "22"] * ("Open" in version)]
    options += ["--mpi-args", "--quiet -v", "--fusion-threshold-mb", "1", "--timeline-filename", "t.json"]
    ended = horovodrun("--mpi", *options, "train.py", **mpirun(tmp_path, version))
    assert ended == (3, f"{words} --quiet -v train.py 1048576 t.json\n", "")


def test_mpi_sends_variables_to_other_hosts(horovodrun, tmp_path):
    (tmp_path / "hosts").write_text("h1 slots=2\nh2 slots=3\n")
    variables = mpirun(tmp_path, "Open MPI") | {"MY_OWN": "1", "SSH_TTY": "x"}
    _, out, _ = horovodrun("--mpi", "-hostfile", str(tmp_path / "hosts"), "train.py", **variables)
    assert out.startswith("-np 5 ") and "-H h1:2,h2:3" in out
    assert "-x MY_OWN " in out and "-x PATH " in out and "-x SSH_TTY" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-np", "2", "train.py"], "--mpi starts the ranks by mpirun, and there is none in PATH: install an MPI, or"),
        (["-np", "2", "--min-np", "1", "train.py"], "--min-num-proc cannot be beside --mpi"),
        (["-np", "2"], "say what to run: horovodrun --mpi -np 4"),
    ],
)
def test_mpi_is_refused_where_it_cannot_be(horovodrun, tmp_path, words, said):
    code, out, err = horovodrun("--mpi", *words, PATH=str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"horovodrun: {said}")


def test_programs_may_call_the_launcher_themselves(capfd):
    arguments = runner._HorovodArgs()
    assert arguments.run_func is None and arguments.hosts is None and arguments.use_mpi is None
    arguments.num_proc, arguments.hosts, arguments.nics = 2, "localhost:2", {"lo"}
    arguments.command = ["sh", "-c", "echo $HOROVOD_RANK; exit $CODE"]
    arguments.fusion_threshold_mb = 64
    with _environment.with_variables(CODE="7"), pytest.raises(RuntimeError, match=r"^Horovod detected .*\n.*: 7"):
        launch._run(arguments)
    assert "1" in capfd.readouterr().out.split()
    assert launch._run(launch.parse_args(["-np", "1", "true"])) is None
    arguments.run_func, arguments.num_proc = os.getppid, 1
    assert len(launch._run(arguments)) == 1


def test_check_build_marks_what_works():
    lines = launch.what_works().splitlines()
    assert "    [X] PyTorch" in lines and "    [X] Gloo" in lines and "    [ ] DDL" in lines
