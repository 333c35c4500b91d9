"""What the numbers of a status mean: whether messages flow, what is wrong, and what to do about it.

Pure: the observer gives it the pairs of one look. The page, `syphon status` and programs read the result from
`/status`, so that all of them say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from syphon.model import duration, plural

from .status import (
    BacklogQueueState,
    DestinationState,
    DestinationStatus,
    MessageFlow,
    OperatorProblem,
    Outlook,
    PairStatus,
    QueueStatus,
    Severity,
    SideState,
    SideStatus,
    WorkerState,
)

SLOWEST = 0.1
"""Messages a second below which no time is predicted."""
BY_ITSELF = "Nothing is lost: its messages wait in the backlog, and syphon tries again by itself."
REMEDIES = {
    "DestinationMissing": "Create the queue or topic on the primary. To give its messages up instead: syphon drain "
    "--give-up missing moves them to the dead letters.",
    "DestinationDisabled": "Enable the entity on the primary. To give its messages up instead: syphon drain --give-up "
    "disabled moves them to the dead letters.",
    "DestinationFull": "Let its consumers read, or raise its size on the primary. " + BY_ITSELF,
    "DestinationBusy": "The primary throttles. " + BY_ITSELF,
}
"""What to do about a destination that backs off, by the class of its error."""
_ORDER = tuple(Severity)


def outlook(state: WorkerState, pairs: Sequence[PairStatus]) -> Outlook:
    """How it goes as a whole."""
    queues = [queue for pair in pairs for queue in pair.queues]
    left = _known(queue.left for queue in queues)
    stuck = sum(_stuck(pair) for pair in pairs)
    return Outlook(
        flow=_flow(state, pairs),
        left=left,
        stuck=stuck,
        seconds=_seconds_to_go(pairs),
        dead_letters=_known(queue.dead_letters for queue in queues),
    )


def _seconds_to_go(pairs: Sequence[PairStatus]) -> float | None:
    """How long the slowest pair needs for what is not stuck. None if that is not known for a pair that has work."""
    times = []
    for pair in pairs:
        left = _known(queue.left for queue in pair.queues)
        moving = 0 if left is None else left - _stuck(pair)
        if (left is None and pair.per_second > 0) or (moving > 0 and pair.per_second < SLOWEST):
            return None
        if moving > 0:
            times.append(moving / pair.per_second)
    return round(max(times), 1) if times else None


def problems(pairs: Sequence[PairStatus], ledger_error: str | None, at: datetime) -> list[OperatorProblem]:
    """What an operator should know, the worst first."""
    found = [problem for pair in pairs for problem in _of_pair(pair, at)]
    if ledger_error:
        found.append(
            _problem(
                Severity.WARNING,
                f"The ledger is not complete: {ledger_error}",
                "Messages are forwarded all the same. Make the ledger writable again; rows that wait are written then.",
            )
        )
    return sorted(found, key=lambda problem: _ORDER.index(problem.severity))


# --- flow ------------------------------------------------------------------------------------------------------------


def _flow(state: WorkerState, pairs: Sequence[PairStatus]) -> MessageFlow:
    if state is WorkerState.STOPPING:
        return MessageFlow.STOPPING
    if state is WorkerState.STARTING or any(_is_starting(pair) for pair in pairs):
        return MessageFlow.STARTING
    flows = {_flow_of(pair) for pair in pairs}
    if len(flows) == 1:
        return flows.pop()
    if flows & {MessageFlow.BLOCKED, MessageFlow.PARTLY_BLOCKED, MessageFlow.PAUSED}:
        return MessageFlow.PARTLY_BLOCKED
    return MessageFlow.FLOWING


def _flow_of(pair: PairStatus) -> MessageFlow:
    if pair.paused:
        return MessageFlow.PAUSED
    if not (pair.primary.connected and pair.secondary.connected):
        return MessageFlow.BLOCKED
    is_moving = pair.per_second > 0 or any(queue.in_flight for queue in pair.queues)
    if _stuck(pair) or any(_does_not_move(queue) for queue in pair.queues):
        return MessageFlow.PARTLY_BLOCKED if is_moving or not _all_stuck(pair) else MessageFlow.BLOCKED
    if pair.dead_lettered_per_second > 0:  # these messages leave the backlog, but not for their destinations
        # A message that names no destination says nothing about those that there are.
        accepts = not pair.destinations or any(found.state is DestinationState.AVAILABLE for found in pair.destinations)
        return MessageFlow.PARTLY_BLOCKED if accepts or pair.per_second > 0 else MessageFlow.BLOCKED
    waits = any(queue.left or queue.state is BacklogQueueState.WORKING for queue in pair.queues)
    return MessageFlow.FLOWING if is_moving or waits else MessageFlow.IDLE


def _is_starting(pair: PairStatus) -> bool:
    return SideState.STARTING in (pair.primary.state, pair.secondary.state)


def _does_not_move(queue: QueueStatus) -> bool:
    return queue.state in (BacklogQueueState.TROUBLED, BacklogQueueState.PAUSED)


def _stuck(pair: PairStatus) -> int:
    """How many messages of a pair cannot move now, as far as the worker knows."""
    left = _known(queue.left for queue in pair.queues) or 0
    known = sum(destination.left for destination in pair.destinations if _takes_nothing(destination))
    if pair.paused or not (pair.primary.connected and pair.secondary.connected):
        return max(left, known)
    held = sum(queue.left or 0 for queue in pair.queues if _does_not_move(queue))
    return max(held, known)


def _all_stuck(pair: PairStatus) -> bool:
    left = _known(queue.left for queue in pair.queues)
    return left is not None and left <= _stuck(pair)


def _takes_nothing(destination: DestinationStatus) -> bool:
    return destination.state not in (DestinationState.AVAILABLE, DestinationState.REJECTING)


def _known(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is."""
    found = [count for count in counts if count is not None]
    return sum(found) if found else None


# --- problems --------------------------------------------------------------------------------------------------------


def _of_pair(pair: PairStatus, at: datetime) -> Iterator[OperatorProblem]:
    yield from _of_sides(pair, at)
    if pair.paused:
        yield _problem(Severity.NOTICE, f"{pair.name} is paused by the operator.", f"syphon resume --pair {pair.name}")
    for destination in pair.destinations:
        yield from _of_destination(destination, at)
    for queue in pair.queues:
        if queue.state is BacklogQueueState.TROUBLED and pair.secondary.connected:
            yield _problem(
                Severity.WARNING,
                f"Backlog queue {queue.name} is not served: {queue.reason}",
                "syphon tries again by itself. syphon check says what is missing.",
            )
        elif queue.state is BacklogQueueState.PAUSED and not pair.paused:
            yield _problem(
                Severity.NOTICE,
                f"Backlog queue {queue.name} is paused by the operator.",
                f"syphon resume --pair {pair.name} --queue {queue.name.rpartition('/')[2]}",
            )
    dead = [queue for queue in pair.queues if queue.dead_letters]
    if dead:
        count = sum(queue.dead_letters or 0 for queue in dead)
        yield _problem(
            Severity.WARNING,
            f"{plural(count, 'message')} of {pair.name} {'are' if count > 1 else 'is'} in the dead letters of "
            f"{plural(len(dead), 'backlog queue')}.",
            "See why with syphon dead-letters list; when the cause is gone, syphon dead-letters replay puts them back.",
        )


def _of_sides(pair: PairStatus, at: datetime) -> Iterator[OperatorProblem]:
    if pair.fault is not None:
        fault = pair.fault
        when = "An attempt is in progress."
        if fault.next_try is not None:
            when = f"Next attempt at {fault.next_try:%H:%M:%S} UTC (SIGHUP: at once)."
        yield _problem(
            Severity.CRITICAL,
            f"{pair.name} faulted {_since(fault.since, at)} ago: its {fault.side} cannot be used: {fault.reason}",
            "Nothing is lost: messages wait in the backlog. syphon check says what is wrong. "
            f"{when} Other pairs go on.",
        )
        return
    if pair.primary.state is not SideState.STARTING and not pair.primary.connected:
        yield _problem(
            Severity.CRITICAL,
            _out_of_reach(f"{pair.name}: the primary {pair.primary.host}", pair.primary, at),
            "Nothing is lost: messages wait in the backlog, at no cost. syphon goes on by itself when it is back.",
        )
    if pair.secondary.state is not SideState.STARTING and not pair.secondary.connected:
        yield _problem(
            Severity.CRITICAL,
            _out_of_reach(f"{pair.name}: the secondary {pair.secondary.host}", pair.secondary, at),
            "syphon cannot read the backlog now. Messages stay there, and syphon goes on by itself when it is back.",
        )


def _out_of_reach(name: str, side: SideStatus, at: datetime) -> str:
    is_faulted = side.state is SideState.FAULTED
    return f"{name} is {'faulted' if is_faulted else 'out of reach'} for {_since(side.since, at)}: {side.reason}"


def _of_destination(destination: DestinationStatus, at: datetime) -> Iterator[OperatorProblem]:
    known = f" At least {plural(destination.left, 'message')} wait{'' if destination.left > 1 else 's'} for it."
    waiting, reason = known if destination.left else "", (destination.reason or "").rstrip(". ")
    if destination.state is DestinationState.BACKING_OFF:
        yield _problem(
            Severity.WARNING,
            f"{destination.path} has accepted nothing for {_since(destination.since, at)}: {reason}.{waiting}",
            REMEDIES.get(destination.error or "", BY_ITSELF),
        )
    elif destination.state is DestinationState.REJECTING:
        yield _problem(
            Severity.WARNING,
            f"{destination.path} refuses every message: {reason}. They go to the dead letters.",
            "Remove the cause on the primary, then put them back with syphon dead-letters replay.",
        )
    elif destination.state is DestinationState.PAUSED:
        yield _problem(
            Severity.NOTICE,
            f"{destination.path} is paused by the operator.{waiting}",
            f"syphon resume --destination {destination.path}",
        )


def _since(since: datetime | None, at: datetime) -> str:
    """How long something has lasted: whole minutes, so that a text that is read again and again stands still."""
    seconds = 0.0 if since is None else max(0.0, (at - since).total_seconds())
    return duration(round(seconds) if seconds < 60 else seconds // 60 * 60)


def _problem(severity: Severity, text: str, remedy: str) -> OperatorProblem:
    return OperatorProblem(severity=severity, text=text, remedy=remedy)
