"""horovodrun: each option of 0.28.1 is parsed, and becomes one of Farandole's, a setting, or a sentence."""

import pytest
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
        values = {"": [], "MIN MAX": ["1", "2"]}.get(option.metavar, ["1"])
        for name in option.names.split():
            given = parsed(name, *values)
            assert option.key in given and given["command"] == SCRIPT, name


def test_options_become_those_of_farandole():
    given = parsed("-np", "2", "-H", "localhost:2", "--output-filename", "out", "--verbose", "--start-timeout", "9")
    assert launch._words(given) == [
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
    assert launch._words(given) == [
        *("-np", "4", "--min-np", "2", "--max-np", "4", "--elastic-timeout", "9", "--reset-limit", "3"),
        *("--blacklist-cooldown-range", "5", "60"),
    ]


def test_options_of_the_discovery_of_hosts_are_passed_on():
    given = parsed("-np", "4", "--host-discovery-script", "./discover", "--slots-per-host", "2")
    assert launch._words(given) == [
        *("-np", "4", "--host-discovery-script", "./discover", "--slots-per-host", "2"),
    ]


def test_options_for_other_hosts_are_passed_on():
    given = parsed("-hostfile", "hosts", "-p", "2222", "-i", "key", "--network-interface", "eth0")
    assert launch._words(given) == [
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


def test_check_build_marks_what_works():
    lines = launch.what_works().splitlines()
    assert "    [X] PyTorch" in lines and "    [X] Gloo" in lines and "    [ ] DDL" in lines
