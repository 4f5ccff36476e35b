"""Stories told as text: each .txt file here has events (lines that begin with "> ") and below them what the core
answers.

When a core is changed on purpose, print the new story with `python tests/scenarios/test_scenarios.py FILE` and read it.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mpijoin.coordinator import events as master
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.operators.base import Progress, Taken
from mpijoin.partitioning.table import PartitionTable, Waited
from mpijoin.policy.plan import Move, Plan
from mpijoin.producer import events as producing
from mpijoin.slave import events as slave
from mpijoin.slave.core import SlaveCore
from mpijoin.sources.base import TIME_MIN
from pacings import new_pacing

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


class MasterStory:
    """> master slaves=2 subgroups=1 buffer=100 master_buffer=1000 [collector=3] [active=1 groups=4 slots=2 paced=yes]

    Octets of a tick are those of the slaves that have groups, by rank, and then, as g7=octets, of groups that are held.
    slots: of a reorganization epoch; `> plan 0:1>2 …` is what the policy will ask for next. When a group is held, it
    has an equal share of what waits for its slave.
    """

    def __init__(
        self, slaves, subgroups, buffer, master_buffer, collector=None, active=None, groups=8, slots=None, paced="no"
    ):
        slaves = tuple(range(1, int(slaves) + 1))
        finishing = (int(collector),) if collector else ()
        self.wanted = Plan()
        own = Reorganization(lambda view: self.wanted, int(slots), 1) if slots else None
        table = PartitionTable.even(int(groups), slaves[: int(active)] if active else slaves)
        sizes = int(buffer), int(master_buffer), int(subgroups)
        pacing = new_pacing() if paced == "yes" else None
        self.core = MasterCore(MasterSetup(table, slaves, *sizes, finishing, pacing, own))

    def do(self, event):
        told = []
        for action in self.core.step(event):
            told.append(action)
            if isinstance(action, producing.Hold):
                groups = len(self.core.table.groups_of(action.slave)) + 1
                waiting = self.core.slaves[action.slave].waiting
                told += self.do(producing.Held(action.group, tuple(one.octets // groups for one in waiting)))
            if isinstance(action, producing.Deliver):
                held = self.core.producer._queues.held[action.group]
                told += self.do(producing.Delivered(action.group, (Waited(action.slave, held, ()),)))
        return told

    def tick(self, time, *octets):
        return self._ingest((int(time), int(time)), octets)

    def part(self, *octets):
        return self._ingest(None, octets)

    def _ingest(self, watermarks, words):
        held = [word[1:].split("=") for word in words if word.startswith("g")]
        octets = [int(word) for word in words if not word.startswith("g")]
        active = self.core.active
        return self.do(
            producing.Ingested(
                dict(zip(active, octets, strict=len(octets) <= len(active))),
                {int(group): int(own) for group, own in held},
                watermarks,
            )
        )

    def end(self):
        return self.do(producing.SourceEnded((99, 99)))

    def consumed(self, rank, octets):
        return self.do(producing.Consumed(int(rank), int(octets)))

    def finished(self, rank):
        return self.do(master.RankFinished(int(rank)))

    def plan(self, *moves):
        numbers = [re.fullmatch(r"(\d+):(\d+)>(\d+)", move).groups() for move in moves]
        self.wanted = Plan(tuple(Move(*map(int, own)) for own in numbers))
        return []

    def loaded(self, rank, period, backlog, busy):
        return self.do(Loaded(int(rank), int(period), float(backlog), float(busy), 0.0, ()))

    def says(self, rank, step, move):
        return self.do(master.Stepped(int(move), int(rank), step))

    def tell(self, action):
        match action:
            case producing.Serve():
                known = "nothing" if set(action.watermarks) == {TIME_MIN} else f"all before {action.watermarks[0]}"
                last = ", the last" if action.last else ""
                return f"to {action.slave}: {action.items} pieces in epoch {action.epoch}, complete: {known}{last}"
            case master.Ask(slave, period):
                return f"ask {slave} about reorganization epoch {period}"
            case master.Decided(view, _):
                return "decide on f = " + " ".join(f"{one.slave}:{one.occupancy:.2f}" for one in view.active)
            case producing.Command(move, step, slave, group, peer):
                return f"order {slave}: {step} group {group}, move {move} to {peer}"
            case producing.Hold(move, group, slave):
                return f"hold group {group} of {slave}"
            case producing.Deliver(move, group, slave):
                return f"deliver group {group} to {slave}"
            case master.Moved():
                return (
                    f"move {action.move} of group {action.group}, {action.supplier} to {action.consumer}:"
                    f" {action.outcome}"
                )
            case producing.CloseInput():
                return "close the input"
            case master.Complete():
                return "complete"

    def state(self):
        held = " ".join(f"{rank}:{sum(one.octets for one in view.waiting)}" for rank, view in self.core.slaves.items())
        paused = [f"{rank}" for rank, times in self.core.held_back_by.items() if times]
        by = f", has been held back by {' '.join(paused)}" if paused else ""
        return f"[waiting {held}; source {'is read' if self.core.wants_input else 'rests'}{by}{self._groups()}]"

    def _groups(self):
        if self.core.coordinator.reorganization is None:
            return ""
        table = self.core.table
        own = " ".join(
            f"{rank}:{','.join(map(str, table.groups_of(rank).tolist())) or '-'}" for rank in self.core.slaves
        )
        held = " ".join(f"{group}:{octets}" for group, octets in self.core.producer._queues.held.items())
        return f"; groups {own}" + (f"; held {held}" if held else "")


class SlaveStory:
    """> slave slice_rows=10 budget=5; groups of a message are 0, 1, ..., those that were frozen left out"""

    def __init__(self, slice_rows, budget):
        self.core = SlaveCore(int(slice_rows), int(budget))

    def arrived(self, epoch, octets, *rows):
        last = rows[-1:] == ("last",)
        counts = [int(word) for word in rows[: len(rows) - last] if word != "-"]
        groups = [group for group, word in enumerate(rows) if word.isdecimal()]
        return self.core.step(
            slave.Arrived(int(epoch), int(octets), np.array(groups, np.int64), np.array(counts, np.int64), last)
        )

    def order(self, move, step, group):
        return self.core.step(slave.Ordered(int(move), step, int(group)))

    def staged(self, move):
        return self.core.step(slave.Staged(int(move)))

    def own_input(self, group, rows):
        rows = np.array([int(rows)])
        return self.core.step(slave.Arrived(self.core.newest_epoch, 24, np.array([int(group)]), rows, False, True))

    def inserted(self):
        return self.core.step(slave.Inserted(Taken(1 << 30)))

    def probed(self, progress):
        return self.core.step(slave.Probed(Progress[progress.upper()]))

    def expired(self):
        return self.core.step(slave.Expired(Progress.DONE))

    def tell(self, action):
        values = " ".join(f"{name}={value}" for name, value in action._asdict().items())
        return f"{type(action).__name__} {values}".strip()

    def state(self):
        return f"[{'busy' if self.core.busy else 'idle'}, backlog {self.core.backlog_bytes} bytes]"


ROLES = {"master": MasterStory, "slave": SlaveStory}


def retell(text):
    """The story with the answers that the cores give now."""
    lines, story = [], None
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            lines.append(line)
        elif line.startswith("> "):
            lines.append(line)
            verb, *words = line[2:].split()
            if verb in ROLES:
                story = ROLES[verb](**dict(word.split("=") for word in words))
            else:
                lines += answers(story, verb, words)
    return "\n".join(lines) + "\n"


def answers(story, verb, words):
    try:
        told = [story.tell(action) for action in getattr(story, verb)(*words)]
    except ProtocolError as error:
        told = [f"refused: {error}"]
    return [*told, story.state()]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_written(path):
    assert retell(path.read_text()) == path.read_text()


def test_there_are_stories():
    assert len(STORIES) >= 9


if __name__ == "__main__":
    print(retell(Path(sys.argv[1]).read_text()), end="")
