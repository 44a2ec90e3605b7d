"""What cannot be started: one sentence of the launcher's names the word to correct, and no rank begins."""

from __future__ import annotations

from failures.case import ANY, BOTH, NOBODY, PAIR, THREE, Case, each, steps

QUICK = ("-np 2 nothing.py", "--no-such-option train.py", "-H localhost:1 -np 3 train.py")


def _refused(words: str, *say: str, code: int = 2, **env: str) -> Case:
    """`farandole run` with these words, of which none starts a rank; train.py is there."""
    quick, facts = "command" * (words in QUICK), " | ".join(say)
    return each(words, "pass", code, say=facts, once="farandole: ", hide="Traceback | [0]", blame=NOBODY, ranks=0,
                options=words, command="", env=env, quick=quick)  # fmt: skip


COMMANDS = [
    _refused("-np 2 nothing.py", "nothing.py", "no such file", code=127),
    _refused("-np 2 ./nothing", "./nothing", "no such file", code=127),
    _refused("-np 2 no-such-command", "no-such-command", "no such command in PATH", code=127),
    _refused("-np 2 .", "directory", code=126),
    _refused("-np 2 ./train.txt", "train.txt", "no such file", code=127),
    _refused("-np 2 /etc/passwd", "/etc/passwd", "may not be executed", code=126),
    _refused("-np 2", "what to run"),
    _refused("", "-np"),
    _refused("-np 2 python -", "stdin"),
]
OPTIONS = [
    _refused("--no-such-option train.py", "--no-such-option"),
    _refused("-np 0 train.py", "-np", "'0'"),
    _refused("-np -1 train.py", "-np", "'-1'"),
    _refused("-np many train.py", "-np", "'many'"),
    _refused("-np 2 --bind-to moon train.py", "--bind-to", "moon"),
    _refused("-np 2 --start-timeout -1 train.py", "--start-timeout"),
    _refused("-np 2 --start-timeout soon train.py", "--start-timeout", "soon"),
    _refused("-np 2 -x =3 train.py", "-x", "=3"),
    _refused("-np 2 --backend nosuch train.py", "nosuch"),
    _refused("-np 2 --min-np 3 train.py", "--min-np"),
    _refused("-np 2 --max-np 1 train.py", "--max-np"),
    _refused("-np 2 --slots-per-host 3 train.py", "--slots-per-host"),
    _refused("-np 2 --nnodes 2 train.py", "--nnodes", "--node-rank"),
    _refused("--nnodes 2 --node-rank 5 --rendezvous h0:1 --key-file train.py train.py", "--node-rank", "5"),
    _refused("-np 2 --output-dir train.py train.py", "--output-dir", "train.py"),
    _refused("-np 2 --timeline-filename /no/such/t.json train.py", "--timeline-filename", "/no/such"),
    _refused("-np 2 --config-file no.toml train.py", "--config-file", "no.toml"),
    _refused("-np 2 --config-file train.py train.py", "--config-file", "TOML"),
    _refused("-f no.yml", "no.yml"),
    _refused("-np 2 train.py", "FARANDOLE_GRACE_SECONDS", "'soon'", FARANDOLE_GRACE_SECONDS="soon"),
    _refused("train.py", "-np", "'two'", FARANDOLE_RUN_NUM_PROC="two"),
]
PLACES = [
    _refused("-H h0:many train.py", "h0", "'many'"),
    _refused("-H no_name_:2 train.py", "no_name_"),
    _refused("-H localhost:1 -np 3 train.py", "-np 3", "1 slot"),
    _refused("-H localhost:1 --hostfile hosts train.py", "--hosts", "--hostfile"),
    _refused("--hostfile hosts train.py", "--hostfile", "hosts"),
    _refused("-H h.invalid:1,localhost:1 train.py", "h.invalid"),
    _refused("-H h:1 -p ssh train.py", "--ssh-port"),
    _refused("-np 2 --host-discovery-script ./none train.py", "./none"),
]
# Commands that are no program of Python's; options that change what is shown; more ranks than cores.
# A row is a case.
# fmt: off
OTHERS = [
    steps("a-shell", "", 5, blame=(0, 1), ranks=2, command="sh -c 'exit 5'", ways=BOTH),
    steps("a-shell-is-killed", "", 137, say="SIGKILL", blame=(0, 1), ranks=2, command="sh -c 'kill -9 $$'"),
    steps("a-program-of-a-shell", "", 6, blame=(0, 1), ranks=2, command="sh -c 'sh -c \"exit 6\"; exit $?'"),
    steps("a-module", "", 1, show="No module named no_such", blame=(0, 1), ranks=2, command="-m no_such"),
    each("a-mistake-of-syntax", "if", 1, show='SyntaxError | train.py", line', blame=ANY, ways=BOTH),
    steps("a-python-that-fails", "", 2, show="nothing.py", blame=(0, 1), ranks=2, command="python3 nothing.py"),
    each("more-ranks-than-cores", "if rank == 13: sys.exit(3)\ntime.sleep(100)", 3, blame=(13,), ranks=16, ways=PAIR,
        quick="command"),
    steps("elastic-and-too-few", "", 137, say="SIGKILL", blame=(0, 1), ranks=2, options="--min-np 2",
        command="sh -c 'kill -9 $$'"),
    each("few-descriptors", "pass", 1, say="cannot start 3 ranks | ulimit -n", blame=NOBODY, before="ulimit -n 12;"),
    each("no-working-directory", "pass", 7, blame=(0, 1), ranks=2, command="sh -c 'exit 7'",
        before="mkdir gone; cd gone; rmdir ../gone;"),
    each("dead-children-are-ignored", "if rank == 1: sys.exit(7)\ntime.sleep(100)", 7,
        before='set -- env --ignore-signal=CHLD "$@";', ways=THREE),
    each("signals-are-blocked", "if rank == 1: sys.exit(7)\ntime.sleep(100)", 7,
        before='set -- env --block-signal=CHLD,TERM,INT "$@";'),
    each("no-prefix", "print('a line', flush=True)\nos._exit(3)", 3, show="a line", blame=ANY, options="--no-prefix"),
    each("a-file-of-each", "print('a line', flush=True)\nos._exit(3)", 3, blame=ANY, options="--output-dir logs"),
    each("verbose", "if rank == 1: sys.exit(3)\ntime.sleep(100)", 3, show="rank 1 ended",
        options="--verbose --timestamp"),
]
CASES = [*COMMANDS, *OPTIONS, *PLACES, *OTHERS]
