"""What users do to a running job; streams that cannot be written; processes left behind; lines that look like ours."""

from __future__ import annotations

from functools import partial

from failures.case import ALL, ANY, BOTH, NOBODY, PAIR, THREE, Case, alone, each, steps

# A rank that ends by no signal but SIGKILL, with a child in a session of its own that does not, either.
STUBBORN = """\
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(each, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(100)
    os._exit(0)
ready(rank)
FAIL
time.sleep(100)
"""
# Ends itself as the signal asks it to.
HEEDS = """\
def end(number, frame):
    print("heard", number, flush=True)
    FAIL
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(each, end)
ready(rank)
time.sleep(100)
"""
SHORT = {"FARANDOLE_GRACE_SECONDS": "0.8"}
LONG = {"FARANDOLE_GRACE_SECONDS": "60"}

stubborn, heeds = partial(Case, program=STUBBORN), partial(Case, program=HEEDS)

# A row is a case.
# fmt: off
SIGNALLED = [
    *(
        alone(f"user-{name}", "pass", 128 + number, say=say, blame=NOBODY, do=f"ready {name}", ways=ways)
        for name, number, say, ways in [
            ("INT", 2, "Ctrl-C", BOTH), ("TERM", 15, "SIGTERM", BOTH), ("HUP", 1, "SIGHUP", BOTH),
            ("QUIT", 3, "SIGQUIT", "command"), ("all-INT", 2, "Ctrl-C", "command"),
        ]
    ),
    *(
        heeds(f"user-{name}-and-ranks-heed-it", "sys.exit(0)", 128 + number, say=say, blame=NOBODY,
              show=f"[0] heard {number} | [2] heard {number}", do=f"ready {name}")
        for name, number, say in
        [("INT", 2, "Ctrl-C"), ("TERM", 15, "SIGTERM"), ("HUP", 1, "SIGHUP"), ("QUIT", 3, "SIGQUIT")]
    ),
    steps("user-INT-in-steps", "time.sleep(100)", 130, say="Ctrl-C", once="Traceback", blame=NOBODY, do="ready INT",
        ways=BOTH),
    heeds("user-INT-and-ranks-fail-of-it", "sys.exit(3)", 130, say="Ctrl-C", blame=NOBODY, do="ready INT"),
    heeds("user-INT-and-ranks-raise-of-it", "raise ValueError('of it')", 130, say="Ctrl-C", blame=NOBODY,
        do="ready INT"),
    heeds("user-TERM-and-ranks-raise-of-it", "raise ValueError('of it')", 143, say="SIGTERM", blame=NOBODY,
        do="ready TERM"),
    stubborn("user-INT-twice", "pass", 130, say="Ctrl-C", blame=NOBODY, env=LONG, do="ready INT pause INT", ways=BOTH,
        quick="command"),
    stubborn("user-INT-then-TERM", "pass", 130, say="Ctrl-C", blame=NOBODY, env=SHORT, do="ready INT pause TERM"),
    stubborn("user-TERM-then-INT", "pass", 143, say="SIGTERM", blame=NOBODY, env=SHORT, do="ready TERM pause INT"),
    stubborn("user-INT-and-ranks-ignore-it", "pass", 130, say="Ctrl-C", blame=NOBODY, env=SHORT, do="ready INT",
        ways=BOTH),
    stubborn("user-TERM-and-ranks-ignore-it", "pass", 143, say="SIGTERM", blame=NOBODY, env=SHORT, do="ready TERM",
        ways=BOTH, quick="hosts"),
    stubborn("user-INT-after-a-failure", "if rank == 1: time.sleep(0.3); os._exit(3)", 3, env=LONG,
        do="ready gone:1 INT"),
    each("user-INT-while-ranks-wait-in-init",
        "ready(rank)\nif rank == 1: time.sleep(100)\nimport farandole\nfarandole.init()", 130, say="Ctrl-C",
        blame=NOBODY, do="ready pause INT", ways=BOTH),
    each("user-TERM-while-ranks-wait-in-init",
        "ready(rank)\nif rank == 1: time.sleep(100)\nimport farandole\nfarandole.init()", 143, say="SIGTERM",
        blame=NOBODY, do="ready pause TERM"),
    each("user-USR1-is-passed-on",
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(4))\nready(rank)\ntime.sleep(100)", 4, blame=ANY,
        do="ready USR1", ways=BOTH),
    stubborn("launcher-killed", "pass", -9, blame=NOBODY, do="ready KILL", ways=ALL, quick="command", error="",
        error_code=-9),
    stubborn("launcher-stopped-and-killed", "pass", -9, blame=NOBODY, do="ready STOP KILL", ways=PAIR, error="",
        error_code=-9),
    alone("suspended-and-killed", "pass", -9, blame=NOBODY, do="ready TSTP pause KILL"),
    alone("suspended-and-interrupted", "pass", 130, say="Ctrl-C", blame=NOBODY, do="ready TSTP pause INT CONT"),
    alone("suspended-while-a-rank-dies", "pass", 137, say="SIGKILL", do="ready TSTP pause KILL:1 pause CONT"),
    steps("user-TERM-and-more", "time.sleep(100)", 143, say="SIGTERM", blame=NOBODY, ways=BOTH,
        do="ready TERM TERM HUP QUIT INT"),
    steps("launcher-killed-in-steps", "time.sleep(100)", -9, blame=NOBODY, do="ready KILL", ways=BOTH),
    alone("caller-INT", "pass", 130, blame=NOBODY, do="ready INT", ways="script script-hosts", quick="script",
        error="KeyboardInterrupt", error_code=None),
    stubborn("caller-INT-twice", "pass", 130, blame=NOBODY, env=LONG, do="ready INT pause INT", ways="script",
        error="KeyboardInterrupt", error_code=None),
    stubborn("caller-INT-and-ranks-ignore-it", "pass", 130, blame=NOBODY, env=SHORT, do="ready INT", ways="script",
        error="KeyboardInterrupt", error_code=None),
    stubborn("caller-TERM", "pass", -15, blame=NOBODY, do="ready TERM", ways="script thread asyncio", error="",
        error_code=-15),
    alone("caller-and-launcher-INT", "pass", 130, blame=NOBODY, do="ready all-INT", ways="script",
        error="KeyboardInterrupt", error_code=None),
    alone("a-host-crashes", "pass", 255, say="lost | h1", blame=(1, 2), do="ready crash", ways="hosts", quick="hosts"),
    steps("a-host-crashes-in-steps", "time.sleep(100)", 255, say="lost | h1", blame=(1, 2), do="ready crash",
        ways="hosts script-hosts"),
]

FAREWELL = "print('farewell', flush=True)\nsys.exit(3)"
STREAMS = [
    alone("stdout-full", FAREWELL, 3, say="exit code 3 | stdout | No space left", redirect=">/dev/full",
        ways=BOTH, quick="command"),
    each("stdout-full-and-all-is-well", "print('a line')", 0, say="stdout | No space left", blame=NOBODY,
        redirect=">/dev/full"),
    alone("stdout-closed", FAREWELL, 3, redirect=">&-"),
    each("stdout-closed-and-all-is-well", "print('a line')", 0, blame=NOBODY, redirect=">&-"),
    alone("logs-on-a-full-disk", FAREWELL, 3, say="exit code 3 | logs | No space left", hide="output is in",
        options="--output-dir logs", before="mkdir logs; ln -s /dev/full logs/rank.1.log;"),
    alone("stderr-full", FAREWELL, 3, show="[1] farewell", blame=NOBODY, redirect="2>/dev/full"),
    alone("stderr-closed", FAREWELL, 3, show="[1] farewell", blame=NOBODY, redirect="2>&-"),
    alone("both-full", FAREWELL, 3, blame=NOBODY, redirect=">/dev/full 2>&1"),
    alone("both-closed", FAREWELL, 3, blame=NOBODY, redirect=">&- 2>&-", ways=BOTH),
    alone("all-closed", FAREWELL, 3, blame=NOBODY, redirect="<&- >&- 2>&-"),
    alone("stdin-closed", FAREWELL, 3, show="] farewell | [1", redirect="<&-", ways=THREE),
    each("the-reader-leaves", "print('a line\\n' * 100_000)\ntime.sleep(100)", 141, blame=NOBODY,
        redirect="> >(head -n 1 >/dev/null)", ways=BOTH),
    each("the-reader-leaves-a-call", "print('a line\\n' * 100_000)\ntime.sleep(100)", 141, blame=NOBODY,
        redirect="> >(head -n 1 >/dev/null)", ways="script"),
    alone("stdout-full-of-a-call", FAREWELL, 3, redirect=">/dev/full", ways="script"),
    alone("stdout-closed-of-a-call", FAREWELL, 3, redirect=">&-", ways="script"),
    alone("both-closed-of-a-call", FAREWELL, 3, redirect=">&- 2>&-", ways="script"),
    alone("a-rank-closes-its-own", "print('farewell', flush=True)\nos.close(1)\nos.close(2)\nos._exit(3)", 3,
        show="[1] farewell", ways=PAIR),
    alone("last-lines-are-shown", "print(*range(5), sep='\\n', flush=True)\nos._exit(3)", 3,
        show="[1] 0\n[1] 1\n[1] 2\n[1] 3\n[1] 4"),
    alone("a-line-without-an-end", "os.write(2, b'half a line')\nos._exit(3)", 3, show="half a line", ways=THREE),
    alone("a-progress-bar", "os.write(2, b'\\r 10%\\r 20%')\nos._exit(3)", 3, show="20%", ways=BOTH),
    alone("bytes-that-are-no-text", "os.write(2, b'\\xff\\xfe\\0\\n')\nos._exit(3)", 3, ways=THREE),
    alone("a-million-lines",
        "sys.stdout.write('a line\\n' * 1_000_000 + 'the last\\n')\nsys.stdout.flush()\nos._exit(3)", 3,
        show="the last", ways=BOTH),
    alone("a-line-without-measure", "sys.stderr.write('x' * 3_000_000 + 'the last')\nsys.exit(3)", 3, show="the last",
        ways=PAIR),
]

LIKE_OURS = [
    alone("lines-like-ours", "print(OURS, file=sys.stderr, flush=True)\nsys.exit(3)", 3,
        ways="command hosts script thread", quick="script"),
    alone("lines-like-ours-on-stdout", "print(OURS, flush=True)\nos._exit(3)", 3, ways=THREE),
    each("lines-like-ours-of-an-innocent",
        "print(OURS, file=sys.stderr, flush=True)\nif rank == 1: time.sleep(0.5); sys.exit(3)\ntime.sleep(100)", 3,
        ways=THREE),
    each("lines-like-ours-and-all-is-well", "print(OURS, file=sys.stderr, flush=True)", 0, blame=NOBODY,
        ways="command hosts script asyncio", error=""),
    alone("lines-with-our-prefix",
        "print('[0] Traceback (most recent call last):', file=sys.stderr, flush=True)\nsys.exit(3)", 3,
        show="[1] [0] Traceback"),
    alone("lines-like-ours-in-an-exception", "raise ValueError(OURS)", 1, show="ValueError: farandole: rank 0 on h9",
        ways="command script asyncio", error="ValueError"),
    alone("lines-like-ours-many", "print(*[OURS] * 200, sep='\\n', file=sys.stderr, flush=True)\ndie('KILL')", 137,
        say="SIGKILL", ways=PAIR),
]
LEFT = [
    alone("left-a-child", "subprocess.Popen(['sleep', '100'])\nsys.exit(3)", 3, ways=THREE),
    alone("left-a-session", "leave('sleep 100')\nsys.exit(3)", 3, ways=THREE, quick="command"),
    alone("left-a-daemon", "leave('(setsid sleep 100 &) &')\nos._exit(3)", 3, ways=BOTH),
    alone("left-and-it-ignores-signals",
        "leave('trap : TERM INT HUP; while :; do sleep 1; done')\ntime.sleep(0.3)\nos._exit(3)", 3,
        ways="command hosts asyncio"),
    alone("left-by-a-killed-rank", "leave('sleep 100')\ndie('KILL')", 137, say="SIGKILL", ways=THREE),
    alone("left-a-fork", "if os.fork() == 0: time.sleep(100)\nsys.exit(3)", 3, ways=PAIR),
    steps("left-a-fork-in-steps", "if os.fork() == 0: time.sleep(100)\nsys.exit(3)", 3, ways=BOTH),
    alone("left-a-pool",
        "import multiprocessing\npool = multiprocessing.get_context('fork').Pool(2)\n"
        "pool.apply_async(time.sleep, [100])\ntime.sleep(0.2)\nos._exit(3)", 3, ways=PAIR),
    alone("left-a-stopped-child", "leave('kill -STOP $$; sleep 100')\ntime.sleep(0.2)\nos._exit(3)", 3),
    each("left-when-all-is-well", "leave('sleep 100')\n", 0, blame=NOBODY, ways="command hosts script thread",
        error=""),
    each("a-child-fails-and-the-rank-does-not", "subprocess.run(['sh', '-c', 'kill -9 $$'])", 0, blame=NOBODY,
        ways=PAIR, error=""),
    stubborn("ranks-ignore-the-end", "if rank == 1: os._exit(3)", 3, env=SHORT, ways=THREE),
    each("a-stopped-rank",
        "if rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\nif rank == 1: time.sleep(0.5); sys.exit(3)", 3, env=SHORT,
        ways=BOTH),
]
CASES = [*SIGNALLED, *STREAMS, *LIKE_OURS, *LEFT]
