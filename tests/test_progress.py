"""The progress display: a panel on a terminal, lines elsewhere, and never an error for the run."""

import io
import os
import pty
import subprocess
import sys

import pytest

from mpijoin.coordinator.debt import Debt
from mpijoin.progress import Progress, ProgressView, SlaveProgress, Teller, amount, panel, plain_line, seconds, size
from mpijoin.records import SpillFigures


def view(fraction=0.5, late_rows=0, slaves=2, eta_s=2.0):
    slave_views = tuple(SlaveProgress(rank + 1, 0.9 - 0.1 * rank, 10_000_000) for rank in range(slaves))
    return ProgressView(fraction, 1_000_000, 500_000.0, 1234, 20_000_000, slave_views, late_rows, 2.0, eta_s)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Broken(Terminal):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_lines_come_after_two_seconds_and_then_every_minute():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, clock=clock)
    shown_at = []
    for tenth in range(2400):
        clock.now = 100 + tenth / 10
        before = len(stream.getvalue())
        progress.update(view)
        if len(stream.getvalue()) > before:
            shown_at.append(tenth / 10)
    assert shown_at == [2.0, 62.0, 122.0, 182.0]
    progress.close("done")
    progress.update(view)
    assert stream.getvalue().splitlines() == [plain_line(view())] * 4 + ["done"]


def test_a_line_tells_all_and_late_rows_only_when_there_are_some():
    assert (
        plain_line(view())
        == "mpijoin:  50 %  1.00 M tuples  500 k/s  1.23 k results  20 MB state  load 80 % to 90 %  2 s, about 2 s left"
    )
    assert "  77 late  " in plain_line(view(late_rows=77))
    assert "left" not in plain_line(view(eta_s=None)) and "load" not in plain_line(view(slaves=0))


def rendered(shown, width=80):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(panel(shown))
    return console.export_text(clear=False), console.export_text(styles=True)


def test_the_panel_fits_eighty_columns_and_shows_each_slave():
    text, _ = rendered(view(slaves=4))
    for wanted in (
        "50 %",
        "1.00 M",
        "500 k",
        "1.23 k",
        "20 MB",
        "slave 1",
        "slave 4",
        "60 % load",
        "2 s, about 2 s left",
    ):
        assert wanted in text
    assert "late" not in text and "…" not in text
    assert max(map(len, text.splitlines())) <= 80


LARGE = ProgressView(
    0.987, 123_456_789_012, 12_345_678.0, 12_345_678_901, 999_200_000_000,
    tuple(SlaveProgress(rank, 0.9, 999_000_000 * rank) for rank in range(1, 16)), 1_234_567,
    98765.0, 123456.0, 12345, 98765.0,
)  # fmt: skip


@pytest.mark.parametrize("width", [200, 80, 70, 60, 50, 40])
def test_no_line_of_the_panel_wraps_or_is_cut_on_any_terminal(width):
    text, _ = rendered(LARGE, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= min(width, 80) and "…" not in text
    facts = ("98 %", "27 h 26 min, about 34 h 17 min left", "123 G tuples", "12.3 M tuples/s", "12.3 G results",
             "999 GB state", "12.3 k moves of groups", "90 % load  999 MB", "90 % load   12 GB",
             "+ 3 less busy", "1.23 M late rows",
             "27 h 26 min behind the clock")  # fmt: skip
    for fact in facts:
        assert any(fact in line for line in lines), fact
    assert sum("slave" in line for line in lines) == 12


def test_a_very_narrow_terminal_gets_cut_lines_and_never_more_of_them():
    text, _ = rendered(LARGE, 20)
    assert max(map(len, text.splitlines())) <= 20 and sum("slave" in line for line in text.splitlines()) == 12


SPILLING = SpillFigures(14, 3.5, 0.5, 2_000_000_000, 0, 1_200_000_000, 0, 0.5, 0, 12, 340_000_000)


def test_memory_is_shown_against_its_limit_and_what_is_spilled_and_owed():
    shown = view()._replace(limit_bytes=64_000_000, spilling=SPILLING)
    line = plain_line(shown)
    assert "  20 MB of 64 MB state  1.2 GB on disk  12 groups owed, 340 MB  3 s spilling  load" in line
    assert "clean-up" not in line
    slaves = tuple(slave._replace(disk_bytes=600_000_000) for slave in shown.slaves)
    text, _ = rendered(shown._replace(slaves=slaves))
    for wanted in ("20 MB of 64 MB state", "1.2 GB on disk", "12 groups owed, 340 MB", "10 MB, 600 MB on disk"):
        assert wanted in text
    known = shown._replace(spilling=SPILLING._replace(owed_results=3_200_000))
    assert "  12 groups owed, 340 MB  ≥ 3.20 M results owed  3 s spilling  " in plain_line(known)
    one = shown._replace(spilling=SPILLING._replace(owed_groups=1, cleanup_s=70))
    assert "  1 group owed, 340 MB  3 s spilling  1 min 10 s in clean-up  " in plain_line(one)
    assert "disk" not in plain_line(view()._replace(spilling=SpillFigures()))


def test_after_the_input_s_end_the_progress_is_that_of_the_clean_up():
    shown = view(fraction=1.0, eta_s=9.0)._replace(spilling=SPILLING, cleaned=0.42)
    assert plain_line(shown).startswith("mpijoin: clean-up 42 %  1.00 M tuples")
    assert plain_line(shown).endswith("2 s, about 9 s left")
    text, _ = rendered(shown)
    assert "42 % of the clean-up" in text and "100 %" not in text


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_panel_with_all_of_spilling_is_not_cut(width):
    spilling = SpillFigures(10**6, 98765, 98765, 10**15, 10**15, 999 * 10**9, 0, 98765, 10**12, 999, 999 * 10**9)
    slaves = tuple(slave._replace(disk_bytes=999 * 10**9) for slave in LARGE.slaves)
    large = LARGE._replace(spilling=spilling, cleaned=0.999, limit_bytes=999 * 10**9, slaves=slaves)
    text, _ = rendered(large, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for fact in ("999 groups owed, 999 GB", "27 h 26 min in clean-up", "99 % of the clean-up"):
        assert fact in text


def owed(owed_bytes, cleanup_s=0.0, spills=9):
    return SpillFigures(spills=spills, cleanup_s=cleanup_s, owed_bytes=owed_bytes)


def test_the_clean_up_s_progress_is_counted_from_the_most_that_was_owed_after_the_end():
    debt = Debt()
    debt.note(owed(10_000, spills=8), 1.0, input_ended=False)
    debt.note(owed(600, 5.0, spills=8), 2.0, input_ended=False)  # It was worked off while there was nothing to join.
    assert debt.cleaned is None and debt.left_s(2.0) is None
    debt.note(owed(1_000, 5.0), 3.0, input_ended=True)
    assert debt.cleaned is None
    debt.note(owed(1_000, 5.5), 4.0, input_ended=True)
    assert debt.cleaned == 0 and debt.left_s(4.0) is None
    debt.note(owed(250, 7.5), 6.0, input_ended=True)
    assert debt.cleaned == 0.75 and debt.left_s(6.0) == pytest.approx(1.0)
    debt.note(owed(0, 8.5), 7.0, input_ended=True)
    assert debt.cleaned == 1 and debt.left_s(7.0) == 0


def test_a_run_that_never_spilled_has_no_clean_up_to_show():
    debt = Debt()
    for now_s in range(3):
        debt.note(SpillFigures(), now_s, input_ended=now_s > 0)
    assert debt.cleaned is None and debt.left_s(3.0) is None


def test_late_rows_are_amber():
    text, styled = rendered(view(late_rows=1500))
    assert "1.50 k late rows" in text
    assert "\x1b[1;33m1.50 k late rows" in styled


def test_of_many_slaves_the_busiest_are_shown_in_rank_order():
    slaves = tuple(SlaveProgress(rank, rank / 100, 0) for rank in range(1, 41))
    text, _ = rendered(view()._replace(slaves=slaves))
    assert "slave 29" in text and "slave 40" in text and "slave 28" not in text and "+ 28 less busy" in text
    assert text.index("slave 29") < text.index("slave 40")


def test_the_panel_is_drawn_at_most_every_interval_and_gives_way_to_the_last_line():
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, interval_s=0.25, clock=clock)
    drawn = 0
    for hundredth in range(100):
        clock.now = 100 + hundredth / 100
        before = len(stream.getvalue())
        progress.update(lambda: view(fraction=hundredth / 100))
        drawn += len(stream.getvalue()) > before
    assert drawn == 4
    progress.close("done")
    assert stream.getvalue().endswith("done\n")


@pytest.mark.parametrize("stream", [Broken(), io.StringIO()])
def test_a_stream_that_is_gone_never_raises(stream):
    if not isinstance(stream, Broken):
        stream.close()
    clock = Clock()
    progress = Progress(stream, clock=clock)
    for _ in range(3):
        clock.now += 5
        progress.update(view)
    progress.close("done")


def test_a_pipe_that_breaks_in_the_middle_of_a_panel_never_raises():
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, clock=clock)
    progress.update(view)
    stream.close()
    clock.now += 5
    progress.update(view)
    progress.close("done")


def test_a_terminal_that_knows_no_bars_gets_lines():
    class Plain(Terminal):
        encoding = "ascii"

    stream, clock = Plain(), Clock()
    progress = Progress(stream, clock=clock)
    progress.update(view)
    clock.now += 2
    progress.update(view)
    assert stream.getvalue() == plain_line(view()) + "\n"


SCRIPT = """
import sys
from mpijoin.coordinator.debt import Debt
from mpijoin.progress import Progress, ProgressView
progress = Progress(interval_s=0)
progress.update(lambda: ProgressView(0.5, 10, 5.0, 3, 100, (), 0, 2.0))
progress.close("the end")
print("rich" in sys.modules)
"""


def test_rich_is_loaded_for_a_real_terminal_only():
    plain = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (
        plain.stdout == "False\n" and plain.stderr.endswith("the end\n") and plain.stderr.startswith("mpijoin:  50 %")
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    shown = subprocess.run(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=slave, text=True, timeout=60, env=environment
    )
    os.close(slave)
    text = os.read(master, 1 << 16).decode()
    os.close(master)
    assert shown.stdout == "True\n" and "━" in text and text.endswith("the end\r\n")


def test_figures_keep_three_digits_or_two():
    assert [amount(n) for n in (0, 999, 1000, 9_994, 99_950, 1e12, 1e16)] == [
        "0",
        "999",
        "1.00 k",
        "9.99 k",
        "100 k",
        "1.00 T",
        "10000 T",
    ]
    assert [size(n) for n in (999, 1_000, 9_990, 99_600, 5e8)] == ["999 B", "1.0 KB", "10 KB", "100 KB", "500 MB"]
    assert [seconds(n) for n in (0, 59.9, 60, 3600)] == ["0 s", "59 s", "1 min 00 s", "1 h 00 min"]


def test_a_quiet_teller_tells_a_pipe_what_came_out_and_a_terminal_nothing(capsys, monkeypatch):
    cases = ((False, True, "all\n"), (False, False, "all\n"), (True, True, ""), (True, False, "line\n"))
    for is_quiet, is_terminal, out in cases:
        teller = Teller("prepare", is_quiet)
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        teller.say("reading")
        teller.result("all", "line")
        assert capsys.readouterr() == (out, "" if is_quiet else "mpijoin prepare: reading\n")


def test_a_quiet_one_says_only_what_is_wrong():
    stream, clock = io.StringIO(), Clock()
    for is_bad in (False, True):
        progress = Progress(stream, clock=clock, quiet=True)
        progress.note("go on with")
        clock.now += 1000
        progress.update(view)
        progress.close("the end", is_bad)
    assert stream.getvalue() == "the end\n"
