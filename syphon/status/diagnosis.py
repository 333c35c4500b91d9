"""What the numbers of a status mean: whether messages flow, what is wrong, and what to do about it.

Pure: the observer passes it the status of all pairs. The page, `syphon status` and programs read the result from
`/status`, so that all of them say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from syphon.model import DestinationError, duration, plural

from .snapshot import (
    BacklogQueueState,
    CanaryStatus,
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
    SparkStatus,
    WorkerState,
)

SLOWEST = 0.1
"""Messages per second below which no time is predicted."""
RETRIES = "No messages are lost: they wait in the backlog, and syphon retries automatically."
REMEDIES = {
    DestinationError.FULL: f"Let its consumers catch up, or raise its maximum size on the primary. {RETRIES}",
    DestinationError.BUSY: f"The primary is throttling. {RETRIES}",
}
"""What to do about a destination that backs off, by its error. A missing and a disabled one have their own."""
STATES = {
    DestinationError.MISSING: "does not exist on the primary",
    DestinationError.DISABLED: "is disabled on the primary",
    DestinationError.FULL: "is full",
}
"""What is wrong with a destination, by the class of its error, where that says more than the broker's answer."""
NEARLY_FULL = 0.8
"""The share of a queue's room from which an operator should act."""
MOST_NAMED = 5
"""Missing destinations that one problem names."""
WILDCARDS = frozenset("*?[]")
"""What `--destination` takes for a pattern. Messages name destinations: one may be called `*`."""
_ORDER = tuple(Severity)


def outlook(state: WorkerState, pairs: Sequence[PairStatus], at: datetime, spark: SparkStatus | None = None) -> Outlook:
    """The state of all pairs together."""
    is_failing = spark is not None and spark.error is not None
    queues = [queue for pair in pairs for queue in pair.queues]
    left = _known(queue.left for queue in queues)
    stuck = sum(_stuck(pair) for pair in pairs)
    found = Outlook(
        flow=_flow(state, pairs, is_failing),
        left=left,
        counted=min((queue.counted for queue in queues if queue.counted is not None), default=None),
        arriving_per_second=_arriving(queues),
        oldest=min((queue.oldest for queue in queues if queue.oldest is not None), default=None),
        stuck=stuck,
        seconds=_seconds_to_empty(pairs),
        dead_letters=_known(queue.dead_letters for queue in queues),
    )
    return found.model_copy(update={"headline": _headline(found, pairs, at)})


def has_outage(pairs: Sequence[PairStatus]) -> bool:
    """Whether a namespace is unreachable or unusable."""
    return any(not side.connected and side.state is not SideState.STARTING for side in _sides(pairs))


def _sides(pairs: Iterable[PairStatus]) -> list[SideStatus]:
    return [side for pair in pairs for side in (pair.primary, pair.secondary)]


def _headline(found: Outlook, pairs: Sequence[PairStatus], at: datetime) -> str:
    """What an operator should know first: does it flow, what waits, how long, is there something to do."""
    match found.flow:
        case MessageFlow.STARTING:
            return "The worker is starting. Messages wait in the backlog."
        case MessageFlow.STOPPING:
            return "The worker is stopping: it finishes or abandons messages in flight."
        case MessageFlow.IDLE:
            return "Everything is connected, and no message is waiting."
        case MessageFlow.PAUSED:
            return f"Paused by the operator. {_backlog(found, at)}".rstrip()
    outages = [pair for pair in pairs if has_outage([pair])]
    if outages:
        return _outage(found, pairs, outages, at)
    rate = sum(pair.per_second for pair in pairs)
    limits = [pair.rate_limit_set_by for pair in pairs if pair.rate_limit_set_by in ("primary", "secondary")]
    moving = f"Forwarding {_rate(rate)}" if rate >= SLOWEST else "Forwarding"
    moving += f" (the {limits[0]} throttles)" if limits else ""
    if found.flow is MessageFlow.FLOWING:
        # Rounded up: a promise that is kept early is better.
        seconds = found.seconds if found.seconds is None or found.seconds < 60 else found.seconds + 59
        end = "" if seconds is None else f"; empty in about {duration(max(1, _whole(seconds)))}"
        return f"{moving}{end}. {_backlog(found, at)}".rstrip()
    nothing = found.flow is MessageFlow.BLOCKED
    buried = sum(pair.dead_lettered_per_second for pair in pairs)
    if buried and not found.stuck:
        some = "No message arrives: all" if nothing else f"{moving}, but some messages"
        return f"{some} go to the dead letters ({_rate(buried)}). {_backlog(found, at)}".rstrip()
    subject = "No message can be forwarded" if nothing else f"{moving}, but some messages cannot move"
    stuck = f": at least {found.stuck:,} {'is' if found.stuck == 1 else 'are'} stuck" if found.stuck else ""
    return f"{subject}{stuck}. {_backlog(found, at)}".rstrip()


def _outage(found: Outlook, pairs: Sequence[PairStatus], outages: Sequence[PairStatus], at: datetime) -> str:
    """The longest outage first. A faulted pair needs a person, an unreachable namespace does not."""
    pair = min(outages, key=lambda each: min(side.since for side in _sides([each]) if not side.connected))
    role, side = ("secondary", pair.secondary) if pair.primary.connected else ("primary", pair.primary)
    of = "" if len(pairs) == 1 else f" of {pair.name}"
    more = "" if len(outages) == 1 else f", and {plural(len(outages) - 1, 'more pair')} cannot work"
    state = "unusable" if any(each.fault for each in outages) else "unreachable"
    lasting = f"The {role}{of} has been {state} for {_since(side.since, at)}{more}."
    todo = "Nothing to do." if role == "primary" else "Forwarding resumes when it is back."
    if state == "unusable" or len(outages) < len(pairs):
        todo = "See the problems below."
    return " ".join(filter(None, (lasting, _backlog(found, at), todo)))


def _backlog(found: Outlook, at: datetime) -> str:
    """How much waits, how fast it grows, and how old it is; empty if nothing is known to wait."""
    if not found.left and found.oldest is None:
        return ""
    count = (
        "Messages are" if not found.left else f"{plural(found.left, 'message')} {'is' if found.left == 1 else 'are'}"
    )
    growing = found.arriving_per_second or 0.0
    parts = [f"{count} safe in the backlog"]
    parts += [f"+{_rate(growing)}"] if growing >= SLOWEST else []
    parts += [f"oldest {_since(found.oldest, at)}"] if found.oldest is not None else []
    return f"{', '.join(parts)}."


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s".replace(".0/s", "/s")


def _arriving(queues: Sequence[QueueStatus]) -> float | None:
    known = [queue.arriving_per_second for queue in queues if queue.arriving_per_second is not None]
    return round(sum(known), 1) if known else None


def _seconds_to_empty(pairs: Sequence[PairStatus]) -> float | None:
    """How long the slowest pair takes for the messages that are not stuck. None if unknown for a pair with work."""
    times = []
    for pair in pairs:
        left = _known(queue.left for queue in pair.queues)
        moving = 0 if left is None else left - _stuck(pair)
        if (left is None and pair.per_second > 0) or (moving > 0 and pair.per_second < SLOWEST):
            return None
        if moving > 0:
            times.append(moving / pair.per_second)
    return round(max(times), 1) if times else None


def problems(
    pairs: Sequence[PairStatus],
    ledger_error: str | None,
    at: datetime,
    spark: SparkStatus | None = None,
    settings_file: str = "FILE",
) -> list[OperatorProblem]:
    """What an operator should know, the worst first. Commands name the settings file, so that they can be copied."""
    failing = spark if spark is not None and spark.error is not None else None
    found = [] if failing is None else [_of_spark(failing, at)]
    found += [problem for pair in pairs for problem in _of_pair(pair, at, failing)]
    if ledger_error:
        found.append(
            _problem(
                Severity.WARNING,
                f"The ledger is not complete: {ledger_error}",
                "Messages are still forwarded. Make the ledger writable again, and the missing rows are written.",
            )
        )
    named = [
        problem.model_copy(update={"remedy": problem.remedy.replace("-c FILE", f"-c {shlex.quote(settings_file)}")})
        for problem in found
    ]
    return sorted(named, key=lambda problem: _ORDER.index(problem.severity))


# --- flow ------------------------------------------------------------------------------------------------------------


def _flow(state: WorkerState, pairs: Sequence[PairStatus], is_failing: bool) -> MessageFlow:
    if state is WorkerState.STOPPING:
        return MessageFlow.STOPPING
    if state is WorkerState.STARTING or any(_is_starting(pair) for pair in pairs):
        return MessageFlow.STARTING
    flows = {_flow_of(pair) for pair in pairs}
    if is_failing and flows - {MessageFlow.IDLE, MessageFlow.PAUSED}:
        return MessageFlow.BLOCKED  # without Spark no pair forwards
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
        accepts = any(found.state is DestinationState.AVAILABLE for found in pair.destinations)
        return MessageFlow.PARTLY_BLOCKED if is_moving or accepts or not _all_stuck(pair) else MessageFlow.BLOCKED
    if pair.dead_lettered_per_second > 0:  # these messages leave the backlog, but not for their destinations
        # A message that names no destination says nothing about the existing ones.
        accepts = not pair.destinations or any(found.state is DestinationState.AVAILABLE for found in pair.destinations)
        return MessageFlow.PARTLY_BLOCKED if accepts or pair.per_second > 0 else MessageFlow.BLOCKED
    waits = any(queue.left or queue.state is BacklogQueueState.WORKING for queue in pair.queues)
    return MessageFlow.FLOWING if is_moving or waits else MessageFlow.IDLE


def _is_starting(pair: PairStatus) -> bool:
    return SideState.STARTING in (pair.primary.state, pair.secondary.state)


def _does_not_move(queue: QueueStatus) -> bool:
    return queue.state in (BacklogQueueState.TROUBLED, BacklogQueueState.PAUSED)


def _stuck(pair: PairStatus) -> int:
    """How many messages of a pair cannot move currently, as far as the worker knows."""
    left = _known(queue.left for queue in pair.queues) or 0
    known = sum(destination.left for destination in pair.destinations if _is_unavailable(destination))
    if pair.paused or not (pair.primary.connected and pair.secondary.connected):
        return max(left, known)
    held = sum(queue.left or 0 for queue in pair.queues if _does_not_move(queue))
    return max(held, known)


def _all_stuck(pair: PairStatus) -> bool:
    left = _known(queue.left for queue in pair.queues)
    return left is not None and left <= _stuck(pair)


def _is_unavailable(destination: DestinationStatus) -> bool:
    return destination.state not in (DestinationState.AVAILABLE, DestinationState.REJECTING)


def _known(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is."""
    found = [count for count in counts if count is not None]
    return sum(found) if found else None


# --- problems --------------------------------------------------------------------------------------------------------


def _of_spark(spark: SparkStatus, at: datetime) -> OperatorProblem:
    when = "An attempt is in progress."
    if spark.next_attempt is not None:
        when = f"Next attempt at {spark.next_attempt:%H:%M:%S} UTC."
    return _problem(
        Severity.CRITICAL,
        f"Spark has not been running for {_since(spark.failing_since, at)}: {spark.error}",
        "No messages are lost: they wait in the backlog. `syphon check --spark -c FILE` shows whether Spark starts. "
        f"{when}",
    )


def _of_pair(pair: PairStatus, at: datetime, failing: SparkStatus | None) -> Iterator[OperatorProblem]:
    yield from _of_sides(pair, at)
    if pair.paused:
        remedy = f"To resume: `syphon resume --pair {shlex.quote(pair.name)} -c FILE`"
        yield _problem(Severity.NOTICE, f"{pair.name} is paused by the operator.", remedy)
    yield from _of_destinations(pair, at)
    if pair.secondary.connected:
        yield from _of_troubled_queues(pair, failing)
    if pair.canary is not None and pair.canary.is_lost and not has_outage([pair]):
        yield _of_canary(pair.name, pair.canary, at)
    for queue in pair.queues:
        if queue.state is BacklogQueueState.PAUSED and not pair.paused:
            yield _problem(
                Severity.NOTICE,
                f"Backlog queue {queue.name} is paused by the operator.",
                f"To resume: `syphon resume --pair {shlex.quote(pair.name)} --queue {queue.name.rpartition('/')[2]} "
                "-c FILE`",
            )
        if queue.held_sessions:
            waits, them = ("waits", "its") if queue.held_sessions == 1 else ("wait", "their")
            yield _problem(
                Severity.NOTICE,
                f"{plural(queue.held_sessions, 'session')} of backlog queue {queue.name} {waits} for an earlier "
                f"message: another receiver has locked it, or {them} destination does not accept it.",
                "A lock of a slot that was killed expires within a minute. A message that its destination never "
                "accepts holds up its session until it is dead-lettered (docs/sender.md).",
            )
    full = [queue for queue in pair.queues if (queue.used or 0.0) >= NEARLY_FULL]
    if full:
        worst = max(full, key=lambda queue: queue.used or 0.0)
        rest = "" if len(full) == 1 else f", and {plural(len(full) - 1, 'more queue')} nearly"
        yield _problem(
            Severity.WARNING,
            f"Backlog queue {worst.name} is {worst.used:.0%} full{rest}.",
            "When all are full, senders fail. Make the queues larger, or raise backlog_queue_count here and in the "
            "senders. Dead letters take room, too: `syphon dead-letters list -c FILE`",
        )
    if count := sum(queue.dead_letters or 0 for queue in pair.queues):
        yield _problem(
            Severity.WARNING,
            f"{pair.name} has {plural(count, 'dead letter')}.",
            "`syphon dead-letters list -c FILE` shows the reasons. After you remove the cause, "
            "`syphon dead-letters replay --to backlog -c FILE` replays them.",
        )


def _of_canary(pair: str, canary: CanaryStatus, at: datetime) -> OperatorProblem:
    ended = f"{_since(canary.last_ended, at)} ago"
    if canary.error is not None:
        text = f"{pair}: the last probe of the canary could not be sent or received ({ended}): {canary.error}"
        return _problem(
            Severity.WARNING, text, "Messages may pass all the same. `syphon canary -c FILE` sends a probe."
        )
    return _problem(
        Severity.WARNING,
        f"{pair}: the last probe of the canary did not arrive at {canary.destination} in time ({ended}).",
        "Other messages may not arrive either: see the other problems and the log. `syphon canary -c FILE` sends "
        "another probe.",
    )


def _of_troubled_queues(pair: PairStatus, failing: SparkStatus | None) -> Iterator[OperatorProblem]:
    """One problem for each cause: all queues of a pair usually have the same. That of Spark is named already."""
    by_reason: dict[str, list[str]] = {}
    for queue in pair.queues:
        if queue.state is BacklogQueueState.TROUBLED and (failing is None or queue.reason != failing.error):
            by_reason.setdefault(queue.reason or "", []).append(queue.name)
    for reason, names in by_reason.items():
        rest = "" if len(names) == 1 else f" and {len(names) - 1} more are"
        yield _problem(
            Severity.WARNING,
            f"Backlog queue {names[0]}{rest or ' is'} not served: {reason}",
            "syphon retries automatically. `syphon check -c FILE` shows what is missing.",
        )


def _of_sides(pair: PairStatus, at: datetime) -> Iterator[OperatorProblem]:
    if pair.fault is not None:
        fault = pair.fault
        when = "An attempt is in progress."
        if fault.next_attempt is not None:
            when = f"Next attempt at {fault.next_attempt:%H:%M:%S} UTC; SIGHUP retries immediately."
        yield _problem(
            Severity.CRITICAL,
            f"{pair.name} faulted {_since(fault.since, at)} ago, its {fault.side} is unusable: {fault.reason}",
            "No messages are lost: they wait in the backlog. `syphon check -c FILE` shows what is wrong. "
            f"{when} Other pairs are not affected.",
        )
        return
    if pair.primary.state is not SideState.STARTING and not pair.primary.connected:
        yield _problem(
            Severity.CRITICAL,
            _unreachable(f"{pair.name}: the primary {pair.primary.host}", pair.primary, at),
            "No messages are lost: they wait in the backlog. Forwarding resumes when the primary is back.",
        )
    if pair.secondary.state is not SideState.STARTING and not pair.secondary.connected:
        yield _problem(
            Severity.CRITICAL,
            _unreachable(f"{pair.name}: the secondary {pair.secondary.host}", pair.secondary, at),
            "syphon cannot read the backlog. Its messages stay there, and forwarding resumes automatically when the "
            "secondary is back.",
        )


def _unreachable(name: str, side: SideStatus, at: datetime) -> str:
    state = "unusable" if side.state is SideState.FAULTED else "unreachable"
    reason = (side.reason or "").removeprefix(f"{side.host}: ").removeprefix("no connection: ").rstrip(". ")
    return f"{name} has been {state} for {_since(side.since, at)} ({reason})"


def _of_destinations(pair: PairStatus, at: datetime) -> Iterator[OperatorProblem]:
    """Several missing destinations are one problem: more likely the namespace is wrong than each of them."""
    is_reached = pair.primary.connected
    missing = [found for found in pair.destinations if is_reached and _is_missing(found)]
    if len(missing) > 1:
        yield _several_missing(pair, missing)
    for destination in pair.destinations:
        # While the primary is unreachable, what a destination last answered is neither news nor something to act on.
        is_old = destination.state is DestinationState.BACKING_OFF and not is_reached
        if not is_old and not (len(missing) > 1 and destination in missing):
            yield from _of_destination(destination, at)


def _is_missing(destination: DestinationStatus) -> bool:
    return destination.state is DestinationState.BACKING_OFF and destination.error == DestinationError.MISSING


def _several_missing(pair: PairStatus, missing: Sequence[DestinationStatus]) -> OperatorProblem:
    names = ", ".join(f"'{found.path}'" for found in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    count = sum(found.left for found in missing)
    return _problem(
        Severity.WARNING,
        f"{len(missing)} destinations do not exist on the primary {pair.primary.host}: {names}{more}."
        + (f" At least {_waiting(count)} for them." if count else ""),
        "Is this the right namespace? If it is, create the queues or topics. To give up on one of them: "
        "`syphon drain --give-up missing --destination NAME -c FILE` moves its messages to the dead letters.",
    )


def _waiting(count: int) -> str:
    return f"{plural(count, 'message')} {'is' if count == 1 else 'are'} waiting"


def _of_destination(destination: DestinationStatus, at: datetime) -> Iterator[OperatorProblem]:
    waiting = f" At least {_waiting(destination.left)}." if destination.left else ""
    path, error, reason = (
        destination.path,
        DestinationError(destination.error or ""),
        (destination.reason or "").rstrip(". "),
    )
    if destination.state is DestinationState.BACKING_OFF:
        lasting = _since(destination.since, at)
        text = f"{path} has not accepted a message for {lasting}: {reason}.{waiting}"
        if error in STATES:
            text = f"'{path}' {STATES[error]} (for {lasting}).{waiting}"
        yield _problem(Severity.WARNING, text, _remedy(path, error))
    elif destination.state is DestinationState.REJECTING:
        yield _problem(
            Severity.WARNING,
            f"{path} rejects every message: {reason}. They go to the dead letters.",
            "Remove the cause on the primary, then replay them: `syphon dead-letters replay --to backlog -c FILE`.",
        )
    elif destination.state is DestinationState.PAUSED:
        yield _problem(
            Severity.NOTICE,
            f"{path} is paused by the operator.{waiting}",
            f"To resume: `syphon resume --destination {shlex.quote(path)} -c FILE`",
        )


def _remedy(path: str, error: DestinationError) -> str:
    """What to do about a destination that backs off. A command to give up names this destination and no other."""
    if error not in (DestinationError.MISSING, DestinationError.DISABLED):
        return REMEDIES.get(error, RETRIES)
    word = "missing" if error is DestinationError.MISSING else "disabled"
    cure = "Create the queue or topic" if error is DestinationError.MISSING else "Enable it"
    if WILDCARDS & set(path):
        return f"{cure} on the primary. {RETRIES}"
    name = shlex.quote(path)
    return (
        f"{cure} on the primary; `syphon retry {name} -c FILE` then forwards its messages at once. To give up: "
        f"`syphon drain --give-up {word} --destination {name} -c FILE` moves them to the dead letters."
    )


def _since(since: datetime | None, at: datetime) -> str:
    return duration(_whole(0.0 if since is None else (at - since).total_seconds()))


def _whole(seconds: float) -> float:
    """In whole seconds, or minutes, so that a text does not change at every refresh."""
    return max(0, int(seconds)) if seconds < 60 else seconds // 60 * 60


def _problem(severity: Severity, text: str, remedy: str) -> OperatorProblem:
    return OperatorProblem(severity=severity, text=text, remedy=remedy)
