"""What the moves of groups cost and what they brought: one row each in metrics/moves.parquet, as the master saw it."""

from __future__ import annotations

from typing import Any

from mpijoin.clock import RunClock
from mpijoin.config.moves import GATHER, PARTS, SPREAD
from mpijoin.coordinator.events import Moved
from mpijoin.metrics.moves import MovesFile
from mpijoin.moving import steps
from mpijoin.moving.coordinator import MOVED
from mpijoin.named import NamedTuple
from mpijoin.orders import Step
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView
from mpijoin.producer.events import Action, Command, Deliver, Hold, Redeal, TellCopy
from mpijoin.records import MoveTotals


class Shared(NamedTuple):
    """A group that so many slaves have shared at most. why: in the policy's words."""

    group: int
    slaves: int
    why: str


class MoveLog:
    """Follows each move from the order to ship until its end, and until the next decision, which shows its gain."""

    def __init__(self, file: MovesFile | None, clock: RunClock, kind: str):
        """kind: of the run's moves, one of `config.moves.MOVES`."""
        self._file, self._clock, self.kind = file, clock, kind
        self._open: dict[int, dict[str, Any]] = {}
        self._ended: list[dict[str, Any]] = []  # whose gain is not known yet
        self._period = 0
        self._loads: dict[int, float] = {}  # slave -> load at the last decision
        self.totals = MoveTotals()
        self.pause_us_max = 0
        self.took_us: list[int] = []  # by each that moved its whole group, from begin to end
        self._members: dict[int, set[int]] = {}  # of groups that are spread, or were
        self._shared: dict[int, Shared] = {}

    @property
    def shared(self) -> list[Shared]:
        """The groups that several slaves have shared, in their order."""
        return [self._shared[group] for group in sorted(self._members)]

    def decided(self, view: ClusterView, plan: Plan) -> None:
        """The policy has looked at the cluster, so it is known what the moves since its last look have brought."""
        loads = {slave.slave: slave.load for slave in view.slaves}
        for row in self._ended:
            row["gain_realised"] = row.pop("load") - loads[row["supplier"]]
            self._write(row)
        self._ended, self._loads, self._period = [], loads, view.period
        for one in plan.spreads:
            self._shared.setdefault(one.group, Shared(one.group, 1, one.why))

    def note(self, action: Action) -> None:
        """Looks at what is about to be done."""
        match action:
            case Command(move, steps.SHIP):
                self._begin(move)
            case Hold(move):
                if move not in self._open:  # Nothing of it was copied ahead.
                    self._begin(move)
                self._open[move]["frozen_us"] = self._now_us()
            case TellCopy(_, _, move, steps.DUPLICATE):  # Its input is never held back.
                self._begin(move)
                self._open[move]["frozen_us"] = self._open[move]["delivered_us"] = self._open[move]["begun_us"]
            case TellCopy(_, _, move, steps.SPREAD | steps.GIVE as step):
                self._begin(move, SPREAD if step == steps.SPREAD else GATHER)
                self._open[move]["frozen_us"] = self._open[move]["begun_us"]
            case Deliver(move) | Redeal(move):
                self._delivered(move)

    def _begin(self, move: int, kind: str = "") -> None:
        """kind: "" for that of the run's moves."""
        figures = dict.fromkeys(("bytes", "blocks", "frozen_us", "delivered_us", "transfer_us"), 0)
        self._open[move] = {"kind": kind or self.kind, "begun_us": self._now_us(), "period": self._period, **figures}

    def _delivered(self, move: int) -> None:
        row = self._open[move]
        row["delivered_us"] = self._now_us()
        self.pause_us_max = max(self.pause_us_max, row["delivered_us"] - row["frozen_us"])

    def stepped(self, step: Step) -> None:
        row = self._open.get(step.move)
        if row is not None:
            octets, transfer_s, blocks = step.figures
            known = {"bytes": octets, "blocks": blocks, "transfer_us": transfer_s and int(1e6 * transfer_s)}
            row.update({name: figure for name, figure in known.items() if figure is not None})

    def closed(self, action: Moved) -> None:
        row = self._open.pop(action.move)
        who = {"move": action.move, "group": action.group, "supplier": action.supplier, "consumer": action.consumer}
        row.update(who, outcome=action.outcome, closed_us=self._now_us(), gain_predicted=action.gain)
        row["load"] = self._loads.get(action.supplier, 0.0)
        if action.outcome == MOVED and row["kind"] in PARTS:
            self._came_or_left(row["kind"], action)
        elif action.outcome == MOVED:
            self.took_us.append(row["closed_us"] - row["begun_us"])
        self.totals = self.totals.with_one(action.outcome, row["bytes"], row["kind"])
        self._ended.append(row)

    def _came_or_left(self, kind: str, action: Moved) -> None:
        if kind == GATHER:
            self._members[action.group].discard(action.supplier)
            return
        members = self._members.setdefault(action.group, {action.supplier})
        members.add(action.consumer)
        known = self._shared[action.group]
        self._shared[action.group] = known._replace(slaves=max(known.slaves, len(members)))

    def cut(self, file: MovesFile | None) -> None:
        """At a checkpoint: what is known so far gets whole on disk, and what follows goes to `file`."""
        self.close()
        self._file = file

    def close(self) -> None:
        for row in self._ended:
            row.pop("load")
            self._write({**row, "gain_realised": None})
        self._ended = []
        if self._file:
            self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        if self._file:
            self._file.add(row)

    def _now_us(self) -> int:
        return int(1e6 * self._clock.wall_s)


def decision_text(view: ClusterView, plan: Plan) -> str:
    """What a policy saw and wants, for the log."""
    loads = " ".join(f"{one.slave}:{one.load:.2f}/{one.occupancy:.2f}" for one in view.active)
    asked = " ".join(f"{one.group}:{one.supplier}>{one.consumer}" for one in plan.moves)
    for one in plan.spreads:
        asked += f" {one.group}:{one.supplier}+{','.join(map(str, one.consumers))} ({one.why})"
    asked += "".join(f" {one.group}:-{one.member} ({one.why})" for one in plan.gathers)
    asked += "".join(f" {one.octets} B:{one.supplier}>{one.consumer}" for one in plan.relocations)
    spills = "".join(f", {one.slave} spills {one.octets} B" for one in plan.spills)
    active = "" if plan.active is None else f", active {' '.join(map(str, plan.active))}"
    return f"reorganization {view.period}: load/occupancy {loads}; moves {asked.strip() or 'none'}{spills}{active}"
