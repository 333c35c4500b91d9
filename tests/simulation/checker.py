"""The checker: checks every step of an incident, from inside the brokers.

It knows every message that was put into the backlog, every copy that a destination accepted, every completion and every
failure that may have caused a second copy. It uses no code of the transfer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syphon.control.slot_control import SlotControl
from syphon.control.totals import Totals
from syphon.servicebus import Pair
from syphon.servicebus.pair import PartnerEnded
from syphon.spark.jobs import JobResult
from syphon.spark.task import Slot
from syphon.transfer import Pump

from .incident import FAILOVER, OPERATION_TIMEOUT, PING, SPARK_STOPS, Incident, Kind, Mode, SimulatedMessage

LONGEST_PAUSE = 120.0
REJECTING = 35.0
"""Seconds after a fault for which a destination may still be taken for missing or disabled."""
MOST_COPIES = 4
"""Copies of a message at most, if the failures come from another destination or message."""


UNDISTURBED = 40.0
"""Seconds within which every message arrives if nothing fails, over the slowest network, on links that stay open."""
LEASE = 60.0
"""Seconds of a lease, if the incident does not say it."""
BETWEEN_CHECKS = 0.6
"""Seconds between two looks of a pump at the locks of its messages."""
GRACE = 5.0
"""Seconds within which both sides of a pair end (C1)."""
NOTICED = 0.7
"""Seconds until the listener or a slot checks its pair again."""
ROUNDING = 1e-6
"""The five seconds are added to one time and subtracted from another: the last bits of a float may differ."""
UNHEARD = 5.0 + 2 * 3.5 + 1.0
"""Seconds after its last answer in which a slot may still take messages: the silence that it allows, and the answers
that it waits for meanwhile."""


UNANSWERED = 65.0
"""Seconds until a link without an answer is closed, and everything that is in flight with it."""
CALM = 5.0
"""Seconds for which an incident goes on when everything has arrived: nothing more may happen to a message."""
IN_PEACE = 75.0
"""The same if a fault holds up others forever: longer than a lock, and than most back-offs."""
PROVEN_WITHIN = 120.0
"""Seconds within which a drain has proven that a backlog is empty."""
RETURNED_WITHIN = FAILOVER + PING + 2 * OPERATION_TIMEOUT
"""Seconds after the last fault, or the last send that failed, within which all senders use the primary again."""
REFUSED_WITHIN = 30.0
"""Seconds after the last fault in which a send may still fail: it began before."""
SLOW_JITTER = 0.1
"""Seconds of delay at random that make a network a slow one."""
LEAST_SHARE = 0.6
"""The share of what a throttled namespace leaves that must be used in the mean, the probes included."""
DISCOVERY = 45.0
"""Seconds in which the limit of a throttled namespace is found."""
BESIDE_A_FRAGMENT = 10.0
"""Seconds within which a message arrives beside a fragment that is down."""
BESIDE_DEAD = 5.0
"""Seconds within which a message arrives beside destinations that accept nothing."""
FIRST_SET_UP_DELAY, LONGEST_SET_UP_DELAY = 30.0, 300.0
"""Seconds from a fault of a pair until it is set up again. Each further fault doubles the first ones."""
SLOWEST_CLOCK = 0.98
PING_ID = "ping"


class Violation(AssertionError):
    """A promise is broken. The text says which one, and when."""


@dataclass(slots=True)
class Story:
    """What happened to one message."""

    message: SimulatedMessage
    copies: list[float] = field(default_factory=list)
    """When its destination accepted it. One that detects duplicates may have dropped it then."""
    is_stored: bool = False
    """Whether a destination that detects duplicates has kept a copy, from the syphon or from the sender itself."""
    said: str = ""
    """What its sender was told: sent or refused. Empty while the call lasts, or if no sender is simulated."""
    in_backlog: int = 0
    """How many copies of it are in the backlog, if a sender is simulated."""
    was_in_backlog: bool = False
    received: int = 0
    lock_ended: float | None = None
    """When its lock expired, if it has not been locked again since."""
    completed: float | None = None
    dead: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.completed is not None or self.dead is not None


class Checker:
    """Watches one incident."""

    def __init__(self, incident: Incident, now: Callable[[], float]) -> None:
        self.incident = incident
        self._now = now
        self.stories = {message.id: Story(message) for message in incident.messages}
        self.failures = [
            (fault.at, fault.ends_at + (UNANSWERED if fault.how in ("lose-reply", "hang") else 0.0), fault.entity)
            for fault in incident.faults
        ]
        """When something failed that can cause a second copy: its start, its end, its destination (`*` for all)."""
        self.violation: Violation | None = None
        self._received_by: dict[Slot, int] = {}
        """What a slot had received when the driver had not answered it for long."""
        self._renewals_work = incident.only_disturbs("contoso")
        self._holding_up = [fault for fault in incident.faults if fault.holds_up]
        self._on_the_way = incident.latency + incident.jitter + 0.02
        """Seconds from the sending of a message to its arrival."""
        self._most_in_flight = incident.window + self._credit_on_the_way()
        self.waiting = len(incident.messages)
        """Messages that are neither completed nor dead-lettered."""
        self._patience = self._longest_wait()
        self._quiet_from = {message.id: incident.undisturbed_from(message) for message in incident.messages}
        self._before = {message.id: incident.earlier_in_session(message) for message in incident.messages}
        """The messages that each must not overtake."""
        for name, before in self._before.items():  # what disturbs one of them disturbs it, too
            self._quiet_from[name] = max(
                self._quiet_from[name], *(self._quiet_from[each.id] for each in before[-1:]), 0.0
            )
        self._never = {name for name, quiet in self._quiet_from.items() if quiet == math.inf}
        """The messages that a fault holds up forever."""
        self._set_ups: list[float] = []
        """When this life of the worker set the pair up."""
        self._settled_at: float | None = None
        self._last_trouble = max((fault.ends_at for fault in incident.faults), default=0.0)
        """The end of the last fault, or the last send that failed: a link may turn out later to be gone."""
        self._is_proven = incident.mode is not Mode.DRAIN or bool(self._never)
        """Whether a drain has said that nothing is left since everything was moved, if there must be one that does."""
        self._rejected: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for fault in incident.faults:
            if fault.kind in (Kind.MISSING, Kind.DISABLED):
                self._rejected[fault.entity].append((fault.at, fault.ends_at + REJECTING))

    def fail(self, what: str) -> None:
        """Notes the first violation; the run ends with it. An exception would end in the emulator's log."""
        self.violation = self.violation or Violation(f"{what} at {self._now():.3f} s")

    # --- what the brokers see ------------------------------------------------------------------------------------

    def failure(self, entity: str = "*") -> None:
        """Something failed that can cause a second copy of the messages in flight."""
        self.failures.append((self._now(), self._now(), entity))

    def received(self, message_id: str) -> None:
        story = self.stories[message_id]
        story.received += 1
        story.lock_ended = None

    def lock_ended(self, message_id: str, is_in_flight: bool) -> None:
        """The lock of a message has expired. A pump that has it in flight renews it, if the secondary lets it."""
        self.stories[message_id].lock_ended = self._now()
        if is_in_flight and self._renewals_work:
            self.fail(f"no renewal: the lock of {message_id} expired while the pump had it in flight")

    def accepted(self, destination: str, messages: list[Any]) -> None:
        now = self._now()
        if len({message.message_id for message in messages}) < len(messages):
            self.fail(f"sent again: a message comes twice in one batch for {destination}")
        for message in messages:
            story = self.stories.get(message.message_id)
            if story is None and message.message_id == PING_ID and self.incident.mode is Mode.SENDER:
                continue
            if story is None:
                self.fail(f"unexpected: {message.message_id!r} arrived at {destination}")
                return
            if story.message.destination != destination:
                self.fail(f"unexpected: {message.message_id} arrived at {destination}, not {story.message.destination}")
            ended = story.lock_ended
            if ended is not None and now > self._arrived_by(destination, ended):
                self.fail(f"sent too late: {message.message_id}, {now - ended:.1f} s after its lock ended")
            copies = story.copies
            if copies:
                self._judge_copy(story, copies[-1], now)
            else:
                self._judge_order(story)
            copies.append(now)

    def _judge_order(self, story: Story) -> None:
        """The first copy of a message comes after those of the earlier messages of its session (D21)."""
        for before in self._before[story.message.id]:
            earlier = self.stories[before.id]
            is_owed = earlier.said == "sent" or self.incident.mode is not Mode.SENDER
            if is_owed and not earlier.copies and earlier.dead is None:
                self.fail(f"overtaken: {before.id} of session {before.session} by {story.message.id}")

    def stored(self, message_id: str) -> None:
        """A destination that detects duplicates has kept a message, and not dropped it."""
        if message_id in self.stories:
            self.stories[message_id].is_stored = True

    def _arrived_by(self, destination: str, lock_ended: float) -> float:
        """When the last send of a message arrives whose lock has ended then."""
        latest = lock_ended + BETWEEN_CHECKS
        for fault in self._holding_up:
            if (
                fault.concerns(destination)
                and fault.at < latest
                and fault.holds_up_until > lock_ended - self.incident.lock
            ):
                # What was held up on its way from the secondary has no lock any more, and the pump cannot know it: it
                # counts from the arrival.
                held_up = self._on_the_way + self.incident.lock if fault.side == "contoso-dr" else 0.0
                latest = max(latest, fault.holds_up_until + held_up)
        return latest + self._on_the_way

    def _judge_copy(self, story: Story, before: float, now: float) -> None:
        """A further copy needs a failure since the copy before it, and failures must not go on forever."""
        name, destination = story.message.id, story.message.destination
        if destination in self.incident.detects_duplicates:
            return  # the destination drops it
        since = before - self.incident.lock  # a failure counts that began while it was in flight
        if not any(
            end >= since and start <= now and entity in ("*", destination) for start, end, entity in self.failures
        ):
            self.fail(f"copy {len(story.copies) + 1} of {name} without a failure since the one before")
        quiet = self._quiet_from[name]
        if now > quiet + self._patience:
            self.fail(f"copy {len(story.copies) + 1} of {name}, {now - quiet:.0f} s after the last fault")
        # Each pump that receives it has to find the message to blame again.
        if len(story.copies) >= MOST_COPIES * story.received and self._is_bystander(story):
            self.fail(f"copy {len(story.copies) + 1} of {name} for {destination}, because others fail")

    def _is_bystander(self, story: Story) -> bool:
        """Whether the only faults are another destination's, or another message's."""
        return all(
            (fault.kind is Kind.CUT_ON_SEND and fault.entity != story.message.destination)
            or (fault.kind is Kind.POISON and fault.number != story.message.number)
            for fault in self.incident.faults
        )

    def completed(self, message_id: str) -> None:
        story = self.stories[message_id]
        destination = story.message.destination
        if not story.copies:
            self.fail(f"lost: {message_id} was completed before {destination} accepted it")
        elif destination in self.incident.detects_duplicates and not story.is_stored:
            self.fail(f"lost: {message_id} was completed, and {destination} has dropped it")
        story.completed = self._now()
        self._left_backlog(story)

    def dead_lettered(self, message_id: str, reason: str) -> None:
        story, now = self.stories[message_id], self._now()
        if not any(begun <= now <= over for begun, over in self._rejected[story.message.destination]):
            self.fail(f"unexpected: {message_id} was dead-lettered as {reason}")
        story.dead = now
        self._left_backlog(story)

    # --- what the senders see -------------------------------------------------------------------------------------

    def put_into_backlog(self, message_id: str) -> None:
        story = self.stories[message_id]
        story.in_backlog += 1
        story.was_in_backlog = True

    def sent(self, message_id: str) -> None:
        """A send has returned: the primary or the backlog has the message."""
        story = self.stories[message_id]
        if not story.copies and not story.was_in_backlog:
            self.fail(f"lost: the send of {message_id} returned, and neither the primary nor the backlog has it")
        self._said(story, "sent")

    def refused(self, message_id: str) -> None:
        """A send has raised an error: the application knows that the message may not have arrived."""
        story = self.stories[message_id]
        quiet = self._quiet_from[message_id]
        if self._now() > quiet + REFUSED_WITHIN:
            self.fail(f"the send of {message_id} failed {self._now() - quiet:.0f} s after the last fault")
        self._last_trouble = max(self._last_trouble, self._now())
        self._said(story, "refused")

    def _said(self, story: Story, what: str) -> None:
        story.said = what
        if not story.in_backlog:
            self.waiting -= 1

    def _left_backlog(self, story: Story) -> None:
        if self.incident.mode is not Mode.SENDER:
            self.waiting -= 1
            return
        story.in_backlog -= 1
        if story.said and not story.in_backlog:
            self.waiting -= 1

    def _must_return_from(self) -> float:
        """When nothing keeps an entity from its return any more: with an order of sessions, its backlog is empty."""
        if self.incident.keeps_order and self._settled_at is not None:
            return max(self._last_trouble, self._settled_at)
        return self._last_trouble

    def check_return(self, failed_over: tuple[str, ...]) -> None:
        """An entity that works returns to its senders with the next ping."""
        if self.incident.keeps_order and self._never:
            return  # the backlog never becomes empty
        if failed_over and self._now() > self._must_return_from() + RETURNED_WITHIN:
            took = self._now() - self._last_trouble
            self.fail(f"{failed_over[0]} is still failed over, {took:.0f} s after the last fault or failed send")

    # --- what the process says ------------------------------------------------------------------------------------

    def turned(self, pump: Pump, outcomes: int) -> None:
        """A pump has turned; it has recorded so many outcomes."""
        in_flight = received = ended = 0
        for queue in pump.queues.values():  # and not `pump.counters`: this is called most, and the sum of all is slow
            counters = queue.counters
            in_flight += counters.in_flight
            received += counters.received
            ended += counters.forwarded + counters.dead_lettered + counters.left
        if in_flight > self._most_in_flight:
            self.fail(f"{in_flight} messages in flight, and the window is {self.incident.window}")
        if received != ended + in_flight:
            self.fail(f"the account does not balance: {pump.counters}")
        if outcomes != ended:
            self.fail(f"{outcomes} outcomes are on record, and the counters are {pump.counters}")

    def _credit_on_the_way(self) -> int:
        """How many messages may come beyond the window.

        Credit that is taken back from one queue for another, or from a link for deferred messages, may have been used
        already. On a slow network it is more.
        """
        if self.incident.queues == 1 and not self.incident.faults:
            return 0
        is_held_up = any(fault.side == "contoso-dr" for fault in self._holding_up)
        is_slow = is_held_up or max(self.incident.jitter, self.incident.latency) >= SLOW_JITTER
        return self.incident.window // (1 if is_slow else 2)

    def jobs_running(self, count: int) -> None:
        if count > self.incident.slots:
            self.fail(f"{count} jobs run, and there is room for {self.incident.slots} slots")

    def reported(self, slot: Slot, silence: float) -> None:
        """A slot has turned, and has heard nothing of the driver for so many seconds."""
        if silence > UNHEARD - 1.0:
            received = slot._pump.counters.received
            if received > self._received_by.setdefault(slot, received) and silence > UNHEARD:
                self.fail(f"on no record: a slot took messages {silence:.1f} s after the driver last answered it")

    def job_ended(self, result: JobResult) -> None:
        for report in result.reports:
            for queue in report.queues:
                counters, finished = queue.counters, report.finished
                if finished and counters.without_outcome:
                    self.fail(f"the account does not balance: a slot has finished with {counters}")

    def check_totals(self, control: SlotControl) -> None:
        """The totals of the driver: no count has gone down, and they balance."""
        for found in control.queue_totals().values():
            self.check_balance(found.totals)

    def check_balance(self, totals: Totals) -> None:
        ended = totals.forwarded + totals.dead_lettered + totals.left + totals.in_flight + totals.unaccounted
        if totals.received != ended:
            self.fail(f"the account does not balance: {totals}")

    def proven_empty(self, queue: str, before: set[str]) -> None:
        """A drain calls a queue empty. `before` are the messages that were in it when the drain began to look."""
        left = [name for name in sorted(before) if not self.stories[name].has_ended]
        if left:
            self.fail(f"not empty: a drain says that {queue} is empty, and {left[0]} is in it")

    def drained(self, says_empty: bool) -> None:
        """A drain has ended, and says whether all queues are empty."""
        if says_empty and self._settled_at is not None:
            self._is_proven = True

    def check_pair(self, pair: Pair) -> None:
        """The five-second rule: a side that did not end by itself is faulted five seconds after the other (C1)."""
        for side, partner in (pair.sides, pair.sides[::-1]):
            if isinstance(side.reason, PartnerEnded):
                took = side.since - partner.since
                if not GRACE - ROUNDING <= took <= GRACE + NOTICED + self._stood_still_since(self._now() - took):
                    self.fail(f"five-second rule: {side.name} was faulted {took:.2f} s after {partner.name}")

    def _stood_still_since(self, since: float) -> float:
        """Seconds for which a process may have been paused by the OS since then."""
        pauses = (fault for fault in self.incident.faults if fault.kind is Kind.PAUSE and fault.at < self._now())
        return sum(max(0.0, fault.ends_at - max(fault.at, since)) for fault in pauses)

    # --- the supervision of several pairs -------------------------------------------------------------------------

    def worker_started(self) -> None:
        self._set_ups = []

    def set_up(self) -> None:
        """The worker sets the pair up, for the first time in its life, or after a fault."""
        now, count = self._now(), len(self._set_ups)
        if count and not self.incident.ends_the_pair:
            self.fail("not isolated: a pair without a fault is set up again")
        elif count:
            pause = min(LONGEST_SET_UP_DELAY, FIRST_SET_UP_DELAY * 2 ** (count - 1))
            if now - self._set_ups[-1] < pause * SLOWEST_CLOCK:
                self.fail(f"set up again after {now - self._set_ups[-1]:.1f} s, and not after {pause:.0f} s")
        self._set_ups.append(now)

    def worker_faulted(self, why: str) -> None:
        """The worker has ended because of faults: no pair is left that works (C3)."""
        if not self.incident.ends_the_pair:
            self.fail(f"not isolated: the worker ended, and a pair works: {why}")

    # --- deadlines ------------------------------------------------------------------------------------------------

    def patience(self) -> float:
        return self._patience

    def _longest_wait(self) -> float:
        """Seconds within which a message arrives once nothing disturbs it: a pause, a lock, and time to work."""
        incident = self.incident
        if not incident.faults:
            # What comes into a queue that a drain has found empty may have to wait for the next drain.
            undisturbed = (2 if incident.mode is Mode.DRAIN else 1) * (UNDISTURBED + self._opening_links())
            return undisturbed + self._starting_spark()
        if incident.mode is not Mode.PUMP:
            set_up = LONGEST_SET_UP_DELAY if incident.mode is Mode.PAIRS and incident.ends_the_pair else 0.0
            ordered = LONGEST_PAUSE + 2 * incident.lock if incident.keeps_order else 0.0
            return set_up + ordered + LONGEST_PAUSE + 3 * incident.lock + 30.0 + self._starting_spark()
        if incident.keeps_order:  # a message may wait for one that waits
            return 2 * LONGEST_PAUSE + 4 * incident.lock + 30.0
        longest = max((min(fault.lasts, 60.0) for fault in incident.faults), default=0.0)
        pause = min(LONGEST_PAUSE, 45.0 + 2 * longest)
        if any(fault.how in ("lose-reply", "hang") for fault in incident.faults):
            pause = LONGEST_PAUSE  # on a connection that is alive, an answer may take as long (`wire.LATEST_ANSWER`)
        if len(incident.faults) > 1 and any(fault.makes_a_long_pause for fault in incident.faults):
            pause = LONGEST_PAUSE  # failures before it, of another kind, have doubled it several times (S9)
        return pause + 2 * incident.lock + 30.0

    def _starting_spark(self) -> float:
        """Seconds until Spark runs that was about to stop."""
        starts = self.incident.spark_starts_within
        return SPARK_STOPS + starts if starts else 0.0

    def _opening_links(self) -> float:
        """Seconds for opening links, if there are fewer than destinations: each window has messages for all of them."""
        incident = self.incident
        if incident.max_links >= len(incident.destinations):
            return 0.0
        round_trip = 2 * (incident.latency + incident.jitter)
        opened = len(incident.messages) / incident.window * len(incident.destinations)
        return opened / incident.max_links * round_trip

    def deadline(self, story: Story) -> float:
        rate = self.incident.allowed_rate
        if rate is not None:
            # `_check_throughput` says when it is late
            return story.message.at + DISCOVERY + 60.0 + 4 * len(self.stories) / rate
        return self._quiet_from[story.message.id] + self._patience

    def end_of_run(self) -> float:
        """When every message that can arrive must have arrived."""
        deadlines = [self.deadline(story) for story in self.stories.values()]
        last = max((each for each in deadlines if each < math.inf), default=0.0)
        return self._calm_until(last) + (0.0 if self._is_proven else PROVEN_WITHIN) + ROUNDING

    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        return (self.waiting <= len(self._never) and self._has_settled()) or self.violation is not None

    def _has_settled(self) -> bool:
        """Whether all has arrived that can, and nothing has happened since for long enough."""
        if self._settled_at is None:
            others = (story for name, story in self.stories.items() if name not in self._never)
            if all(self._is_done(story) for story in others):
                self._settled_at = self._now()
        return self._is_proven and self._settled_at is not None and self._now() > self._calm_until(self._settled_at)

    def _calm_until(self, settled_at: float) -> float:
        """When an incident may end whose last message has arrived then."""
        calm = settled_at + (IN_PEACE if self._never else CALM)
        must_return = self.incident.mode is Mode.SENDER and self._last_trouble < math.inf
        return max(calm, self._must_return_from() + RETURNED_WITHIN) if must_return else calm

    def _is_done(self, story: Story) -> bool:
        if self.incident.mode is Mode.SENDER:
            return bool(story.said) and not story.in_backlog
        return story.has_ended

    def check_end(self) -> None:
        """After the last deadline: everything is where it should be."""
        for story in self.stories.values():
            message = story.message
            if self.violation is not None:
                raise self.violation
            if self.deadline(story) == math.inf:
                continue  # a fault that never ends holds it up
            if story.dead is not None and story.completed is None:
                continue
            if self.incident.mode is Mode.SENDER and (story.said == "refused" or not story.was_in_backlog):
                if not story.said:
                    self.fail(f"stuck: the send of {message.id} to {message.destination} has not returned")
            elif not story.copies:
                self.fail(f"stuck: {message.id} for {message.destination} has not arrived, received {story.received}×")
            elif story.completed is None:
                self.fail(f"stuck: {message.id} for {message.destination} arrived, and is not completed")
            elif story.copies[0] > self.deadline(story):
                self.fail(f"late: {message.id} for {message.destination} arrived at {story.copies[0]:.0f} s")
            self._check_receives(story)
        self._check_throughput()
        self._check_isolation()
        self._check_dead_destinations()
        if not self._is_proven:
            self.fail("no drain has proven that the backlog is empty")
        if self.violation is not None:
            raise self.violation

    def _check_throughput(self) -> None:
        """A throttled primary is used: each message arrives when it must, and is received about once."""
        rate, stories = self.incident.allowed_rate, list(self.stories.values())
        if rate is None:
            return
        last = max((story.copies[0] for story in stories if story.copies), default=math.inf)
        came = max(story.message.at for story in stories)
        if last > (most := came + self._starting_spark() + DISCOVERY + len(stories) / (LEAST_SHARE * rate)):
            self.fail(f"slow: {len(stories)} messages at {rate:.0f}/s took {last:.0f} s, and {most:.0f} are enough")
        receives = sum(story.received for story in stories)
        # At the end of a lease a slot releases what it cannot send within seconds: at least a hundred are in flight.
        leases = 1 + self._leases(last)
        if receives > 1.1 * len(stories) + leases * self.incident.slots * 100:
            self.fail(f"received again: {receives} receives of {len(stories)} messages")

    def _leases(self, seconds: float) -> float:
        """How many leases of a slot, one after another, end within so many seconds."""
        return seconds / (self.incident.lease or LEASE)

    def _check_isolation(self) -> None:
        """One fragment of a destination that is down does not delay the messages of the others."""
        for fault in self.incident.faults:
            if fault.kind is Kind.FRAGMENT and len(self.incident.faults) == 1:
                for story in self.stories.values():
                    took = (story.copies[0] if story.copies else math.inf) - story.message.at
                    if not fault.is_fragment_of(story.message) and took > BESIDE_A_FRAGMENT:
                        self.fail(f"not isolated: {story.message.id} took {took:.0f} s, and its fragment is available")

    def _check_dead_destinations(self) -> None:
        """Destinations that accept nothing for long cost two receives per message, and delay no other (S7)."""
        dead, stories = self.incident.dead_destinations, list(self.stories.values())
        if not dead or self.incident.mode is not Mode.WORKER:
            return
        receives = sum(story.received for story in stories)
        if receives > 2 * len(stories) + len(dead):  # the first message for each rings before anyone knows
            self.fail(f"received again: {receives} receives of {len(stories)} messages")
        for story in stories:
            took = (story.copies[0] if story.copies else math.inf) - story.message.at
            if story.message.destination not in dead and took > BESIDE_DEAD:
                self.fail(f"not isolated: {story.message.id} took {took:.0f} s, and its destination is available")

    def _check_receives(self, story: Story) -> None:
        ended = story.completed if story.completed is not None else self._now()
        lived = ended - story.message.at
        if any(fault.how.startswith("lose-lock") for fault in self.incident.faults):
            return  # a message whose lock is lost as soon as it is received comes at once, again and again
        most = 3 + lived / self.incident.lock + 2 * len(self.failures)
        if any(fault.kind is Kind.THROTTLE or "busy" in fault.how for fault in self.incident.faults):
            most += self._leases(lived)  # each may release it at its end, see `_check_throughput`
        if story.received > most:
            self.fail(f"{story.message.id} was received {story.received}×, and {most:.0f} can be explained")
