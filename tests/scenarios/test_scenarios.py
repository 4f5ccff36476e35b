"""Stories told as text: each .txt file here has events (lines that begin with "> ") and below them what the core answers.

When a core is changed on purpose, print the new story with `python tests/scenarios/test_scenarios.py FILE` and read it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from mpijoin.errors import ProtocolError
from mpijoin.master import core as master
from mpijoin.operators.base import Progress
from mpijoin.slave import core as slave

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


class MasterStory:
    """> master slaves=2 subgroups=1 buffer=100 master_buffer=1000 [collector=3]"""

    def __init__(self, slaves, subgroups, buffer, master_buffer, collector=None):
        self.slaves = range(1, int(slaves) + 1)
        finishing = (int(collector),) if collector else ()
        self.core = master.MasterCore(tuple(self.slaves), int(subgroups), int(buffer), int(master_buffer), finishing)

    def tick(self, time, *octets):
        return self._ingest((int(time), int(time)), octets)

    def part(self, *octets):
        return self._ingest(None, octets)

    def _ingest(self, watermarks, octets):
        return self.core.step(master.Ingested(dict(zip(self.slaves, map(int, octets), strict=True)), watermarks))

    def end(self):
        return self.core.step(master.SourceEnded((99, 99)))

    def consumed(self, rank, octets):
        return self.core.step(master.Consumed(int(rank), int(octets)))

    def finished(self, rank):
        return self.core.step(master.RankFinished(int(rank)))

    def tell(self, action):
        if isinstance(action, master.Complete):
            return "complete"
        known = "nothing" if action.watermarks == master.NEVER else f"all before {action.watermarks[0]}"
        last = ", the last" if action.last else ""
        return f"to {action.slave}: {action.pieces} pieces in epoch {action.epoch}, complete: {known}{last}"

    def state(self):
        held = " ".join(f"{rank}:{sum(one.octets for one in view.waiting)}" for rank, view in self.core.slaves.items())
        paused = [f"{rank}" for rank, times in self.core.held_back_by.items() if times]
        by = f", has been held back by {' '.join(paused)}" if paused else ""
        return f"[waiting {held}; source {'is read' if self.core.wants_input else 'rests'}{by}]"


class SlaveStory:
    """> slave slice_rows=10 budget=5"""

    def __init__(self, slice_rows, budget):
        self.core = slave.SlaveCore(int(slice_rows), int(budget))

    def arrived(self, epoch, octets, *rows):
        last = rows[-1:] == ("last",)
        groups = np.array(rows[: len(rows) - last], np.int64)
        return self.core.step(slave.Arrived(int(epoch), int(octets), groups, last))

    def inserted(self):
        return self.core.step(slave.Inserted())

    def probed(self, progress):
        return self.core.step(slave.Probed(Progress[progress.upper()]))

    def expired(self):
        return self.core.step(slave.Expired())

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
