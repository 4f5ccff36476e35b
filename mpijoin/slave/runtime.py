"""A slave's loop: it receives slots, carries out what SlaveCore decides, and sends results, reports and groups."""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mpijoin.checkpoint.saver import Saver
from mpijoin.config.inject import holds_at
from mpijoin.errors import ProtocolError
from mpijoin.launch.roles import RunSetup
from mpijoin.messages import AnyMessage, Finished, Marker, Report, Slot, State
from mpijoin.moving import steps
from mpijoin.operators.base import Operator
from mpijoin.orders import AskLoads, ComputePartitions, Order, SpillOrder
from mpijoin.rank import MASTER, WAIT_S, Rank
from mpijoin.records import Counts, PartInfo
from mpijoin.slave import events
from mpijoin.slave.batches import Batches
from mpijoin.slave.handover import HandOver
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.inserting import Inserter
from mpijoin.slave.outlets import Outlets, Way
from mpijoin.slave.pressure import MemoryPressure
from mpijoin.slave.report import EpochMeter, LoadMeter
from mpijoin.slave.rotating import new_core
from mpijoin.slave.saving import Savings
from mpijoin.slave.spilling import Spilling, spill_rule
from mpijoin.slave.totals import counts_of, figures_of, plans_of
from mpijoin.store.state import TIME_MAX_VALUE
from mpijoin.time_events import Rest, Ticked
from mpijoin.transport.base import Channel, Data

if TYPE_CHECKING:
    from mpijoin.spill.forms import AnySpiller

# While more bytes of results than this are on their way to the collector, joining waits.
UNSENT_BYTES_MAX = 16 << 20
WORK_S = 0.002
# The operator is told what these take.
JOINING = (events.Insert, events.Probe, events.Pause, events.Expire)
SLEEP_S = 0.005  # A slave made slow on purpose sleeps so long between two looks at the network.


class Slave:
    def __init__(
        self,
        setup: RunSetup,
        rank: Rank,
        operator: Operator,
        groups: Sequence[int] = (),
        resumed: int = 0,
        spiller: AnySpiller | None = None,
        allowed: Callable[[], int] | None = None,
    ):
        """operator: what it joins with · groups: those that the operator holds already, if the run goes on from a
        checkpoint · resumed: the number of that checkpoint, or 0 if the run begins · spiller: where the operator's
        state goes if memory is short; None: the run fails then · allowed: as for `MemoryPressure`."""
        job, schema, directory = setup.job, setup.schema, setup.directory
        self._rank, self._collector = rank, setup.roles.collector
        paced = not isinstance(job.run.speed, str)
        self._operator = operator
        self._may_change = bool(operator.plans)  # The operator can join in several ways.
        self._slow = [one for one in job.inject.slow if one.rank == rank.number]
        self._load = LoadMeter(rank, self._operator, job.cluster.partitions)
        names = self._names = [stream.name for stream in schema.streams]
        self._epochs = EpochMeter(rank, self._operator, directory, names, job.run.warmup_ns / 1e9, paced, resumed)
        send = None if self._collector is None else partial(self._send_results, self._collector)
        way = Way(rank.number, send, directory)
        self._outlets = Outlets(job, schema, operator, way, rank.clock, self._epochs.delayed)
        self._out = self._outlets.out
        self._spilling = Spilling(spiller, self._out, rank.clock)
        self._core = new_core(paced, spill_rule(job, spiller), self._spilling.open_groups, len(setup.roles.producers))
        pressures = [one for one in job.inject.memory if one.rank == rank.number]
        self._pressure = MemoryPressure(pressures, operator.memory().budget, operator.limit, allowed)
        self._inserter = Inserter(operator)
        self._inputs = Inputs(setup.roles.producers, job.cluster.partitions, len(names))
        own = (self._inputs, setup.roles.producers, self._spilling.by_generations, job.balance.move)
        self._handover = HandOver(rank, self._operator, *own)
        saver = Saver(operator, rank.number, setup.checkpoints, spiller) if setup.checkpoints else None
        self._savings = Savings(rank, saver, self._outlets.sinks, self._epochs, self._counts)
        self._groups = set(groups)  # These are the groups that it joins.
        for group in groups:
            self._load.installed(group)
        self._messages, self._actions = deque[Batches](), deque[events.Action]()
        self._origin: tuple[int, float] | None = None  # of what was joined last, as of `DelayMeter`
        # These rows of each stream came from producers: those that only this slave got, and those that were copied.
        self._received = np.zeros((2, len(names)), np.int64)
        self._received_before = self._received  # They came before the mark of the newest checkpoint.
        rank.progress = lambda: self._report(0, -1)
        self._debt_s = 0.0  # A slave made slow on purpose still has to sleep so long.
        self._busy_s = 0.0
        self._blocked_s = 0.0  # It had something to join, but waited for the collector to take results.
        self._blocked_since_s: float | None = None
        if fresh := [group for group in sorted(groups) if operator.holds_fresh(group)]:
            self._messages.append(Batches.without_rows(fresh, len(names), rank.number))
            self._do(events.Resumed(self._messages[0].groups))

    def run(self) -> None:
        """Runs until the master says stop (rank.Stopped). Raises whatever goes wrong."""
        while True:
            self._rank.wait(self.turn())

    def turn(self) -> float:
        """Takes the messages that have arrived and does one bounded piece of work. Returns for how many seconds there
        is nothing to do."""
        received = 0
        for source, message in self._rank.receive():
            received += 1
            self._take(source, message)
        if self._spilling.may_lose_memory:
            self._pressure.hold(self._rank.clock.wall_s * 1e9)
        if self._debt_s > 0:
            self._pay_debt()
            return 0.0
        self._savings.report()
        shipped = self._core.between_slices and self._handover.ship(nothing_to_join=not self._actions)
        if shipped:
            self._handed()
        blocked = bool(self._actions) and self._blocked()
        self._count_blocked(blocked)
        if self._actions and not blocked:
            self._work()
            return 0.0
        if received or shipped:
            return 0.0
        actions = self._core.step(Ticked(self._rank.clock.wall_s))
        rests = [action.seconds for action in actions if isinstance(action, Rest)]
        self._actions.extend(action for action in actions if not isinstance(action, Rest))
        return min(WAIT_S, *rests) if rests else 0.0

    def _handed(self) -> None:
        """Tells the core that a part of a group that changes hands was sent or has arrived."""
        if self._rank.wakes_late:
            self._do(events.Handed(self._rank.clock.wall_s))

    def abandon(self) -> None:
        for sink in self._outlets.sinks:
            sink.abandon()

    def _blocked(self) -> bool:
        return self._collector is not None and self._rank.transport.unsent_bytes(self._collector) > UNSENT_BYTES_MAX

    def _count_blocked(self, blocked: bool) -> None:
        now_s = self._rank.clock.wall_s
        if self._blocked_since_s is not None:
            self._blocked_s += now_s - self._blocked_since_s
        self._blocked_since_s = now_s if blocked else None

    def _take(self, source: int, message: AnyMessage) -> None:
        match message:
            case Slot():
                self._take_slot(message)
            case AskLoads(period):
                self._answer(period)
            case ComputePartitions():
                self._handover.compute(message, self._spilling.in_memory(self._groups))
            case SpillOrder():
                self._do(events.SpillOrdered(*message, self._handover.is_moving))
            case Order():
                for order in self._inputs.order(source, message):
                    self._handover.expects(order)
                    self._do(events.Ordered(order.move, order.step, order.group))
            case State():
                self._handed()
                if self._handover.take(message):
                    self._do(events.Staged(message.move))
            case Marker():
                self._mark(source, message)
            case Report():
                pass  # This is the heartbeat of the master.
            case _:
                raise ProtocolError(f"slave got {type(message).__name__}, which is not for a slave")

    def _take_slot(self, slot: Slot) -> None:
        """Takes what a producer sends, unless it comes after a mark that others have not sent yet."""
        if (now := self._inputs.slot(slot)) is None:
            return
        self._load.epoch_ended(self._core.backlog_bytes)
        self._epochs.turn_came(slot.turn_s)
        self._handover.slot_came()
        self._groups.update(now.groups.tolist())
        self._arrived(now, own=False)
        is_copied = steps.is_copied(now.step, now.dealt, len(self._names))
        self._received = self._received + np.array([~is_copied, is_copied]) * self._messages[-1].rows()

    def _mark(self, producer: int, marker: Marker) -> None:
        """The checkpoint cuts the input between what all producers had sent before their marks and what came after."""
        behind = self._inputs.mark(producer, marker)
        if self._inputs.is_aligned:
            self._received_before = self._received
            self._do(events.Marked(*marker))
        for slot in behind:
            self._take_slot(slot)

    def _arrived(self, slot: Slot, own: bool) -> None:
        """Takes input from the master, or input that came with a group which moved here or stayed after all.

        The number of the epoch must never fall here, or the collector would get results of an epoch that has ended.
        Input that came with a group may belong to a later epoch than what the master still has on its way to this
        slave. What then comes of an earlier epoch counts as input of the newest epoch known.
        """
        newest_epoch = self._core.newest_epoch
        epoch = newest_epoch if own and self._groups else max(slot.epoch, newest_epoch)
        slot = slot if slot.epoch == epoch else slot._replace(epoch=epoch)
        self._messages.append(Batches(slot))
        rows = slot.rows
        self._load.arrived(slot.groups, rows)
        facts = (slot.epoch, slot.octets, slot.groups, rows, slot.last, own, not own and not slot.step)
        self._do(events.Arrived(*facts, slot.producer, min(slot.watermarks) == TIME_MAX_VALUE))

    def _answer(self, period: int) -> None:
        groups = np.array(sorted(self._groups), np.int64)
        spent = (self._core.backlog_bytes, self._busy_s)
        self._rank.send(MASTER, self._load.answer(period, groups, *spent, self._spilling.disk_bytes(groups)))

    def _do(self, event: events.Event) -> None:
        self._actions.extend(self._core.step(event))

    def _work(self) -> None:
        """Does one action and, for up to WORK_S, those that follow it in the same slice, because a look at the network
        costs as much as a small action."""
        end_s = self._rank.clock.wall_s + WORK_S
        self._act(self._actions.popleft())
        while self._actions and not (self._core.between_slices or self._blocked() or self._debt_s > 0):
            if self._rank.clock.wall_s >= end_s:
                break
            self._act(self._actions.popleft())

    def _act(self, action: events.Action) -> None:
        start_s = self._rank.clock.wall_s
        is_told = self._may_change and isinstance(action, JOINING)
        start_cpu_s = self._rank.clock.cpu_s if is_told else 0.0
        self._perform(action)
        if is_told:
            self._operator.spent(self._rank.clock.cpu_s - start_cpu_s)
        spent_s = self._rank.clock.wall_s - start_s
        share = self._share()
        self._busy_s += spent_s / share
        self._debt_s += spent_s * (1 / share - 1)

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.Insert(low, high, in_parts, messages):
                inserted = self._inserter.insert([*islice(self._messages, messages)], low, high, in_parts)
                self._do(inserted._replace(is_moving=self._handover.is_moving))
            case events.RunOut(lacking_pages):
                raise self._operator.out_of_memory(self._spilling.advice(lacking_pages))
            case events.Probe(low, high, budget):
                groups = self._messages[0].groups[low:high]
                self._do(events.Probed(self._operator.probe(groups, budget, self._out)))
            case events.Pause(budget):
                self._do(events.Paused(self._operator.pause(budget, self._out)))
            case events.Consume():
                self._consume()
            case events.Expire(low, high, messages):
                groups = self._messages[0].groups[low:high]
                watermarks = self._inputs.joined([one.slot for one in islice(self._messages, messages)], groups)
                progress = self._operator.expire(groups, watermarks, self._out)
                self._do(events.Expired(progress, self._operator.memory(), self._handover.is_moving))
            case events.Spill(begins=begins):
                if begins:
                    self._meanwhile(True)
                self._do(spilled := self._spilling.spill(action, self._groups, self._handover.supplied))
                if not spilled.more:
                    self._meanwhile(True)
            case events.CleanUp(ends):
                if ends:
                    self._rank.log.info("clean-up of %s", self._spilling.owed)
                self._meanwhile(ends)
                self._do(self._spilling.clean_up(ends, self._groups, self._handover.supplied))
            case events.Rotate():
                newest_epoch, supplied = self._core.newest_epoch, self._handover.supplied
                self._do(self._spilling.rotate(action, self._messages, self._groups, supplied, newest_epoch))
            case events.Divert(low):
                self._do(self._spilling.divert(self._messages[0], low, self._inputs))
            case events.EndInput():
                self._messages.popleft()
            case events.EndMessage():
                self._end_message(*action)
            case events.Carry():
                self._carry_out(action)
            case events.Install(move):
                self._install(move)
            case events.Save():
                self._save(action)
            case events.Finish():
                self._finish()

    def _share(self) -> float:
        """Returns the share of its speed that the job lets this slave have now."""
        now_ns = self._rank.clock.wall_s * 1e9
        return math.prod(one.share for one in self._slow if holds_at(one, now_ns))

    def _pay_debt(self) -> None:
        start_s = self._rank.clock.wall_s
        self._rank.clock.sleep(min(self._debt_s, SLEEP_S))
        self._debt_s -= self._rank.clock.wall_s - start_s

    def _consume(self) -> None:
        if not self._out.count:
            return
        if self._messages:
            slot = self._messages[0].slot
            # A slot that waited at a checkpoint has no origin, because it was due before this clock started.
            self._origin, epoch = slot.origin, slot.epoch
        else:  # They were owed. All epochs that began here have ended, so they belong to the next one.
            epoch = self._core.newest_epoch + 1
        with self._spilling.consuming():
            self._outlets.consume(epoch, self._origin)

    def _meanwhile(self, always: bool) -> None:
        if always or self._epochs.is_record_due:
            epoch, backlog_bytes = self._core.newest_epoch, self._core.backlog_bytes
            self._epochs.meanwhile(epoch, self._outlets.found, backlog_bytes, self._busy_s, self._spilling.figures)

    def _send_results(self, collector: int, data: Data) -> None:
        self._rank.transport.send(collector, Channel.RESULT, data)

    def _end_message(self, epoch: int, octets: int, own: bool, goes_on: bool) -> None:
        slot = self._messages.popleft().slot
        self._outlets.end_epoch(epoch, slot.last)
        if not goes_on:
            left = (self._core.backlog_bytes, self._load.occupancy_bytes)
            self._epochs.epoch_ended(epoch, self._outlets.found, *left, self._busy_s, self._spilling.figures)
        if slot.step not in ("", steps.REPLICA):
            self._tell_parts(slot)
        if not own:
            self._rank.send(slot.producer, self._report(octets, epoch))
        self._rest_without_groups(slot.last)

    def _tell_parts(self, slot: Slot) -> None:
        """The rows of a group that is shared with another slave are joined."""
        if self._handover.comes(slot):
            self._load.installed(int(slot.groups[0]))
        left, is_staged = self._handover.joined(slot)
        if left is not None:
            self._groups.discard(left)
        if is_staged:
            self._do(events.Staged(slot.move))

    def _report(self, octets: int, epoch: int) -> Report:
        """Returns the report that so many bytes are consumed, and how far this slave has come."""
        rank, memory, compared = self._rank, self._operator.memory(), self._operator.compared
        own = (octets, epoch, self._outlets.found, self._busy_s, memory.budget - memory.free, rank.comm_s, compared)
        return Report(rank.number, *own, memory.budget, self._spilling.figures)

    def _carry_out(self, action: events.Carry) -> None:
        taken = [(self._messages[index], self._messages[index].take_out(at)) for index, at in action.places]
        kept = self._handover.carry_out(action.move, action.step, action.group, taken)
        if action.step == steps.FREEZE:
            self._handed()
            self._groups.discard(action.group)
        if action.step == steps.DROP:
            self._rest_without_groups(False)
        self._take_over(kept)

    def _install(self, move: int) -> None:
        given = self._handover.install(move)
        if given:
            self._load.installed(int(given[0].groups[0]))
        self._take_over(given)

    def _take_over(self, slots: Sequence[Slot]) -> None:
        """Takes input of a group that is this slave's from now on, or is after all."""
        for slot in slots:
            self._arrived(slot, own=True)
            self._groups.update(slot.groups.tolist())

    def _save(self, action: events.Save) -> None:
        """Saves the state of one group, and the next in another turn."""
        if self._savings.save(action, self._messages, self._groups, self._received_before):
            self._actions.appendleft(action)
        else:
            self._do(events.SaveDone())

    def _rest_without_groups(self, last: bool) -> None:
        """Tells the sinks if there is nothing left to join here, because nobody should wait for such a slave."""
        if not self._groups and not self._messages and not last:
            for sink in self._outlets.sinks:
                sink.rest(self._core.newest_epoch)

    def _finish(self) -> None:
        parts = [part for sink in self._outlets.sinks for part in sink.close()]
        self._epochs.close()
        counts, files = self._counts(parts, self._received), tuple(part.name for part in parts)
        spent = (self._busy_s, self._blocked_s)
        figures = figures_of(self._epochs, self._operator, *spent, self._spilling.figures)
        plans = plans_of(self._operator, self._names)
        self._rank.send(MASTER, Finished(self._rank.number, counts, figures, files=files, plans=plans))
        self._rank.log.info("slave finished: %d results, %d part files", self._outlets.found, len(parts))

    def _counts(self, parts: list[PartInfo], received: np.ndarray) -> Counts:
        totals = self._spilling.totals(self._operator.totals)
        return counts_of(totals, self._outlets, parts, received, self._epochs)
