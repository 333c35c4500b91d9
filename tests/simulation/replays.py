"""Replays of dead letters as the thing under test: into the backlog queue, or to destinations (X4).

The target may detect duplicates. It accepts a message whose id it knows, and drops it. The id may be known from
elsewhere: from another dead letter, from a replay that was cut off, or from a message that has come and gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.backlog import to_backlog
from syphon.backlog.dead_letters import read_dead_letters
from syphon.emulator.broker import BrokeredMessage, QueueDescription
from syphon.model import NotAuthorized, SyphonError, TimeToLive
from syphon.servicebus import Administration
from syphon.transfer import (
    DuplicateGuard,
    DuplicateWindows,
    Replay,
    ReplayResult,
    route_to_backlog,
    route_to_destination,
)

from .checker import CALM, ROUNDING, Checker, Story
from .connections import connect_and_wait
from .incident import Elsewhere, Incident, ReplayPlan, SimulatedFault, SimulatedMessage, Target
from .spark import PAIR
from .threads import SimulatedProcess
from .world import PRIMARY, SECONDARY, Runner, World

LAST_AFTER = 300.0
"""Seconds from the last fault, or the last replay before it, to the replay that must move everything."""
REPLAYED_WITHIN = 400.0
"""Seconds for which that one may last: it waits a minute for a destination, and another for locks."""
IDENTITY = re.compile(rb"<(m\d{5})>")
"""In the body of a message: its id may change, and another message may have the same one."""


class ReplayChecker(Checker):
    """Watches the dead letters: one that is completed is at the target."""

    def __init__(self, incident: Incident, now: Callable[[], float]) -> None:
        super().__init__(incident, now)
        assert incident.replays is not None  # `ReplayWorld` has such incidents only
        before = max((fault.ends_at for fault in incident.faults), default=0.0)
        self.last_start = max(before, *incident.replays.starts) + LAST_AFTER
        self.is_last_over = False
        self._stored: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """When the target stored each message, and under which id."""
        self._told: set[str] = set()
        """The new ids that replays have told."""

    def never_dead(self, identity: str) -> None:
        """It has not become a dead letter: the backlog queue has dropped it as a duplicate, before any replay."""
        del self.stories[identity]
        self.waiting -= 1

    def put_back(self, identity: str, message_id: str) -> None:
        """The target has accepted a message, and has not dropped it."""
        self.stories[identity].copies.append(self._now())
        self._stored[identity].append((self._now(), message_id))

    def replayed(self, since: float, result: ReplayResult) -> None:
        """A replay has ended by itself."""
        if result.chosen != result.completed + result.left:
            self.fail(f"the account does not balance: {result}")
        self._told.update(new.new_message_id or "" for new in result.new_ids)
        for identity, stored in self._stored.items():
            for at, message_id in stored:
                known = (self.stories[identity].message.message_id, *self._told)
                if at >= since and message_id not in known:
                    self.fail(f"on no record: {identity} went out as {message_id}")

    def end_of_run(self) -> float:
        return self.last_start + REPLAYED_WITHIN + CALM + ROUNDING

    def is_over(self) -> bool:
        return self.is_last_over or self.violation is not None

    def check_end(self) -> None:
        for story in self.stories.values():
            if not story.copies:
                self.fail(f"stuck: {story.message.id} is not at its target, and a replay with new ids has ended")
            elif story.completed is None:
                self.fail(f"stuck: {story.message.id} was put back, and is still a dead letter")
            self._check_copies(story)
        if self.violation is not None:
            raise self.violation

    def _check_copies(self, story: Story) -> None:
        """Each failure since the last copy, and each replay that was cut off, explains one more."""
        if len(story.copies) > 1 + len(self.incident.faults) + len(self.failures):
            self.fail(f"copy {len(story.copies)} of {story.message.id}")


class Consumer:
    """Receives messages inside the broker: as much of a link as a queue uses."""

    def __init__(self, deletes: bool) -> None:
        self.credit = 10**9
        self.deletes = deletes
        self.owner = self
        self.received: list[BrokeredMessage] = []

    def admits(self) -> bool:
        return True

    def deliver(self, message: BrokeredMessage) -> None:
        self.received.append(message)

    def detach(self, _: object) -> None: ...


class ReplayWorld(World):
    """Runs one incident of replays."""

    checker_kind = ReplayChecker

    @property
    def letters(self) -> ReplayChecker:
        return cast(ReplayChecker, self.checker)

    @property
    def plan(self) -> ReplayPlan:
        assert self.incident.replays is not None  # `run` has looked
        return self.incident.replays

    def _make_runner(self) -> Runner:
        return ReplayRunner(self)

    def _create_entities(self, pair: str) -> None:
        plan, (queue,) = self.plan, self.queues
        to_backlog = plan.to is Target.BACKLOG
        self.queue = self._create(SECONDARY, self._description(queue, to_backlog))
        self.targets = [self.queue] if to_backlog else []
        for path in self.incident.destinations:
            found = self._create(pair, self._description(path, not to_backlog))
            self.targets += [] if to_backlog else [found]
        self._is_dead: set[str] = set()
        complete, dead = self.queue.dead.complete, self.queue.dead

        def completed(token: bytes) -> None:
            identity = identity_of(dead._locks.get(token))
            complete(token)
            self.note("completed", identity)
            self.checker.completed(identity)

        dead.complete = completed
        for target in self.targets:
            self._watch_target(target)
        for other in plan.elsewhere:
            self.time.call_at(other.at, self._arrives_elsewhere, other)

    def _description(self, path: str, is_target: bool) -> QueueDescription:
        detects = is_target and self.plan.window > 0
        window = round(1000 * self.plan.window) if detects else 600_000
        return QueueDescription(
            path,
            round(1000 * self.incident.lock),
            max_delivery_count=2**31 - 1,
            requires_duplicate_detection=detects,
            duplicate_detection_history_time_window=window,
        )

    def _watch_target(self, target: Any) -> None:
        admit = target.admission.admit

        def admitted(description: Any, messages: list[BrokeredMessage]) -> list[BrokeredMessage]:
            kept: list[BrokeredMessage] = admit(description, messages)
            for message in kept:
                if (identity := identity_of(message)) and identity in self._is_dead:
                    self.note(f"{target.path} stored", (identity, message.message_id))
                    self.letters.put_back(identity, str(message.message_id))
            return kept

        target.admission.admit = admitted

    def _arrives_elsewhere(self, other: Elsewhere) -> None:
        message = next((each for each in self.incident.messages if each.number == other.number), None)
        if message is None:
            return  # the shrinker has left it out
        self.note("from elsewhere", message.message_id)
        for target in self.targets:
            target.submit([BrokeredMessage.parse(_payload(message.message_id, b"from elsewhere", message.destination))])
            self._take_all(target)

    def _take_all(self, entity: Any, deletes: bool = True) -> list[BrokeredMessage]:
        consumer = Consumer(deletes)
        entity.main.feed(consumer)
        entity.main.leave(consumer)
        return consumer.received

    def _put(self, messages: list[SimulatedMessage]) -> None:
        """Messages come into the backlog queue, and become dead letters."""
        self._take_all(self.queue)
        for message in messages:
            body = f"<{message.id}>".encode()
            self.queue.submit([BrokeredMessage.parse(_payload(message.message_id, body, message.destination))])
        found = self._take_all(self.queue, deletes=False)
        for each in found:
            self.queue.main.reject(each.lock_token, {"DeadLetterReason": "DestinationMissing"})
        dead = {identity_of(each) for each in found}
        self._is_dead |= dead
        for message in messages:
            if message.id not in dead:
                self.letters.never_dead(message.id)


def _payload(message_id: str, body: bytes, destination: str) -> bytes:
    return to_backlog(properties_bytes(Properties(message_id=message_id)) + data_section(body), destination)


def identity_of(message: BrokeredMessage | None) -> str:
    """Which message it is, whatever its id; empty for one from elsewhere."""
    found = IDENTITY.search(message.to_bytes()) if message is not None else None
    return found.group(1).decode() if found else ""


class Windows:
    """As much of `Administration` as the guard against dropped duplicates asks."""

    def __init__(self, world: ReplayWorld) -> None:
        self._plan = world.plan

    def duplicate_window(self, _: str) -> int:
        if not self._plan.may_ask:
            raise NotAuthorized("The claim Manage is missing.")
        return round(1000 * self._plan.window)

    def close(self) -> None: ...


class ReplayRunner:
    """Runs one replay after another, as `syphon dead-letters replay` does."""

    def __init__(self, world: ReplayWorld) -> None:
        self._world = world
        self._process: SimulatedProcess | None = None

    def start(self) -> None:
        plan, last = self._world.plan, self._world.letters.last_start
        for at in plan.starts:
            self._world.time.call_at(at, self._start, plan.new_ids, False)
        self._world.time.call_at(last, self._start, True, True)

    def _start(self, new_ids: bool, is_last: bool) -> None:
        world, before = self._world, self._process
        if before is not None and not before.is_dead:
            return  # the one before has not ended
        process = self._process = SimulatedProcess(world.time, world.network, world.clock)

        def run() -> None:
            since = world.time.now
            try:
                result = self._replay(process, new_ids)
            except SyphonError as error:
                world.note("replay failed", error)
            else:
                world.note("replayed", result)
                world.letters.replayed(since, result)
            world.letters.is_last_over = is_last
            world.time.call_soon(process.crash)

        world.note("replay started", "with new ids" if new_ids else "")
        process.spawn(run, "replay")

    def _replay(self, process: SimulatedProcess, new_ids: bool) -> ReplayResult:
        world, plan, (queue,) = self._world, self._world.plan, self._world.queues
        to_backlog = plan.to is Target.BACKLOG
        source = connect_and_wait(process, SECONDARY)
        target = source if to_backlog else connect_and_wait(process, PRIMARY)
        windows = DuplicateWindows(lambda: cast(Administration, Windows(world)))
        guard = DuplicateGuard(windows, new_ids=new_ids, assumes_none=plan.assumes_none)
        plain = route_to_backlog(queue) if to_backlog else route_to_destination(PAIR, TimeToLive.RESTORE)
        preview, chosen = guard.on(plain), set[int]()
        for letter in read_dead_letters(source, queue):
            preview.preview(letter.payload, process.clock.wall())
            chosen.add(letter.sequence_number)
        return Replay(queue, chosen, source, target, guard.on(plain), runtime=process.runtime).carry_out()

    def end(self) -> None:
        self.crash(False)

    def crash(self, silently: bool) -> None:
        if self._process is not None:
            self._process.crash(silently)

    def stand_still(self, seconds: float) -> None:
        if self._process is not None:
            self._process.stand_still(seconds)

    def strike(self, fault: SimulatedFault) -> None:
        raise NotImplementedError(f"a replay has no {fault.kind}")

    def is_in_flight(self, _: bytes) -> bool:
        return False
