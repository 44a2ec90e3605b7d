"""What a rank's diagnosis makes of the core's reports, without a job."""

import json
import os
import signal
import threading

import pytest
from farandole._runtime.diagnosis import stacks
from farandole._runtime.diagnosis.deadlocks import Deadlocks, whom_to_ask, with_mutual
from farandole._runtime.diagnosis.delays import Delays
from farandole._runtime.diagnosis.diagnosis import Diagnosis
from farandole._runtime.diagnosis.facts import UNKNOWN_RANKS, Need, Report, Wait
from farandole._runtime.diagnosis.sentences import LastStack, Sentences


def wait_for(*missing, name="w", waited_ms=200, **facts):
    facts = {"is_named": True, "set_size": 3, "operations": 1, "who": "", **facts}
    title = f"barrier '{name}'"
    return Wait(title, f"{title} at train.py:9", waited_ms=waited_ms, missing=missing, **facts)


def report_of(*waits, needed=(), entered=5, **facts):
    facts = {"warn_after_ms": 100, "is_overdue": False, "knows_who_needs_us": True, **facts}
    return Report(entered, waits=list(waits), needed=list(needed), **facts)


# ---- delays


class Told:
    def __init__(self, warn_after_ms=100):
        self.delays, self.warn_after_ms = Delays(), warn_after_ms

    def news(self, *waits, at=0.0, mutual=False):
        return self.delays.news([(wait, mutual) for wait in waits], self.warn_after_ms, at)


def test_a_rank_is_told_once_however_many_operations_wait_for_it():
    told = Told(10_000)
    early = [wait_for(1, name="w0", waited_ms=9999), wait_for(1, name="w1", waited_ms=9998, operations=119)]
    assert told.news(*early) == []
    late = [each._replace(waited_ms=each.waited_ms + 1) for each in early]
    (delay,) = told.news(*late, at=0.001)
    assert delay.ranks == [1] and delay.first.waited_ms == 10_000
    assert delay.title == "120 operations, the first of them barrier 'w0',"
    assert told.news(*late, at=60.0) == []
    assert len(told.news(*late, at=60.002)) == 1, "a minute later"


def test_ranks_that_are_late_for_the_same_operations_are_named_together():
    first, second = wait_for(1, 2, 3, waited_ms=300), wait_for(1, 3, name="v")
    both, one = Told().news(first, second)
    assert (both.ranks, both.operations) == ([1, 3], 2)
    assert (one.ranks, one.title) == ([2], "barrier 'w'")


def test_a_rank_that_has_come_meanwhile_and_is_late_again_is_told_again():
    told = Told()
    assert len(told.news(wait_for(1, waited_ms=100))) == 1
    assert told.news(wait_for(1, name="v", waited_ms=99), at=0.001) == []
    assert len(told.news(wait_for(1, name="v", waited_ms=100), at=0.002)) == 1


def test_what_another_rank_tells_is_told_here_once_it_is_ours():
    told, others = Told(), wait_for(1, is_reported_by_peer=True)
    (delay,) = told.news(others)
    assert not delay.is_ours_to_tell
    assert told.news(others, at=0.1) == []
    own = wait_for(1, name="v", waited_ms=100)
    (delay,) = told.news(others, own, at=0.2)
    assert delay.is_ours_to_tell
    assert told.news(others, own, at=0.3) == []


def test_rank_0_has_time_to_say_who_is_missing():
    told = Told()
    assert told.news(wait_for(UNKNOWN_RANKS)) == []
    assert len(told.news(wait_for(2), at=0.05)) == 1
    assert len(told.news(wait_for(UNKNOWN_RANKS, name="v", waited_ms=10_000), at=0.1)) == 1


def test_a_rank_that_waits_for_this_one_has_time_to_say_whether_for_ever():
    told = Told()
    assert told.news(wait_for(1), mutual=True) == []
    assert len(told.news(wait_for(1, waited_ms=3100), at=2.9, mutual=True)) == 1


# ---- stacks

LIBRARY = '  File "/usr/lib/python3.11/'
MAIN = 'Thread 0x7f01 (most recent call first):\n  File "/home/u/train.py", line 3 in main\n'
OTHER = "Thread 0x7f02 (most recent call first):\n"
WAIT = f'{LIBRARY}threading.py", line 327 in wait\n'
BEGIN = f'{LIBRARY}threading.py", line 982 in run\n{LIBRARY}threading.py", line 1 in x\n\n'
WORKER = f'{LIBRARY}concurrent/futures/thread.py", line 81 in _worker\n'
TASK = f'{LIBRARY}concurrent/futures/thread.py", line 58 in run\n{WORKER}'
FEED = f'{LIBRARY}multiprocessing/queues.py", line 2 in _feed\n'
TIMELINE = '  File "/home/u/repo/core/python/farandole/_runtime/trace_writer.py", line 88 in _run\n'
TQDM = f'{LIBRARY}site-packages/tqdm/_monitor.py", line 3 in run\n'


@pytest.mark.parametrize(
    "text",
    [
        MAIN,
        OTHER + WORKER + BEGIN + MAIN,
        OTHER + WAIT + FEED + BEGIN + MAIN,
        OTHER + WAIT + WAIT + TQDM + MAIN,
        OTHER + WAIT + WAIT + TIMELINE + BEGIN + MAIN,
    ],
)
def test_nobody_may_call_where_all_threads_wait_or_are_idle(text):
    assert stacks.no_others_may_call(text, {0x7F01})
    assert not stacks.no_others_may_call(text, {0x7F03}), "as many threads, but others"


@pytest.mark.parametrize(
    "text",
    [
        OTHER + TASK + BEGIN + MAIN,  # a pool's thread that has work
        OTHER + WAIT + WAIT + BEGIN + MAIN,  # a timer
        OTHER + f'{LIBRARY}asyncio/base_events.py", line 3 in run\n' + BEGIN + MAIN,
        '  File "/home/u/train.py", line 3 in main\n' + MAIN,  # cut at the front
        MAIN + "...\n",
        "",
    ],
)
def test_a_thread_that_may_call_something_is_seen(text):
    assert not stacks.no_others_may_call(text, {0x7F01})


def test_a_pools_thread_that_waits_for_an_operation_may_not_call():
    assert stacks.no_others_may_call(OTHER + TASK + BEGIN + MAIN, {0x7F01, 0x7F02})


@pytest.mark.parametrize(
    "ours",
    [
        "/venv/lib/python3.11/site-packages/farandole/_runtime/submit.py",
        "/venv/lib/python3.11/site-packages/farandole_torch/_operations.py",
        "/home/u/repo/core/python/farandole/numpy.py",
        "/home/u/repo/plugins/torch/src/farandole_torch/__init__.py",
    ],
)
def test_frames_of_our_packages_are_skipped(ours):
    text = f'Thread 0x1 (most recent call first):\n  File "{ours}", line 35 in run\n'
    users = (
        '  File "/home/u/farandole/train.py", line 12 in step\n  File "/home/u/farandole/train.py", line 20 in main\n'
    )
    assert stacks.users_frame(text + users) == 'File "/home/u/farandole/train.py", line 12 in step'


def test_frames_of_frameworks_are_not_the_users_where_others_are():
    torch = '  File "/x/site-packages/torch/optim/optimizer.py", line 520 in wrapper\n'
    assert stacks.users_frame(torch + '  File "train.py", line 12 in main\n') == 'File "train.py", line 12 in main'
    assert stacks.users_frame(torch) == torch.strip()
    ours = '  File "/x/site-packages/farandole/_runtime/submit.py", line 35 in run\n'
    assert stacks.users_frame(ours) == ours.strip()
    assert stacks.users_frame("") == "an unknown place"


def test_the_main_thread_stands_last():
    text = 'Thread 0x2 (most recent call first):\n  File "queue.py", line 3 in get\n\n'
    assert stacks.users_frame(text + MAIN) == 'File "/home/u/train.py", line 3 in main'


def test_the_stacks_of_this_process_leave_out_the_thread_that_asks():
    found = []
    asker = threading.Thread(target=lambda: found.append(stacks.of_this_process()))
    asker.start()
    asker.join()
    assert f"{threading.get_ident():x} " in found[0] and f"{asker.ident:x} " not in found[0]
    assert __name__.rpartition(".")[2] + ".py" in found[0] and "Current thread" not in found[0]


def test_faulthandler_answers_a_signal():
    told = []
    stacks.answer_signal(lambda number, file: told.append((number, file)))
    ((number, file),) = told
    try:
        signal.raise_signal(number)
        assert b"in test_faulthandler_answers_a_signal" in os.pread(file, 1 << 16, 0)
    finally:
        stacks.faulthandler.unregister(number)
        os.close(file)


# ---- deadlocks

NEED = Need("barrier 'metric'", (1,))
BATCH = wait_for(1, name="batch")
LOOK = report_of(BATCH, needed=[NEED])


def asked():
    found = Deadlocks()
    assert whom_to_ask(LOOK) == [1]
    found.asked([1], LOOK)
    return found


def test_a_rank_that_waits_for_this_one_only_is_found():
    found = asked()
    assert found.find(LOOK, 0.0) == {}
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)
    assert found.find(LOOK, 3.0) == {"barrier 'batch'": (BATCH, 1)}
    assert found.find(LOOK, 3.1) == {}, "a signal handler may have freed it"


@pytest.mark.parametrize("waits", [[], ["barrier 'metric'", "barrier 'other'"]])
def test_a_rank_that_waits_for_something_else_too_or_may_call_is_not(waits):
    found = asked()
    found.on_answer(1, 5, waits, 0.0)
    assert found.find(LOOK, 0.0) == {}


def test_an_answer_is_void_once_this_rank_has_come_to_something():
    found = asked()
    found.on_answer(1, 6, ["barrier 'metric'"], 0.0)
    assert found.find(LOOK, 0.0) == {} and found.find(LOOK._replace(entered=6), 0.0) == {}
    found.asked([1], LOOK)
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)
    assert found.find(LOOK, 0.0)
    assert found.find(LOOK._replace(entered=6), 0.0) == {}


def test_answers_come_in_the_order_of_the_questions():
    found = Deadlocks()
    found.asked([1], report_of(BATCH))  # when nothing was known of what rank 1 needs
    found.asked([1], LOOK)
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)
    assert found.find(LOOK, 0.0) == {}
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)
    assert found.find(LOOK, 0.0)
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)  # that nobody has asked for


def test_what_ends_by_itself_is_no_deadlock():
    found = asked()
    found.on_answer(1, 5, ["barrier 'metric'"], 0.0)
    assert found.find(report_of(BATCH._replace(ends_by_itself=True)), 0.0) == {}


def test_a_wait_is_mutual_where_a_missing_rank_needs_this_one_or_that_is_unknown():
    other, own = wait_for(2), wait_for(1, ends_by_itself=True)
    assert [mutual for _, mutual in with_mutual(report_of(BATCH, other, own, needed=[NEED]))] == [True, False, False]
    unknown = report_of(other, own, knows_who_needs_us=False)
    assert [mutual for _, mutual in with_mutual(unknown)] == [True, False]


# ---- sentences


def sentences():
    return Sentences(0, lambda rank: f"rank {rank} (host h)")


def test_a_deadline_names_rank_wait_and_places():
    said = sentences()
    said.last_stacks = {1: LastStack('File "train.py", line 7 in load', 90.0, {}), 2: LastStack("File old", 10.0, {})}
    why, culprit = said.deadline(wait_for(1, waited_ms=20_000), [], 100.0)
    assert why == (
        "barrier 'w' has waited 20 s on rank 0 for rank 1 (host h); rank 1 was last seen in "
        'File "train.py", line 7 in load; raise FARANDOLE_TIMEOUT if that is normal'
    )
    assert culprit == 1


def test_a_deadline_of_a_mutual_wait_blames_nobody():
    said = sentences()
    said.last_stacks = {1: LastStack("File x", 99.0, {"barrier 'metric'": "barrier 'metric' at train.py:30"})}
    why, culprit = said.deadline(BATCH, [NEED], 100.0)
    assert "for rank 1 (host h), while rank 1 waits for rank 0 in barrier 'metric' at train.py:30: every rank" in why
    assert culprit == -1


def test_what_is_no_rank_is_told_in_its_own_words():
    gpu = wait_for(-2, who="GPU 3, which has not computed its input yet,", waited_ms=6000)
    why, culprit = sentences().deadline(gpu, [], 0.0)
    assert "on rank 0 for GPU 3, which has not computed its input yet; raise" in why and culprit == -1
    (delay,) = Told().news(gpu)
    warning = sentences().warning(delay, [])
    assert warning.startswith(
        "GPU 3, which has not computed its input yet, has kept barrier 'w' waiting for 6 s; raise"
    )


def test_a_warning_names_four_ranks_at_most():
    (delay,) = Told().news(wait_for(1, 2, 3, 4, 5, 6, waited_ms=1500))
    assert sentences().warning(delay, []) == (
        "rank 1 (host h), rank 2 (host h), rank 3 (host h), rank 4 (host h) and 2 more have kept barrier 'w' waiting "
        "for 1.5 s; look at their output first; raise FARANDOLE_WARN_AFTER if that is normal"
    )


@pytest.mark.parametrize(
    ("wait", "need", "culprit", "rule"),
    [
        (wait_for(1, set_size=2), NEED, -1, "every rank must make both calls"),
        (wait_for(1, 2), Need("barrier 'v'", (1, 2)), 0, "only rank 0 has made barrier 'w' at train.py:9"),
        (wait_for(1), NEED, 1, "only rank 1 has made barrier 'metric'"),
        (wait_for(1, set_size=2), Need("unnamed barrier number 0", (1,)), 1, "only rank 1 has made unnamed barrier"),
    ],
)
def test_a_deadlock_blames_the_odd_call(wait, need, culprit, rule):
    why, blamed = sentences().deadlock(wait, wait.missing, 1, need)
    assert blamed == culprit and rule in why


# ---- one rank


class FakeCore:
    """Remembers the calls; threads wait as `threads` says."""

    def __init__(self):
        self.calls, self.threads, self.entered, self.now = [], {}, 5, 100.0

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))

    def only_waits(self):
        return self.entered, dict(self.threads)

    def title_of_rank(self, rank):
        return f"rank {rank}"

    def names(self):
        return [call[0] for call in self.calls]


def diagnosis_of(core, stack=MAIN):
    return Diagnosis(0, core, lambda: core.now, lambda: stack)


def answer_of(*titles):
    return json.dumps({"stacks": MAIN, "waits_only_for": {title: f"{title} at train.py:1" for title in titles}})


def test_a_late_rank_is_told_and_asked_and_its_stacks_are_shown_once():
    core = FakeCore()
    diagnosis = diagnosis_of(core)
    diagnosis.on_news(report_of(wait_for(1)), [], [])
    assert core.names() == ["warn", "ask_ranks"] and core.calls[1][1] == [1]
    diagnosis.on_news(None, [], [(1, 5, answer_of())])
    diagnosis.on_news(report_of(wait_for(1, waited_ms=400)), [], [(1, 5, "plain stacks of the core\n")])
    assert core.names() == ["warn", "ask_ranks", "warn"]
    assert core.calls[2][1] == f"that is where rank 1 is, by thread, innermost call first:\n{MAIN.rstrip()}"
    diagnosis.on_news(report_of(wait_for(1, waited_ms=5000), is_overdue=True), [], [])
    assert core.calls[3][:3] == ("end_world", False, 1) and core.calls[3][4] == 5


def test_ranks_that_wait_for_each_other_end_the_job():
    core = FakeCore()
    core.threads = {0x7F01: ("barrier 'batch'", "barrier 'batch' at train.py:9")}
    diagnosis = diagnosis_of(core)
    diagnosis.on_news(LOOK, [], [])
    assert core.calls == [("ask_ranks", [1])], "no warning before the answer"
    core.now += 1
    diagnosis.on_news(LOOK, [], [(1, 5, answer_of("barrier 'metric'"))])
    name, is_deadlock, _, why, entered = core.calls[1]
    assert (name, is_deadlock, entered) == ("end_world", True, 5)
    assert "waits in barrier 'metric' at train.py:1 for rank 0" in why


def test_a_later_answer_without_calls_leaves_those_that_are_known():
    """A rank that is asked twice within a moment has looked at its calls for the first answer only."""
    core = FakeCore()
    core.threads = {0x7F01: ("barrier 'batch'", "barrier 'batch' at train.py:9")}
    diagnosis = diagnosis_of(core)
    diagnosis.on_news(LOOK, [], [])
    core.now += 1
    diagnosis.on_news(LOOK, [], [(1, 5, answer_of("barrier 'metric'")), (1, 5, answer_of())])
    assert "waits in barrier 'metric' at train.py:1 for rank 0" in core.calls[1][3]


@pytest.mark.parametrize("doubt", ["thread", "other wait", "entered", "nothing waits"])
def test_a_doubt_about_own_threads_ends_nothing(doubt):
    core = FakeCore()
    core.threads = {0x7F01: ("barrier 'batch'", "barrier 'batch' at train.py:9")}
    diagnosis = diagnosis_of(core, OTHER + TASK + BEGIN + MAIN if doubt == "thread" else MAIN)
    diagnosis.on_news(LOOK, [], [])
    if doubt == "other wait":
        core.threads[0x7F02] = "barrier 'v'", "barrier 'v'"
    elif doubt == "entered":
        core.entered = 6
    elif doubt == "nothing waits":
        core.threads = {}
    core.now += 1
    diagnosis.on_news(LOOK, [], [(1, 5, answer_of("barrier 'metric'"))])
    assert "end_world" not in core.names()


def test_a_reply_has_the_stacks_and_what_all_threads_wait_for():
    core = FakeCore()
    diagnosis = diagnosis_of(core)
    diagnosis.on_news(None, [2, 3], [])
    assert [call[:2] for call in core.calls] == [("reply", 2), ("reply", 3)]
    assert json.loads(core.calls[0][2]) == {"stacks": MAIN, "waits_only_for": {}}
    core.threads = {0x7F01: ("barrier 'w'", "f at train.py:9")}
    diagnosis.on_news(None, [2], [])
    assert json.loads(core.calls[2][2])["waits_only_for"] == {}, "the same stacks again"
    core.now += 1
    diagnosis.on_news(None, [2], [])
    assert json.loads(core.calls[3][2])["waits_only_for"] == {"barrier 'w'": "f at train.py:9"}
