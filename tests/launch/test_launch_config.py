"""Files of options, variables of options, and which of them counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch import config_file
from farandole.launch.config_file import Config, read
from farandole.launch.spec import SpecError, leaves_by_name

NAMES = "num_proc hosts verbose env start_timeout timeline_filename timeline_mark_cycles timestamp".split()
KNOWN = {name.replace("_", "-"): leaves_by_name()[name][1] for name in NAMES}


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[str, str], Path]:
    """file_of("run.toml", text) is the path of a file with that text."""

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_toml_has_the_options_in_its_table_run(file_of: Callable) -> None:
    text = '[run]\nnum-proc = 4\nhosts = "h1:4"\nverbose = true\nenv = ["A=1", "B"]\nstart-timeout = 2.5\n'
    assert read(file_of("run.toml", text), KNOWN) == Config(
        {"num-proc": 4, "hosts": "h1:4", "verbose": True, "env": ["A=1", "B"], "start-timeout": 2.5}
    )
    assert read(file_of("run.toml", ""), KNOWN) == Config()


def test_yaml_is_horovodruns(file_of: Callable) -> None:
    text = (
        "controller: gloo\nparams:\n  fusion_threshold_mb: 0.5\n  cycle_time_ms: 5\n"
        "timeline:\n  filename: t.json\n  mark_cycles: true\n"
        "stall_check:\n  enabled: true\n  warning_time_seconds: 20\n  shutdown_time_seconds: 0\n"
        "library_options:\n  gloo_timeout_seconds: 9\nlogging:\n  level: FATAL\n  with_timestamp: true\n"
    )
    assert read(file_of("horovod.yaml", text), KNOWN) == Config(
        {"timeline-filename": "t.json", "timeline-mark-cycles": True, "start-timeout": 9, "timestamp": True},
        {
            "FARANDOLE_FUSION_THRESHOLD": "524288",
            "FARANDOLE_WARN_AFTER": "20",
            "FARANDOLE_TIMEOUT": "0",
            "FARANDOLE_LOG_LEVEL": "error",
        },
        ("controller", "params.cycle_time_ms"),
    )


def test_a_check_that_is_off_warns_never(file_of: Callable) -> None:
    text = "stall_check:\n  enabled: false\n  warning_time_seconds: 20\n"
    assert read(file_of("h.yml", text), KNOWN).settings == {"FARANDOLE_WARN_AFTER": "31536000"}


WRONG = {
    "run.toml": {
        "[run]\nhosts = \n": "is not TOML: Invalid value (at line 2",
        "[run]\nhosts = 'a'\nhosts = 'b'\n": "is not TOML: Cannot overwrite a value (at line 3",
        "[run]\nhost = 'h1'\n": "has 'host', which is no option; did you mean hosts?",
        "[run]\nzzz = 1\n": "which is no option; known are num-proc, hosts,",
        '[run]\n"a\\u001bb" = 1\n': "has 'a\\x1bb', which is no option",
        "num-proc = 4\n": "has 'num-proc' outside its table; write options below a line [run]",
        "[runs]\nnum-proc = 4\n": "has 'runs' outside its table",
        "run = 4\n": "has run as a value",
        "[run]\nverbose = 1\n": "verbose must be true or false, not '1'",
        "[run]\nhosts = ['h1']\n": "hosts must be a text, not",
        "[run]\nenv = 'A'\n": "env must be a list of texts, not 'A'",
        "[run]\nenv = [1]\n": "env must be a list of texts",
        "[run]\nnum-proc = true\n": "num-proc must be a whole number or a text, not 'True'",
        "[run]\nnum-proc = 1.5\n": "num-proc must be a whole number or a text, not '1.5'",
        "[run]\nstart-timeout = inf\n": "start-timeout must be a number, not 'inf'",
        "[run]\nstart-timeout = 'soon'\n": "start-timeout must be a number, not 'soon'",
        "a = " + "[" * 100_000: "is not TOML",
        "a = " + "9" * 5000: "is not TOML",
    },
    "horovod.yaml": {
        "params:\n  fusion_threshold_mb: [\n": "line 3: it is not YAML",
        "a: !!python/object/apply:os.system ['touch x']\n": "line 1: it is not YAML",
        "- 1\n": "must have keys of horovodrun",
        "": "must have keys of horovodrun",
        "params:\n  fusion_threshold: 1\n": "did you mean params.fusion_threshold_mb?",
        "params:\n  fusion_threshold_mb: many\n": "params.fusion_threshold_mb must be a number, not 'many'",
        "params:\n  fusion_threshold_mb: .nan\n": "params.fusion_threshold_mb must be a number",
        "stall_check:\n  enabled: 3\n": "stall_check.enabled must be true or false",
        "stall_check: 3\n": "has 'stall_check', which is no option",
        "logging:\n  level: loud\n": "logging.level must be one of error, warning, info, debug, not 'loud'",
        "timeline:\n  filename: 3\n": "timeline.filename must be a text, not '3'",
        "timeline:\n  filename: {a: b}\n": "timeline.filename must be a text",
        "a: 2024-99-99\n": "is not YAML",
        "a: " + "[" * 100_000: "is not YAML",
    },
}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [(name, text, said) for name, cases in WRONG.items() for text, said in cases.items()],
    ids=lambda text: ascii(text)[:40],
)
def test_a_wrong_file_is_told(file_of: Callable, name: str, text: str, said: str) -> None:
    path = file_of(name, text)
    with pytest.raises(SpecError) as caught:
        read(path, KNOWN)
    assert str(caught.value).startswith(f"--config-file {path}") and said in str(caught.value), caught.value


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"[run]\n# \xfc\n")
    cases = {tmp_path: "Is a directory", tmp_path / "none.toml": "No such file", Path("a\0b"): "null"}
    cases |= {Path("/dev/zero"): "more than 1 MiB", tmp_path / "latin.toml": "line 2: it must be UTF-8"}
    for path, said in cases.items():
        with pytest.raises(SpecError, match=said):
            read(path, KNOWN)


def test_a_missing_parser_of_yaml_is_told(file_of: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SpecError, match=r"needs PyYAML: .* -m pip install pyyaml, or write TOML"):
        config_file.read(file_of("a.yaml", "params:\n"), KNOWN)


# ---- As a command ----------------------------------------------------------------------------------------------------


def shown(text: str) -> dict[str, tuple[str, str]]:
    """The table of --show-config: option -> value, source."""
    rows = [line.split(maxsplit=2) for line in text.splitlines()]
    return {name: (value, source) for name, value, source in rows}


def test_the_command_line_precedes_the_environment_the_file_and_the_default(run: Callable, file_of: Callable) -> None:
    file_of(
        "run.toml", '[run]\nnum-proc = 1\nhosts = "localhost:9"\nbackend = "gloo"\nverbose = true\nprefix = false\n'
    )
    env = {"FARANDOLE_RUN_NUM_PROC": "2", "FARANDOLE_RUN_HOSTS": "localhost:8", "FARANDOLE_RUN_ENV": "A=secret B=2"}
    result = run("--config-file", "run.toml", "-np", 3, "--show-config", env=env)
    assert (result.code, result.err) == (0, "") and "secret" not in result.out
    found = shown(result.out)
    assert found.pop("option") == ("value", "source")
    assert found["--num-proc"] == ("3", "command line")
    assert found["--hosts"] == ("localhost:8", "environment (FARANDOLE_RUN_HOSTS)")
    assert found["--backend"] == ("gloo", "file run.toml")
    assert (found["--verbose"], found["--prefix"]) == (("true", "file run.toml"), ("false", "file run.toml"))
    assert found["--timestamp"] == ("false", "default")
    assert "environment (FARANDOLE_RUN_ENV)" in result.out


def test_the_file_may_be_named_in_the_environment(run: Callable, file_of: Callable) -> None:
    file_of("run.toml", '[run]\nnum-proc = 2\nenv = ["A=b c"]\nprefix = false\n')
    result = run("sh", "-c", "echo $FARANDOLE_SIZE $A", env={"FARANDOLE_RUN_CONFIG_FILE": "run.toml"})
    assert result.out.splitlines() == ["2 b c"] * 2


def test_settings_in_the_environment_precede_a_file(run: Callable, file_of: Callable) -> None:
    file_of("h.yaml", "params:\n  fusion_threshold_mb: 1\n  cache_capacity: 9\nlogging:\n  level: INFO\n")
    env = {"FARANDOLE_FUSION_THRESHOLD": "7", "FARANDOLE_LOG_LEVEL": ""}
    words = ["sh", "-c", "echo $FARANDOLE_FUSION_THRESHOLD $FARANDOLE_LOG_LEVEL"]
    result = run("-np", 1, "--config-file", "h.yaml", *words, env=env)
    assert result.out == "[0] 7 info\n"
    assert result.err == "farandole: no effect here: params.cache_capacity of --config-file; there is nothing to set.\n"
    result = run("-np", 1, "--config-file", "h.yaml", "--show-config", env=env)
    found = shown(result.out)
    assert found["FARANDOLE_FUSION_THRESHOLD"] == ("7", "environment")
    assert found["FARANDOLE_LOG_LEVEL"] == ("info", "file h.yaml")
    file_of("run.toml", '[run]\nbackend = "gloo"\nstart-timeout = 5\n')
    words = ["sh", "-c", "echo $FARANDOLE_BACKEND $FARANDOLE_START_TIMEOUT"]
    result = run("-np", 1, "--config-file", "run.toml", *words, env={"FARANDOLE_BACKEND": "native"})
    assert result.out == "[0] native 5\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nnum-prok = 4\n", "did you mean num-proc?"),
        ("[run]\nconfig-file = 'x'\n", "has 'config-file', which is no option"),
        ("[run]\nnum-proc = -4\n", "-np must be a positive whole number, not '-4'"),
        ("[run]\nbind-to = 'numa'\n", "numa"),
        ("[run]\nssh-port = 70000\n", "70000"),
        ("[run]\nssh-port = '22'\n", "ssh-port must be a whole number from 1 to 65535, not '22'"),
        ("[run]\nhosts = '$(touch x)'\n", "-H: '$(touch x)' is no name of a host"),
        ('[run]\npython = "a\\u001b"\n', "--python names the interpreter"),
        ('[run]\nhostfile = "a\\u0000b"\n', "hostfile must be the name of a file, not 'a\\x00b'"),
    ],
)
def test_a_wrong_file_is_one_sentence_and_exit_code_2(run: Callable, file_of: Callable, text: str, said: str) -> None:
    file_of("run.toml", text)
    result = run("--config-file", "run.toml", *([] if "num-proc" in text else ["-np", 1]), "touch", "x")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result.err
    assert said in result.err and result.err.removesuffix("\n").isprintable()


def test_a_wrong_variable_of_an_option_is_told(run: Callable) -> None:
    result = run("-np", 1, "true", env={"FARANDOLE_RUN_START_TIMEOUT": "soon"})
    assert result.code == 2 and "soon" in result.err and result.err.count("\n") == 1
    result = run(
        "-np", 1, "true", env={"FARANDOLE_RUN_NUMPROC": "4", "FARANDOLE_RUN_VERSION": "1", "FARANDOLE_RUN_HELP": "1"}
    )
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "farandole: FARANDOLE_RUN_HELP is set, but `farandole run` has no such option.",
        "farandole: FARANDOLE_RUN_NUMPROC is set, but `farandole run` has no such option; "
        "did you mean FARANDOLE_RUN_NUM_PROC?",
        "farandole: FARANDOLE_RUN_VERSION is set, but `farandole run` has no such option.",
    ]
