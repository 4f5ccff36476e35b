"""What rank 0 shows while a run goes on: a panel on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, TextIO

from mpijoin.named import NamedTuple
from mpijoin.records import SpillFigures

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

PANEL_INTERVAL_S = 0.25  # four pictures a second are smooth enough and cost less than 1 % of a core
LINE_INTERVAL_S = 60.0  # a log of a day has 1440 of them
LINE_FIRST_S = 2.0  # the first one soon: it says that the run goes on, and when it may be done
QUIET = "print nothing unless it fails; only a pipe gets the line that says what came out"  # --quiet, where no run is
SLAVES_SHOWN = 12
DISK_SHOWN_CELLS = 46  # a narrower panel has no room for what each slave has on disk
PANEL_CELLS_MAX = 80
FRAME_CELLS = 4  # the panel's frame, and the blanks inside it
BAR_CELLS, BAR_CELLS_MIN = 24, 4


class SlaveProgress(NamedTuple):
    """One slave: `load` = 1 - idle share, 0 to 1; its joined state in bytes, in memory, and on the disk."""

    rank: int
    load: float
    state_bytes: int
    disk_bytes: int = 0


class ProgressView(NamedTuple):
    """One moment of a run. `fraction` of the input read, 0 to 1; `late_rows` of all streams; `eta_s` None: unknown;
    `moves` of groups, `comparisons` of tuples so far; `behind_s`: how far an overloaded paced run is behind its time,
    else 0; `limit_bytes`: memory of all slaves for their state, 0: unknown; `spilling` of all slaves; `cleaned`: once
    the input has ended and the clean-up has begun, the share of the debt that is worked off, 0 to 1."""

    fraction: float
    tuples: int
    tuples_per_s: float
    results: int
    state_bytes: int
    slaves: tuple[SlaveProgress, ...]
    late_rows: int
    elapsed_s: float
    eta_s: float | None = None
    moves: int = 0
    behind_s: float = 0.0
    comparisons: int = 0
    limit_bytes: int = 0
    spilling: SpillFigures = SpillFigures()
    cleaned: float | None = None


class Teller(NamedTuple):
    """What a command other than `run` says under its name: its progress on stderr and its outcome on stdout. If it is
    quiet, it says nothing of the first, and of the second only `line`, if stdout is no terminal."""

    command: str
    is_quiet: bool = False

    def say(self, text: str) -> None:
        if not self.is_quiet:
            print(f"mpijoin {self.command}: {text}", file=sys.stderr, flush=True)

    def result(self, text: str, line: str) -> None:
        if not self.is_quiet:
            print(text)
        elif not sys.stdout.isatty():
            print(line)


class Progress:
    """Shows views on `stream`; `update` may be called at any rate and draws at most every `interval_s`.

    A terminal gets a panel that is redrawn in place. Anything else, such as the log of a batch job or what mpirun
    collects, gets a line a minute, the first of them 2 s after the first view. A stream that refuses (closed pipe,
    lost terminal) ends the display, never the run: no method raises for that. A quiet one shows bad news only.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        interval_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
    ):
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._live: Live | None = None
        terminal = _is_terminal(self._stream)
        self._interval_s = interval_s if interval_s is not None else PANEL_INTERVAL_S if terminal else LINE_INTERVAL_S
        self._delay_s = 0.0 if terminal else min(LINE_FIRST_S, self._interval_s)
        self._next_s: float | None = None
        self._draw = self._draw_panel if terminal else self._draw_line
        self._quiet = self._broken = quiet

    def update(self, make_view: Callable[[], ProgressView]) -> None:
        """Show what `make_view` gives if the last view is old enough."""
        now = self._clock()
        if self._next_s is None:
            self._next_s = now + self._delay_s
        if now < self._next_s or self._broken:
            return
        self._next_s = now + self._interval_s
        self._attempt(lambda: self._draw(make_view()))

    def note(self, line: str) -> None:
        """Show a line that stays, before the first view."""
        self._attempt(lambda: print(line, file=self._stream, flush=True))

    def close(self, final_line: str = "", is_bad: bool = False) -> None:
        """Take the panel away and leave `final_line` (may be several lines) in its place; a quiet one only if it
        `is_bad` news."""
        self._attempt(self._stop_panel)
        self._broken = True
        if final_line and (is_bad or not self._quiet):
            # Tried even when the panel broke: the cause may have been the panel's own characters.
            with suppress(OSError, ValueError):
                print(final_line, file=self._stream, flush=True)

    def _attempt(self, act: Callable[[], None]) -> None:
        # ValueError is what Python raises on a stream that was closed.
        try:
            if not self._broken:
                act()
        except (OSError, ValueError):
            self._broken = True
            with suppress(OSError, ValueError):
                self._stop_panel()

    def _draw_line(self, view: ProgressView) -> None:
        print(plain_line(view), file=self._stream, flush=True)

    def _draw_panel(self, view: ProgressView) -> None:
        if self._live is None:
            self._live = _live_display(self._stream)
            self._live.start()
        self._live.update(panel(view), refresh=True)

    def _stop_panel(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def plain_line(view: ProgressView) -> str:
    """A view as one line without control characters.

    >>> plain_line(ProgressView(0.5, 1_000_000, 250_000.0, 42, 3_200_000, (SlaveProgress(1, 0.9, 3_200_000),), 7, 4.0,
    4.0)) 'mpijoin:  50 %  1.00 M tuples  250 k/s  42 results  3.2 MB state  load 90 %  7 late  4 s, about 4 s left'
    """
    loads = [slave.load for slave in view.slaves]
    parts = [
        f"mpijoin: {_percent(view.fraction) if view.cleaned is None else f'clean-up {_percent(view.cleaned).strip()}'}",
        f"{amount(view.tuples)} tuples",
        f"{amount(view.tuples_per_s)}/s",
        f"{amount(view.results)} results",
        f"{_state(view)} state",
        *(" ".join(fact) for fact in _spill_facts(view.spilling)),
    ]
    if loads:
        span = _percent(max(loads)) if len(loads) == 1 else f"{_percent(min(loads))} to {_percent(max(loads))}"
        parts.append(f"load {' '.join(span.split())}")
    if view.fraction == 1 and view.comparisons:  # then only this shows that there is work left
        parts.append(f"{amount(view.comparisons)} comparisons")
    if view.moves:
        parts.append(f"{amount(view.moves)} moves")
    if view.late_rows:
        parts.append(f"{amount(view.late_rows)} late")
    if view.behind_s:
        parts.append(f"overloaded, {seconds(view.behind_s)} behind")
    return "  ".join([*parts, _times(view)])


def panel(view: ProgressView) -> RenderableType:
    """A view as the panel that terminals show, in lines that never wrap, whatever the terminal's width."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel

    class Fitted:
        """Lays its lines out for the width that it is given when it is drawn."""

        def __rich_console__(self, console: Any, options: Any) -> Iterator[RenderableType]:
            lines = _panel_lines(view, min(options.max_width, PANEL_CELLS_MAX) - FRAME_CELLS)
            inside = Group(*map(_text, lines))
            yield Panel(inside, box.ROUNDED, title="mpijoin", title_align="left", expand=False, border_style="dim")

    return Fitted()


def _panel_lines(view: ProgressView, width: int) -> list[str]:
    """The panel's lines as rich markup, each of at most `width` cells where its shortest words allow it."""
    head = f"{_bar(view.fraction, 'cyan', _bar_cells(width, 8))}  [bold]{_percent(view.fraction)}[/]"
    if view.cleaned is not None:
        cleaned = f"[bold]{_percent(view.cleaned)}[/] of the clean-up"
        head = f"{_bar(view.cleaned, 'blue', _bar_cells(width, 24))}  {cleaned}"
    facts = [
        f"[bold]{amount(view.tuples)}[/] tuples",
        f"[bold]{amount(view.tuples_per_s)}[/] tuples/s",
        f"[bold]{amount(view.results)}[/] results",
        f"[bold]{_state(view)}[/] state",
        *(f"[bold]{value}[/] {words}" for value, words in _spill_facts(view.spilling)),
    ]
    if view.fraction == 1 and view.comparisons:
        facts.append(f"[bold]{amount(view.comparisons)}[/] comparisons")
    if view.moves:
        facts.append(f"[bold]{amount(view.moves)}[/] moves of groups")
    lines = [*_filled([head, f"[dim]{_times(view)}[/]"], width), *_filled(facts, width)]
    lines += _slave_lines(view.slaves, width)
    if view.late_rows:
        late = [f"[bold yellow]{amount(view.late_rows)} late rows[/]", "[yellow]left out of the join, kept in late/[/]"]
        lines += _filled(late, width, " ")
    if view.behind_s:
        behind = f"[yellow]{seconds(view.behind_s)} behind the clock[/]"
        lines += _filled(["[bold yellow]overloaded[/]", behind], width, " ")
    return lines


def _state(view: ProgressView) -> str:
    """The state in memory, against the limit where it is known."""
    return size(view.state_bytes) + (f" of {size(view.limit_bytes)}" if view.limit_bytes else "")


def _spill_facts(spilling: SpillFigures) -> list[tuple[str, str]]:
    """What a run says that has spilled: each fact is a value, and what it is a value of."""
    if not spilling.spills:
        return []
    facts = [(size(spilling.disk_bytes), "on disk")]
    if spilling.owed_groups:
        groups = "group" if spilling.owed_groups == 1 else "groups"
        facts.append((amount(spilling.owed_groups), f"{groups} owed, {size(spilling.owed_bytes)}"))
    if spilling.owed_results:
        facts.append((f"≥ {amount(spilling.owed_results)}", "results owed"))
    spent = {"spilling": spilling.spill_s, "in clean-up": spilling.cleanup_s}
    return facts + [(seconds(span_s), doing) for doing, span_s in spent.items() if span_s >= 1]


def _slave_lines(slaves: tuple[SlaveProgress, ...], width: int) -> Iterator[str]:
    """The slaves in rank order. If there are many, only the busiest, since they set the pace."""
    shown = sorted(sorted(slaves, key=lambda slave: -slave.load)[:SLAVES_SHOWN])
    digits = len(str(max((slave.rank for slave in shown), default=0)))
    room = width >= DISK_SHOWN_CELLS
    for slave in shown:
        on_disk = f", {size(slave.disk_bytes)} on disk" if slave.disk_bytes and room else ""
        color = "green" if slave.load < 0.9 else "magenta"
        parts = [
            f"slave {slave.rank:<{digits}}",
            _bar(slave.load, color, _bar_cells(width, 48 if on_disk else 30)),
            f"{_percent(slave.load)} load",
            f"{size(slave.state_bytes):>6}{on_disk}",
        ]
        yield "  ".join(part for part in parts if part)
    if len(shown) < len(slaves):
        yield f"[dim]+ {len(slaves) - len(shown)} less busy[/]"


def _filled(items: Sequence[str], width: int, between: str = "   ") -> Iterator[str]:
    """The items in as few lines as hold them, none of them broken."""
    line = ""
    for item in items:
        longer = f"{line}{between}{item}" if line else item
        if line and _text(longer).cell_len > width:
            yield line
            longer = item
        line = longer
    yield line


def _text(markup: str) -> Any:
    from rich.text import Text

    text = Text.from_markup(markup, overflow="ellipsis")
    text.no_wrap = True
    return text


def _bar_cells(width: int, beside: int) -> int:
    """The length of a bar beside so many cells; 0 if there is no room for one."""
    cells = min(BAR_CELLS, width - beside)
    return cells if cells >= BAR_CELLS_MIN else 0


def _bar(fraction: float, color: str, cells: int) -> str:
    filled = round(min(1.0, max(0.0, fraction)) * cells)
    return f"[{color}]{'━' * filled}[/][dim]{'─' * (cells - filled)}[/]" if cells else ""


def _live_display(stream: TextIO) -> Live:
    from rich.console import Console
    from rich.live import Live

    class PatientConsole(Console):
        """Rich ends the process when its pipe breaks. Here the run goes on without a display."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError("the progress display's stream is gone")

    # Transient: the final line takes the panel's place. Redrawn by `update` alone: no thread beside the kernels.
    return Live(
        console=PatientConsole(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _is_terminal(stream: TextIO) -> bool:
    """Whether it is a terminal that can show the panel's bars."""
    try:
        return stream.isatty() and (stream.encoding or "").lower().startswith("utf")
    except (OSError, ValueError):
        return False


def _percent(fraction: float) -> str:
    # Cut, not rounded: 100 % stands for all of it.
    return f"{int(min(1.0, max(0.0, fraction)) * 100 + 1e-9):3d} %"


def _times(view: ProgressView) -> str:
    left = f", about {seconds(view.eta_s)} left" if view.eta_s is not None else ""
    return f"{seconds(view.elapsed_s)}{left}"


def seconds(span_s: float) -> str:
    """A span in the words of a clock.

    >>> seconds(4.2), seconds(75), seconds(7322)
    ('4 s', '1 min 15 s', '2 h 02 min')
    """
    whole = int(span_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def amount(count: float) -> str:
    """A count in three digits.

    >>> amount(42), amount(5_880_000), amount(999_999)
    ('42', '5.88 M', '1.00 M')
    """
    return _scaled(count, ("", " k", " M", " G", " T"))


def size(size_bytes: float) -> str:
    """A size in three digits, in powers of 1000.

    >>> size(0), size(3_200_000)
    ('0 B', '3.2 MB')
    """
    return _scaled(size_bytes, (" B", " KB", " MB", " GB", " TB"), digits=2)


def _scaled(value: float, units: tuple[str, ...], digits: int = 3) -> str:
    step = 0
    while value >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    if not step:
        return f"{value:.0f}{units[0]}"
    whole = len(str(int(float(f"{value:.{digits}g}"))))  # digits before the point, once it is rounded
    return f"{value:.{max(0, digits - whole)}f}{units[step]}"
