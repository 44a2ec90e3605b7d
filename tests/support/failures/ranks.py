"""Ranks that fail: how, when, and how many at once."""

from __future__ import annotations

from failures.case import ALL, ANY, BOTH, HERE, NOBODY, PAIR, THREE, alone, each, every, joins, steps, two

# A row is a case.
# fmt: off
RAISE = [
    steps("raise", "raise ValueError('no such column')", 1, show="ValueError: no such column | {line}",
        hide="PeerLostError | _functions | site-packages/farandole", once="ValueError: no such column | Traceback",
        ways=ALL, quick="asyncio", error="ValueError"),
    steps("raise-a-class-of-the-script", "class Bad(Exception): pass\nraise Bad('worse', 3)  # here", 1,
        show="Bad: ('worse', 3) | {line}", ways=HERE, error="Bad"),
    steps("raise-in-a-function", "def load(path): return open(path)  # here\nload('/no/such/file')", 1,
        show="FileNotFoundError: [Errno 2] | /no/such/file | {line}", ways=ALL, error="FileNotFoundError"),
    steps("raise-from", "try: 1 / 0\nexcept ZeroDivisionError as error: raise KeyError('lr') from error  # here", 1,
        show="ZeroDivisionError: division by zero | KeyError: 'lr' | direct cause | {line}", ways=HERE,
        error="KeyError"),
    steps("raise-with-notes-and-lines", "raise RuntimeError('first line\\nsecond line\\n\\nlast line')", 1,
        show="RuntimeError: first line | second line | last line", ways=PAIR, error="RuntimeError"),
    steps("raise-beyond-ascii", "raise ValueError('température ≥ 3 ✓')", 1, show="température ≥ 3 ✓ | {line}",
        env={"LC_ALL": "C.UTF-8"}, ways=THREE, error="ValueError"),
    steps("raise-what-cannot-be-pickled",
        "class Bad(Exception):\n    def __init__(self, a, b): super().__init__(a + b)\nraise Bad('fi', 've')  # here",
        1, show="Bad: five | {line}", ways=HERE),
    steps("raise-much", "raise ValueError('x' * 200_000 + ' end')", 1, show="xxx end", ways=PAIR, error="ValueError"),
    steps("raise-group", "raise ExceptionGroup('both', [ValueError('one'), OSError('two')])", 1,
        show="ValueError: one | OSError: two", ways=PAIR, error="ExceptionGroup"),
    steps("assert", "assert step > 10, 'too early'", 1, show="AssertionError: too early | {line}", ways=ALL,
        error="AssertionError"),
    steps("recursion", "def f(n): return f(n + 1)  # here\nf(0)", 1, show="RecursionError | {line}", ways=HERE,
        error="RecursionError"),
    steps("stop-iteration", "next(iter([]))", 1, show="StopIteration | {line}", ways="command thread",
        error="StopIteration"),
    steps("keyboard-interrupt-of-its-own", "raise KeyboardInterrupt", 130, say="rank 1", ways=PAIR),
    steps("out-of-memory", "resource.setrlimit(resource.RLIMIT_AS, (9 << 30, 9 << 30))\nbytearray(99 << 30)  # here", 1,
        show="MemoryError | {line}", ways=ALL, quick="command", error="MemoryError"),
    steps("no-more-files", "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\nopen('/etc/passwd')  # here", 1,
        show="OSError: [Errno 24]", ways=PAIR, error="OSError"),
]
EXIT = [
    *(
        steps(f"exit-{code}", f"sys.exit({code})", code & 255, ways=ways)
        for code, ways in [
            (1, "command"), (2, PAIR), (3, ALL), (70, "command"), (126, "command"), (127, "command"), (130, PAIR),
            (137, "command"), (143, "command"), (255, BOTH), (-1, "command"), (259, "command"),
        ]
    ),
    steps("exit-text", "sys.exit('no data in /data')", 1, show="no data in /data", ways=THREE, quick="script"),
    steps("exit-at-once", "os._exit(7)", 7, ways=ALL, quick="hosts"),
    steps("exit-0-too-early", "sys.exit(0)", 1, say="exit code 0", ways=BOTH),
    steps("exit-0-at-once", "os._exit(0)", 1, say="exit code 0", ways=BOTH),
    steps("exit-256-is-0", "sys.exit(256)", 1, say="exit code 0"),
    steps("return-too-early", "return", 1, say="rank 1 | exit code 0", ways=BOTH),
    steps("exec-of-another-program", "os.execlp('sh', 'sh', '-c', 'exit 5')", 5, ways=PAIR),
]
SIGNALS = [
    *(
        steps(f"signal-{name}", f"die('{name}')", 128 + number, say=f"SIG{name}{hint}", ways=ways)
        for name, number, hint, ways in [
            ("KILL", 9, " | memory", ALL), ("SEGV", 11, " | PYTHONFAULTHANDLER", ALL), ("BUS", 7, "", "command"),
            ("ABRT", 6, " | PYTHONFAULTHANDLER", THREE), ("FPE", 8, "", "command"), ("ILL", 4, "", "command"),
            ("TERM", 15, "", ALL), ("INT", 2, "", PAIR), ("HUP", 1, "", "command"), ("QUIT", 3, "", "command"),
            ("USR1", 10, "", "command"), ("ALRM", 14, "", "command"), ("PIPE", 13, "", "command"),
            ("TRAP", 5, "", "command"), ("SYS", 31, "", "command"),
        ]
    ),
    steps("signal-real-time", "os.kill(os.getpid(), signal.SIGRTMIN + 3)", 165, say="SIGRTMIN+3"),
    steps("crash-in-native-code", "ctypes.string_at(0)", 139, say="SIGSEGV | PYTHONFAULTHANDLER", ways=ALL,
        quick="thread"),
    steps("crash-with-the-line", "import faulthandler\nfaulthandler.enable()\nctypes.string_at(0)  # here", 139,
        say="SIGSEGV", show='Segmentation fault | train.py", line', ways=THREE),
    steps("abort", "os.abort()", 134, say="SIGABRT", ways=PAIR),
    steps("processor-time-is-up", "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass", 137, say="SIG"),
    steps("killed-by-somebody", "time.sleep(100)", 137, say="SIGKILL | memory", do="ready KILL:1", ways=PAIR,
        quick="script"),
    steps("asked-to-end-by-somebody", "time.sleep(100)", 143, say="SIGTERM", do="ready TERM:1"),
]
THREADS_AND_ENDS = [
    steps("raise-in-a-thread", "each = threading.Thread(target=lambda: [][1])\neach.start()\neach.join()\nsys.exit(4)",
        4, show="IndexError | Exception in thread", ways=PAIR, quick="command"),
    steps("exit-of-a-thread", "threading.Thread(target=lambda: os._exit(6)).start()\ntime.sleep(100)", 6,
        ways="command asyncio"),
    steps("a-thread-interrupts-main",
        "import _thread\nthreading.Thread(target=_thread.interrupt_main).start()\ntime.sleep(100)", 130, say="rank 1"),
    steps("raise-and-a-thread-goes-on",
        "threading.Thread(target=time.sleep, args=[200]).start()\nraise ValueError('and stays')  # here", 1,
        show="ValueError: and stays", env={"FARANDOLE_GRACE_SECONDS": "1.5"}, ways=ALL, error="ValueError"),
    steps("raise-and-a-pool-goes-on",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(time.sleep, 200)\n"
        "raise ValueError('and stays')  # here", 1, show="ValueError: and stays",
        env={"FARANDOLE_GRACE_SECONDS": "1.5"}, ways=PAIR, error="ValueError"),
    steps("killed-in-atexit", "atexit.register(die, 'KILL')\nreturn", 137, say="SIGKILL"),
    steps("exit-in-atexit", "atexit.register(os._exit, 5)\nreturn", 5),
    steps("raise-then-slow-atexit", "atexit.register(time.sleep, 1)\nraise ValueError('slow to end')  # here", 1,
        show="ValueError: slow to end", once="Traceback", ways=BOTH, quick="command"),
    steps("raise-after-shutdown", "hvd.shutdown()\nraise ValueError('afterwards')  # here", 1,
        show="ValueError: afterwards", ways=PAIR, error="ValueError"),
    steps("raise-in-del", "class Odd:\n    def __del__(self): raise OSError('in del')\nOdd()\nsys.exit(8)", 8,
        show="OSError: in del"),
    each("raise-in-atexit-alone", "atexit.register(lambda: [][1])", 0, show="IndexError", blame=NOBODY),
]
BEFORE = [
    alone("raise-before-init", "raise ValueError('too soon')", 1, show="ValueError: too soon | {line}",
        once="Traceback", ways=ALL, error="ValueError"),
    alone("exit-before-init", "sys.exit(3)", 3, ways=THREE),
    alone("kill-before-init", "die('KILL')", 137, say="SIGKILL", ways="command hosts thread"),
    each("missing-module", "import no_such_module", 1, show="No module named 'no_such_module'", blame=ANY, ways=THREE,
        error="ModuleNotFoundError"),
    each("raise-on-all-before-init", "raise OSError('no licence')", 1, show="OSError: no licence", blame=ANY,
        ways="command hosts asyncio", error="OSError"),
    joins("call-before-init", "hvd.rank()", 1, show="NotInitializedError | {line}", once="NotInitializedError:",
        blame=ANY, ways=PAIR, quick="command", error="NotInitializedError"),
    joins("never-calls-init", "if rank == 1: sys.exit(0)\nhvd.init()", 1, say="exit code 0", show="rank 1", ways=BOTH,
        quick="command"),
    joins("exit-while-others-are-in-init", "if rank == 1: sys.exit(5)\nhvd.init()", 5, ways=THREE),
    joins("kill-while-others-are-in-init", "if rank == 1: time.sleep(0.3); die('KILL')\nhvd.init()", 137,
        say="SIGKILL", ways=BOTH),
    joins("does-not-come-to-init", "if rank == 1: time.sleep(100)\nhvd.init()", 1, show="rank 1", blame=ANY,
        options="--start-timeout 5", ways=BOTH),
    joins("a-setting-that-cannot-be", "hvd.init()", 1, show="ArgumentError: FARANDOLE_TIMEOUT=soon | {line}",
        blame=ANY, env={"FARANDOLE_TIMEOUT": "soon"}),
    joins("a-backend-that-is-none", "hvd.init()", 2, say="FARANDOLE_BACKEND | nosuch", blame=NOBODY,
        env={"FARANDOLE_BACKEND": "nosuch"}),
]
TOGETHER = [
    two("two-raise", "raise ValueError('both')", 1, show="ValueError: both", blame=(1, 2), ways=THREE,
        error="ValueError"),
    two("two-exit", "sys.exit(3)", 3, blame=(1, 2), ways="command hosts thread", quick="command"),
    two("two-are-killed", "die('KILL')", 137, say="SIGKILL", blame=(1, 2), ways=BOTH),
    every("all-raise", "raise ValueError('all')", 1, show="ValueError: all", once="Traceback", blame=ANY, ways=PAIR,
        error="ValueError"),
    each("all-are-killed", "die('KILL')", 137, say="SIGKILL", blame=ANY, ways="command hosts asyncio"),
    joins("shapes-differ", "hvd.init()\nhvd.allreduce(np.ones(2 + rank), name='x')", 1, show="MismatchError | 'x'",
        once="Traceback", blame=ANY, ways=PAIR, error="MismatchError"),
    steps("comes-too-late", "time.sleep(100)", 1, say="rank 1", show="DeadlineError",
        env={"FARANDOLE_TIMEOUT": "4", "FARANDOLE_WARN_AFTER": "1"}, ways=BOTH, quick="command"),
    joins("fails-after-the-others-ended",
        "hvd.init()\nhvd.allreduce(np.ones(2), name='x')\nif rank == 1: time.sleep(0.7); raise OSError('disk')", 1,
        show="OSError: disk", ways=THREE, error="OSError"),
    each("only-rank-0", "if rank == 0: sys.exit(3)\ntime.sleep(100)", 3, blame=(0,), ways=THREE),
    each("one-rank-alone", "sys.exit(3)", 3, blame=(0,), ranks=1, ways=PAIR),
]
CASES = [*RAISE, *EXIT, *SIGNALS, *THREADS_AND_ENDS, *BEFORE, *TOGETHER]
