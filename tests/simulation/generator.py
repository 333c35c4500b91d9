"""Makes an incident from a seed: what is under test, its messages, its settings and its faults."""

from __future__ import annotations

import random
from dataclasses import replace

from syphon.emulator.broker.admission import FRAGMENTS
from syphon.transfer import PumpOptions

from .incident import (
    EVERYTHING,
    OF_CONTROL,
    OF_SPARK,
    OF_THE_JVM,
    PAIRS,
    Elsewhere,
    Incident,
    Kind,
    Mode,
    ReplayPlan,
    SimulatedFault,
    SimulatedMessage,
    Target,
    secondary_of,
)
from .network import GIVE_UP_AFTER

OF_THE_WORKER = (*OF_SPARK, *OF_CONTROL, Kind.KEY_REFUSED)
"""Faults that a pump alone does not have."""
WITH_OWN_GENERATORS = (
    Kind.ORDER,
    Kind.ORDER_OF_SENDS,
    Kind.FOREIGN,
    Kind.FRAGMENT,
    Kind.GONE,
    Kind.KNOWN_ID,
    *OF_THE_JVM,
)
OF_THE_PUMP = tuple(kind for kind in Kind if kind not in (*OF_THE_WORKER, *WITH_OWN_GENERATORS))
SIDES = ("contoso", "contoso-dr")
BROKER_FAULTS: tuple[tuple[str, str, str, str], ...] = (
    # side, operation, action, condition
    ("contoso", "send", "drop", ""),
    ("contoso", "send", "detach", ""),
    ("contoso", "send", "lose-reply-and-drop", ""),
    ("contoso", "send", "lose-reply", ""),
    ("contoso", "send", "hang", ""),
    ("contoso", "send", "delay", ""),
    ("contoso", "send", "error", "com.microsoft:server-busy"),
    ("contoso", "send", "error", "amqp:internal-error"),
    ("contoso", "send", "error", "com.microsoft:timeout"),
    ("contoso", "attach", "error", "amqp:internal-error"),
    ("contoso", "attach", "delay", ""),
    ("contoso", "attach", "hang", ""),
    ("contoso", "attach", "drop", ""),
    ("contoso", "connect", "drop", ""),
    ("contoso", "connect", "hang", ""),
    ("contoso", "connect", "delay", ""),
    ("contoso-dr", "receive", "detach", ""),
    ("contoso-dr", "receive", "drop", ""),
    ("contoso-dr", "receive", "delay", ""),
    ("contoso-dr", "receive", "lose-lock", ""),
    ("contoso-dr", "receive", "lose-reply", ""),
    ("contoso-dr", "receive", "lose-reply-and-drop", ""),
    ("contoso-dr", "settle", "lose-lock", ""),
    ("contoso-dr", "settle", "lose-reply", ""),
    ("contoso-dr", "settle", "lose-reply-and-drop", ""),
    ("contoso-dr", "settle", "error", "com.microsoft:server-busy"),
    ("contoso-dr", "settle", "drop", ""),
    ("contoso-dr", "settle", "detach", ""),
    ("contoso-dr", "settle", "delay", ""),
    ("contoso-dr", "manage", "error", "com.microsoft:message-lock-lost"),
    ("contoso-dr", "manage", "hang", ""),
    ("contoso-dr", "manage", "drop", ""),
    ("contoso-dr", "attach", "error", "amqp:internal-error"),
    ("contoso-dr", "attach", "drop", ""),
    ("contoso-dr", "connect", "drop", ""),
    ("contoso-dr", "connect", "hang", ""),
)
OUTAGES = ("refuse", "drop", "hang", "busy")
LATENCIES = (0.001, 0.005, 0.02, 0.1)


def generate(seed: int) -> Incident:
    """The incident of a seed."""
    rng = random.Random(seed)
    chosen = rng.random()
    if chosen < 0.4:
        return _of_a_worker(seed, rng)
    if chosen < 0.8:
        return _of_a_pump(seed, rng)
    if chosen < 0.92:
        return _of_a_drain(seed, rng)
    if chosen < 0.96:
        return _of_senders(seed, rng)
    if chosen < 0.965:
        return _of_replays(seed, rng)
    if chosen < 0.98:
        return _of_pairs(seed, rng)
    if chosen < 0.99:
        return _throttled(seed, rng)
    return _with_a_fragment_down(seed, rng) if chosen < 0.997 else _with_dead_destinations(seed, rng)


def _throttled(seed: int, rng: random.Random) -> Incident:
    """A namespace that throttles from the beginning and forever, with or without other clients."""
    number = rng.choice((10, 30, 100, 300, 1000, 5000))
    destinations = tuple(f"d{number}" for number in range(rng.choice((1, 2, 3))))
    queues, count = rng.choice((1, 4)), min(6000, 20 * number + rng.choice((50, 200, 1000)))
    messages = tuple(
        SimulatedMessage(number, rng.choice(destinations), 0.0, queue=rng.randrange(queues)) for number in range(count)
    )
    faults = [SimulatedFault(Kind.THROTTLE, 0.0, 10_000.0, "contoso", number=number)]
    if rng.random() < 0.3:
        faults.append(SimulatedFault(Kind.THROTTLE, 0.0, 10_000.0, "contoso-dr", number=2 * number))
    if rng.random() < 0.3:
        faults.append(SimulatedFault(Kind.FOREIGN, 0.0, 10_000.0, "contoso", number=number // 2))
    return Incident(
        seed,
        destinations,
        messages,
        tuple(faults),
        mode=rng.choice((Mode.PUMP, Mode.WORKER, Mode.DRAIN)),
        queues=queues,
        slots=rng.choice((1, 2)),
        lock=60.0,
        window=PumpOptions().window,
        latency=rng.choice(LATENCIES[:3]),
        linger=5.0,
    )


def _with_a_fragment_down(seed: int, rng: random.Random) -> Incident:
    """A partitioned destination of whose sixteen fragments one does not answer for a while."""
    count = rng.choice((200, 500))
    messages = tuple(
        SimulatedMessage(number, "d0", 5.0 * rng.random(), session=f"s{rng.randrange(60)}") for number in range(count)
    )
    fault = SimulatedFault(Kind.FRAGMENT, 0.0, 30 + 60 * rng.random(), "contoso", "d0", number=rng.randrange(FRAGMENTS))
    return Incident(
        seed,
        ("d0",),
        messages,
        (fault,),
        mode=rng.choice((Mode.PUMP, Mode.WORKER)),
        lock=60.0,
        window=400,
        latency=rng.choice(LATENCIES[:3]),
        linger=5.0,
        partitioned=frozenset(("d0",)),
    )


def _with_dead_destinations(seed: int, rng: random.Random) -> Incident:
    """Destinations that accept nothing for long, and a trickle of messages for them and for one that works."""
    kind, dead, lasts = rng.choice((Kind.FULL, Kind.MISSING)), rng.choice((1, 3, 10)), rng.choice((900.0, 2400.0))
    paths, every = [f"dead-{number}" for number in range(dead)], rng.choice((20.0, 60.0))
    trickle = sorted(
        ((turn + rng.random()) * every, path)
        for turn in range(int(lasts / every))
        for path in (rng.choice(paths), "orders")
    )
    return Incident(
        seed,
        ("orders", *paths),
        tuple(SimulatedMessage(number, path, at) for number, (at, path) in enumerate(trickle)),
        tuple(SimulatedFault(kind, 0.0, lasts, "contoso", path) for path in paths),
        mode=Mode.WORKER,
        lock=60.0,
        window=PumpOptions().window,
    )


def _of_pairs(seed: int, rng: random.Random) -> Incident:
    """Several pairs in one worker. One of them is bad: it cannot be used, or is throttled, or there is an outage.

    The others have messages at all times, so that each moment of the bad one could disturb them.
    """
    pairs = PAIRS[: rng.choice((2, 2, 3))]
    destinations, queues = tuple(f"d{number}" for number in range(rng.choice((1, 2)))), rng.choice((1, 2))
    span, bad = rng.choice((20.0, 60.0, 200.0)), rng.choice(pairs)
    messages = tuple(
        SimulatedMessage(number, rng.choice(destinations), span * rng.random(), queue=rng.randrange(queues), pair=pair)
        for number, pair in enumerate(rng.choice(pairs) for _ in range(rng.choice((40, 100, 200))))
    )
    faults = [_of_a_bad_pair(rng, bad)]
    if rng.random() < 0.2:  # even all of them: then the worker ends, and is started again
        faults += [_of_a_bad_pair(rng, pair) for pair in pairs if pair != bad and rng.random() < 0.7]
    if rng.random() < 0.2:
        kinds = (Kind.SLOT_KILLED, Kind.CRASH, Kind.STOPPED, Kind.JOB_GIVEN_UP, Kind.REPORTS_LATE, Kind.SPARK_FULL)
        faults.append(_fault(rng, kinds, destinations, messages))
    of_spark = random.Random(f"Spark {seed}")  # of its own: the rest of an incident stays as it was
    if of_spark.random() < 0.3:
        at, lasts = span * of_spark.random(), of_spark.choice((5.0, 60.0))
        faults.append(SimulatedFault(of_spark.choice(OF_THE_JVM), at, lasts))
    return Incident(
        seed,
        destinations,
        messages,
        tuple(faults),
        mode=Mode.PAIRS,
        spark_starts_within=of_spark.choice((3.0, 8.0, 30.0)),
        queues=queues,
        slots=rng.choice((1, 2, 3)),
        lock=60.0,
        window=rng.choice((20, 400)),
        latency=rng.choice(LATENCIES[:3]),
        lease=rng.choice((None, 15.0)),
        drift=rng.choice((1.0, 1.0, 0.99, 1.01)),
        pairs=pairs,
    )


def _of_a_bad_pair(rng: random.Random, pair: str) -> SimulatedFault:
    kind = rng.choice((Kind.KEY_REFUSED, Kind.KEY_REFUSED, Kind.GONE, Kind.THROTTLE, Kind.OUTAGE))
    side = rng.choice((pair, secondary_of(pair)))
    if kind is Kind.THROTTLE:
        return SimulatedFault(kind, 0.0, 10_000.0, pair, number=10)
    at, lasts = (
        rng.choice((0.0, 30 * rng.random())),
        rng.choice((20.0, 60.0, 200.0, float("inf"))) * (0.5 + rng.random()),
    )
    return SimulatedFault(kind, at, lasts, side, how=rng.choice(OUTAGES) if kind is Kind.OUTAGE else "")


def _of_replays(seed: int, rng: random.Random) -> Incident:
    """Dead letters that are put back, some of them young, some with the id of another message."""
    destinations, count = ("d0", "d1")[: rng.choice((1, 2))], rng.choice((5, 20, 60))
    window, span = rng.choice((0.0, 20.0, 60.0, 600.0)), rng.choice((0.0, 100.0, 1000.0))
    messages = tuple(
        SimulatedMessage(
            number,
            rng.choice(destinations),
            span * rng.random(),
            id_of=rng.randrange(number) if number and rng.random() < 0.1 else None,
        )
        for number in range(count)
    )
    starts = tuple(sorted(span + rng.choice((1.0, 50.0, 700.0, 1500.0)) * (1 + rng.random()) for _ in range(2)))
    elsewhere = tuple(
        Elsewhere(max(0.0, rng.choice(starts) - 1.5 * max(window, 20.0) * rng.random()), rng.randrange(count))
        for _ in range(rng.choice((0, 1, 5)))
    )
    to = rng.choice(tuple(Target))
    plan = ReplayPlan(
        to,
        window,
        starts,
        new_ids=rng.random() < 0.5,
        may_ask=rng.random() < 0.7,
        assumes_none=not window and rng.random() < 0.5,
        elsewhere=elsewhere,
    )
    side = secondary_of(PAIRS[0]) if to is Target.BACKLOG else PAIRS[0]
    faults = tuple(_of_a_replay(rng, side, starts) for _ in range(rng.choice((0, 0, 1, 2))))
    return Incident(
        seed,
        destinations,
        messages,
        faults,
        mode=Mode.REPLAY,
        lock=60.0,
        latency=rng.choice(LATENCIES[:3]),
        broker_ahead=rng.choice((0.0, 0.0, 3.0, -3.0)),
        replays=plan,
    )


def _of_a_replay(rng: random.Random, target: str, starts: tuple[float, ...]) -> SimulatedFault:
    """A fault while a replay runs."""
    at, lasts, secondary = rng.choice(starts) + 0.5 * rng.random(), 5 * rng.random(), secondary_of(PAIRS[0])
    kind = rng.choice((Kind.CUT, Kind.CRASH, Kind.OUTAGE, Kind.BROKER, Kind.BROKER, Kind.BROKER))
    if kind is not Kind.BROKER:
        how = rng.choice(OUTAGES) if kind is Kind.OUTAGE else ""
        return SimulatedFault(kind, at, lasts if how else 0.0, rng.choice((secondary, target)), how=how)
    side, operation, how = rng.choice(
        (
            (target, "send", "drop"),
            (target, "send", "lose-reply"),
            (target, "send", "lose-reply-and-drop"),
            (target, "send", "error com.microsoft:server-busy"),
            (target, "send", "error com.microsoft:timeout"),
            (secondary, "settle", "lose-reply"),
            (secondary, "settle", "lose-reply-and-drop"),
            (secondary, "receive", "lose-lock"),
        )
    )
    return SimulatedFault(kind, at, lasts, side, EVERYTHING, how, operation, rng.choice((1, 3, 0)))


def _of_a_pump(seed: int, rng: random.Random) -> Incident:
    destinations = tuple(f"d{number}" for number in range(rng.choice((1, 2, 3, 5, 8))))
    count = rng.choice((50, 100, 150, 200, 200, 300, 400))
    span = rng.choice((0.0, 0.0, 1.0, 10.0))
    many_sessions = rng.random() < 0.2
    messages = tuple(
        SimulatedMessage(
            number,
            rng.choice(destinations),
            span * rng.random(),
            2000 if rng.random() < 0.05 else 20,
            f"s{rng.randrange(4)}" if many_sessions else None,
        )
        for number in range(count)
    )
    kinds = OF_THE_PUMP + (Kind.BROKER,) * 6
    faults = tuple(_fault(rng, kinds, destinations, messages) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))))
    if is_starved := rng.random() < 0.04:
        faults = _no_way_on_and_no_renewal(rng)
    return Incident(
        seed,
        destinations,
        messages,
        faults,
        lock=(lock := rng.choice((5.0, 10.0, 20.0))),
        window=rng.choice((20, 100, 400)),
        latency=rng.choice(LATENCIES),
        jitter=rng.choice((0.0, 0.0, 0.01, 0.1)),
        splits=rng.choice((0.0, 0.0, 0.3)),
        max_links=1 if is_starved else rng.choice((200, 200, 2)),
        lease=rng.choice((None, None, 30.0, 60.0)),
        linger=rng.choice((0.0, 30.0, 30.0)),
        drift=rng.choice((1.0, 1.0, 0.99, 1.01)),
        # A broker that is ahead promises longer locks than it keeps: the pump's margin allows for a tenth of a lock.
        broker_ahead=rng.choice((0.0, 0.0, 0.1 * lock, -3.0)),
        detects_duplicates=(detects := frozenset(path for path in destinations if rng.random() < 0.1)),
        sent_before=frozenset(m.number for m in messages if m.destination in detects and rng.random() < 0.2),
    )


def _no_way_on_and_no_renewal(rng: random.Random) -> tuple[SimulatedFault, ...]:
    """Messages in flight wait for a silent primary, and meanwhile their locks cannot be renewed."""
    at, lasts = 0.2 * rng.random() + 0.1, 6 + 15 * rng.random()
    how = rng.choice(("hang", "error com.microsoft:message-lock-lost"))
    return (
        SimulatedFault(Kind.STALL, at, lasts, "contoso", how=rng.choice(("up", "down", "both"))),
        SimulatedFault(Kind.BROKER, 0.0, at + lasts + 5 * rng.random(), "contoso-dr", how=how, operation="manage"),
    )


def _of_a_worker(seed: int, rng: random.Random) -> Incident:
    """Fewer messages at once, and some that come late: a lone message must ring, whatever happened before."""
    destinations = tuple(f"d{number}" for number in range(rng.choice((1, 2, 3))))
    queues = rng.choice((1, 1, 2, 4))
    count = rng.choice((20, 50, 100, 150))
    span = rng.choice((0.0, 1.0, 10.0, 40.0))
    messages = tuple(
        SimulatedMessage(number, rng.choice(destinations), span * rng.random(), queue=rng.randrange(queues))
        for number in range(count)
    )
    messages += tuple(
        SimulatedMessage(count + number, rng.choice(destinations), 60 * rng.random(), queue=rng.randrange(queues))
        for number in range(rng.choice((0, 1, 3)))
    )
    kinds = OF_THE_WORKER * 2 + OF_THE_PUMP + (Kind.BROKER,) * 6
    faults = tuple(_fault(rng, kinds, destinations, messages) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))))
    return Incident(
        seed,
        destinations,
        messages,
        faults,
        mode=Mode.WORKER,
        queues=queues,
        slots=rng.choice((1, 2, 4)),
        task_failures=rng.choice((1, 4)),
        lock=60.0,
        window=rng.choice((20, 100, 400)),
        latency=rng.choice(LATENCIES),
        jitter=rng.choice((0.0, 0.0, 0.01, 0.1)),
        lease=rng.choice((None, 15.0, 30.0)),
        drift=rng.choice((1.0, 1.0, 0.99, 1.01)),
        broker_ahead=rng.choice((0.0, 0.0, 3.0, -3.0)),
    )


def _of_a_drain(seed: int, rng: random.Random) -> Incident:
    """A worker's incident, with a drain in its place. Its slots have the usual window."""
    return replace(_of_a_worker(seed, rng), mode=Mode.DRAIN, window=PumpOptions().window)


def _of_senders(seed: int, rng: random.Random) -> Incident:
    """A worker's incident whose messages are sent, most of them while the primary is unreachable."""
    incident = _of_a_worker(seed, rng)
    messages = tuple(replace(message, at=60 * rng.random()) for message in incident.messages[:60])
    kinds = tuple(kind for kind in (*OF_THE_PUMP, *OF_THE_WORKER) if kind is not Kind.KEY_REFUSED)
    faults = tuple(_fault(rng, kinds, incident.destinations, messages) for _ in range(rng.choice((0, 1, 1))))
    away = SimulatedFault(
        Kind.OUTAGE, 20 * rng.random(), 10 + 50 * rng.random(), "contoso", how=rng.choice(("refuse", "drop", "hang"))
    )
    return replace(incident, mode=Mode.SENDER, messages=messages, faults=(away, *faults))


def _fault(
    rng: random.Random, kinds: tuple[Kind, ...], destinations: tuple[str, ...], messages: tuple[SimulatedMessage, ...]
) -> SimulatedFault:
    kind = rng.choice(kinds)
    at = rng.choice((0.0, 0.5 * rng.random(), 3 * rng.random(), 12 * rng.random()))
    lasts = rng.choice((0.2, 1.0, 5.0, 15.0)) * (0.5 + rng.random())
    side, entity = rng.choice(SIDES), rng.choice(destinations)
    if kind is Kind.CUT:
        return SimulatedFault(kind, at, 0.0, side)
    if kind in (Kind.CRASH, Kind.SLOT_KILLED):
        is_silent = rng.random() < 0.5
        # The broker goes on to deliver to a process whose machine has vanished, until it gives up the connection.
        return SimulatedFault(kind, at, GIVE_UP_AFTER if is_silent else 0.0, side, how="silently" if is_silent else "")
    if kind is Kind.CUT_AFTER_BYTES:
        return SimulatedFault(
            kind, at, lasts, side, how=rng.choice(("up", "down")), number=int(10 ** (5 * rng.random()))
        )
    if kind is Kind.STALL:
        return SimulatedFault(kind, at, lasts, side, how=rng.choice(("up", "down", "both")))
    if kind is Kind.OUTAGE:
        return SimulatedFault(kind, at, lasts, side, how=rng.choice(OUTAGES))
    if kind is Kind.THROTTLE:
        return SimulatedFault(kind, at, lasts, side, number=rng.choice((1, 10, 100)))
    if kind is Kind.BROKER:
        side, operation, action, condition = rng.choice(BROKER_FAULTS)
        target = entity if side == "contoso" and operation != "connect" and rng.random() < 0.6 else EVERYTHING
        times = rng.choice((1, 1, 3, 20, 0))
        share = rng.choice((1.0, 1.0, 0.3, 0.05))
        return SimulatedFault(kind, at, lasts, side, target, f"{action} {condition}".strip(), operation, times, share)
    if kind in (Kind.MISSING, Kind.DISABLED, Kind.FULL):
        return SimulatedFault(kind, at, lasts, "contoso", entity)
    if kind is Kind.CUT_ON_SEND:
        return SimulatedFault(kind, at, float("inf") if rng.random() < 0.5 else lasts, "contoso", entity)
    if kind is Kind.POISON:
        poison, lasts = rng.choice(messages), float("inf") if rng.random() < 0.5 else lasts
        return SimulatedFault(kind, 0.0, lasts, "contoso", poison.destination, number=poison.number)
    if kind in (Kind.JOB_GIVEN_UP, Kind.STOPPED, Kind.SLOT_LOST):
        return SimulatedFault(kind, at)
    return SimulatedFault(kind, at, min(lasts, 8.0) if kind is Kind.PAUSE else lasts, side)


def _ordered(seed: int, rng: random.Random) -> Incident:
    """An incident of a pump, a worker or a drain, whose messages have sessions with an order."""
    incident = rng.choice((_of_a_pump, _of_a_pump, _of_a_worker, _of_a_worker, _of_a_drain))(seed, rng)
    sessions, share = rng.choice((1, 4, 4, 20)), rng.choice((1.0, 1.0, 0.8))
    span = rng.choice((0.0, 2.0, 20.0))
    times = sorted(message.at + span * rng.random() for message in incident.messages)
    messages = []
    for message, at in zip(incident.messages, times, strict=True):
        session = rng.randrange(sessions) if rng.random() < share else None
        queue = message.queue if session is None else (session + int(message.destination[1:])) % incident.queues
        named = None if session is None else f"s{session}"
        messages.append(replace(message, at=at, session=named, queue=queue))
    return replace(incident, messages=tuple(messages), keeps_order=True, sent_before=frozenset())


def _ordered_sends(seed: int, rng: random.Random) -> Incident:
    """An incident of senders, whose messages have sessions with an order."""
    incident, sessions = _of_senders(seed, rng), rng.choice((1, 4, 20))
    times = sorted(message.at for message in incident.messages)
    messages = tuple(
        replace(message, number=number, at=at, session=f"s{rng.randrange(sessions)}")
        for number, (message, at) in enumerate(zip(incident.messages, times, strict=True))
    )
    return replace(incident, messages=messages, keeps_order=True)


GENERATORS = {
    Kind.ORDER_OF_SENDS: _ordered_sends,
    Kind.ORDER: _ordered,
    Kind.THROTTLE: _throttled,
    Kind.FRAGMENT: _with_a_fragment_down,
    Kind.MISSING: _with_dead_destinations,
    Kind.GONE: _of_pairs,
    Kind.KNOWN_ID: _of_replays,
}
"""The generators of incidents that are about one kind of fault."""
