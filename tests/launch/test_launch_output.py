"""Whole lines of many ranks on one screen. Pure: a script of events in, bytes out."""

from __future__ import annotations

import random

import pytest
from farandole.launch.output import LAUNCHER, LINE_LIMIT, PlainScreen, Screen, Source, Style, TerminalScreen

ERASE = b"\r\x1b[K"


class Typist:
    """Feeds a screen as the relay does, and keeps what it wrote."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.written = b""
        self.now = 0.0

    def feed(self, source: Source, data: bytes) -> None:
        lines = source.take(data, self.now)
        if lines:
            self.written += self.screen.lines(source, lines)
        if source.progress:
            self.written += self.screen.unfinished(source, self.now)

    def wait(self, *sources: Source) -> None:
        self.now += 1.0
        for source in sources:
            self.written += self.screen.unfinished(source, self.now)

    def end(self, *sources: Source) -> None:
        for source in sources:
            self.written += self.screen.lines(source, source.rest())


def plain(**style: bool) -> Typist:
    return Typist(PlainScreen(Style(**style), prompts=True))


def terminal(columns: int = 80) -> Typist:
    return Typist(TerminalScreen(Style(), columns=lambda: columns))


def test_each_line_has_its_prefix() -> None:
    typist, one = plain(), Source(1)
    typist.feed(one, b"a\n\nb")
    typist.feed(one, b"c\n")
    assert typist.written == b"[1] a\n[1] \n[1] bc\n"


def test_an_unfinished_line_is_finished_at_the_end() -> None:
    typist, one = plain(), Source(1)
    typist.feed(one, b"a")
    typist.end(one)
    assert typist.written == b"[1] a\n"


def test_an_unfinished_line_of_one_rank_waits_while_others_write() -> None:
    typist, one, two = plain(), Source(1), Source(2)
    typist.feed(one, b"a")
    typist.wait(one)
    typist.feed(two, b"x\n")
    typist.feed(one, b"b\n")
    assert typist.written == b"[2] x\n[1] ab\n"


def test_no_prefix_means_the_bytes_alone() -> None:
    typist, one = plain(prefix=False), Source(1)
    typist.feed(one, b"a\xff\x00\nb\r\n")
    assert typist.written == b"a\xff\x00\nb\r\n"


def test_our_own_messages_have_no_prefix() -> None:
    typist = plain()
    typist.feed(Source(LAUNCHER), b"farandole: x\n")
    assert typist.written == b"farandole: x\n"


def test_colour_is_around_the_prefix_only() -> None:
    typist = plain(color=True)
    typist.feed(Source(1), b"a\n")
    assert typist.written == b"\x1b[33m[1]\x1b[0m a\n"


def test_the_time_follows_the_prefix() -> None:
    typist = Typist(PlainScreen(Style(timestamp=True, now=lambda: 1.25), prompts=True))
    typist.feed(Source(1), b"a\n")
    assert typist.written[:4] == b"[1] " and typist.written.endswith(b":01.250 a\n")


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_any_pieces_come_through_whole(seed: int) -> None:
    dice = random.Random(seed)
    typist = plain()
    sources = [Source(rank) for rank in range(3)]
    alphabet = b"\n\n\x00\xff\xc3ab \x1b"  # no carriage returns: lines with them may be ended for another rank's
    sent = {source.rank: bytes(dice.choice(alphabet) for _ in range(500)) for source in sources}
    rest = dict(sent)
    while any(rest.values()):
        source = dice.choice(sources)
        size = dice.randrange(20)
        typist.feed(source, rest[source.rank][:size])
        rest[source.rank] = rest[source.rank][size:]
        if dice.random() < 0.1:
            typist.now += 0.15
    typist.end(*sources)
    for rank, data in sent.items():
        prefix = f"[{rank}] ".encode()
        lines = [line[len(prefix) :] for line in typist.written.split(b"\n") if line.startswith(prefix)]
        assert b"\n".join(lines) == data.removesuffix(b"\n")


def test_a_line_without_end_is_cut_and_not_kept() -> None:
    typist, one = plain(), Source(1)
    for _ in range(40):
        typist.feed(one, b"x" * 65536)
        assert len(one.pending) < LINE_LIMIT
    typist.end(one)
    assert typist.written.replace(b"[1] ", b"").replace(b"\n", b"") == b"x" * 65536 * 40
    assert typist.written.count(b"\n") == 3


class TestProgressOnAPipe:
    def test_it_is_shown_at_once_and_unchanged(self) -> None:
        typist, one = plain(), Source(0)
        typist.feed(one, b"\r 10%")
        assert typist.written == b"[0] \r 10%"
        typist.feed(one, b"\r 20%")
        typist.feed(one, b"\ndone\n")
        assert typist.written == b"[0] \r 10%\r 20%\n[0] done\n"

    def test_another_rank_s_line_is_not_mixed_with_it(self) -> None:
        typist, zero, one = plain(), Source(0), Source(1)
        typist.feed(zero, b"\r 10%")
        typist.feed(one, b"hello\n")
        typist.feed(zero, b"\r 20%")
        typist.end(zero, one)
        assert typist.written == b"[0] \r 10%\n[1] hello\n[0] \r 20%\n"

    def test_bars_of_higher_ranks_wait_for_their_end(self) -> None:
        typist, zero, one = plain(), Source(0), Source(1)
        typist.feed(zero, b"\r 10%")
        typist.feed(one, b"\r 11%")
        typist.feed(one, b"\r 12%\n")
        typist.feed(zero, b"\r 20%\n")
        assert typist.written == b"[0] \r 10%\n[1] \r 11%\r 12%\n[0] \r 20%\n"

    def test_a_bar_that_ended_before_another_s_line_leaves_no_empty_line(self) -> None:
        typist, zero, one = plain(), Source(0), Source(1)
        typist.feed(zero, b"\r 10%")
        typist.feed(one, b"hello\n")
        typist.feed(zero, b"\n")
        assert typist.written == b"[0] \r 10%\n[1] hello\n"


class TestPrompts:
    def test_a_question_of_rank_0_is_shown_after_a_while(self) -> None:
        typist, zero, one = plain(), Source(0), Source(1)
        typist.feed(zero, b"name? ")
        assert typist.written == b""
        typist.wait(zero)
        assert typist.written == b"[0] name? "
        typist.feed(one, b"x\n")
        typist.feed(zero, b"hello\n")
        assert typist.written == b"[0] name? \n[1] x\n[0] hello\n"

    @pytest.mark.parametrize(("rank", "text"), [(0, b"half a line"), (1, b"name? ")])
    def test_other_unfinished_lines_wait(self, rank: int, text: bytes) -> None:
        typist, source = plain(), Source(rank)
        typist.feed(source, text)
        typist.wait(source)
        assert typist.written == b""

    def test_nobody_is_asked_without_stdin(self) -> None:
        typist, zero = Typist(PlainScreen(Style(), prompts=False)), Source(0)
        typist.feed(zero, b"name? ")
        typist.wait(zero)
        assert typist.written == b""


class TestTerminal:
    def test_a_bar_is_redrawn_below_other_lines(self) -> None:
        typist, zero, one = terminal(), Source(0), Source(1)
        typist.feed(zero, b"\r 10%")
        typist.feed(one, b"hello\n")
        typist.feed(zero, b"\r 20%\n")
        assert typist.written == (ERASE + b"[0]  10%" + ERASE + b"[1] hello\n[0]  10%" + ERASE + b"[0]  20%\n")

    def test_the_lowest_rank_s_bar_is_shown(self) -> None:
        typist, zero, one = terminal(), Source(0), Source(1)
        typist.feed(one, b"\r 11%")
        typist.feed(zero, b"\r 10%")
        typist.feed(one, b"\r 12%")
        assert typist.written == ERASE + b"[1]  11%" + ERASE + b"[0]  10%"
        typist.end(one)
        assert typist.written.endswith(ERASE + b"[1]  12%\n[0]  10%")

    def test_a_bar_that_runs_for_long_takes_no_memory(self) -> None:
        typist, zero, one = terminal(), Source(0), Source(1)
        for percent in range(1000):
            typist.feed(zero, b"\r %d%%" % percent)
            typist.feed(one, b"\r %d%%" % percent)
        assert len(zero.pending) < 10 and len(one.pending) < 10

    def test_an_unfinished_line_is_shown_after_a_while_and_never_torn(self) -> None:
        typist, two, one = terminal(), Source(2), Source(1)
        typist.feed(two, b"loading ... ")
        typist.wait(two)
        typist.feed(one, b"x\n")
        typist.feed(two, b"done\n")
        assert typist.written == (
            ERASE + b"[2] loading ... " + ERASE + b"[1] x\n[2] loading ... " + ERASE + b"[2] loading ... done\n"
        )

    def test_an_unfinished_line_is_cut_to_the_width(self) -> None:
        typist, zero = terminal(columns=10), Source(0)
        typist.feed(zero, "\r0123456789é".encode())
        assert typist.written == ERASE + b"[0] 01234"

    def test_windows_line_ends_are_line_ends(self) -> None:
        typist, zero = terminal(), Source(0)
        typist.feed(zero, b"a\r\nb\r\n")
        assert typist.written == b"[0] a\n[0] b\n"


def test_a_status_stands_in_the_last_line_below_the_ranks_lines_until_it_ends() -> None:
    screen, us, rank = TerminalScreen(Style(), columns=lambda: 30), Source(LAUNCHER), Source(3)
    assert (
        screen.status(us, "farandole: waiting for h1 (3 s), which is long") == ERASE + b"farandole: waiting for h1 (3 "
    )
    assert screen.lines(rank, b"a line\n") == ERASE + b"[3] a line\n" + b"farandole: waiting for h1 (3 "
    assert screen.status(us, "") == ERASE
    assert screen.status(us, "") == b""  # nothing stands there
    assert screen.lines(rank, b"more\n") == b"[3] more\n"
