"""Incidents that once failed a check. They are written out: the generator may change, and they must not."""

from __future__ import annotations

import math

from .incident import PAIRS, Incident, Kind, Mode, SimulatedFault, SimulatedMessage


def _messages(count: int, *destinations: str, every: float = 0.0) -> tuple[SimulatedMessage, ...]:
    """Messages for each destination in turn, one every so many seconds, or all at once."""
    return tuple(
        SimulatedMessage(number, destinations[number % len(destinations)], number * every) for number in range(count)
    )


REGRESSIONS = {
    # 464 of 600 messages for other destinations never arrived, and 136 gained copies without bound.
    "a destination whose sends cut the connection": Incident(
        1,
        ("orders", "billing", "audit", "cursed"),
        _messages(800, "orders", "billing", "audit", "cursed"),
        (SimulatedFault(Kind.CUT_ON_SEND, 0.0, math.inf, "contoso", "cursed"),),
        window=400,
        latency=0.02,
        linger=30.0,
    ),
    "two destinations whose sends cut the connection": Incident(
        2,
        ("orders", "cursed", "doomed"),
        _messages(300, "orders", "cursed", "doomed"),
        (
            SimulatedFault(Kind.CUT_ON_SEND, 0.0, math.inf, "contoso", "cursed"),
            SimulatedFault(Kind.CUT_ON_SEND, 0.0, math.inf, "contoso", "doomed"),
        ),
        linger=30.0,
    ),
    # One poisonous message kept its 299 companions from arriving.
    "a message that cuts the connection": Incident(
        3,
        ("orders",),
        _messages(300, "orders"),
        (SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=150),),
        linger=30.0,
    ),
    # The first message of a trial was the poisonous one, and the destination was blamed for it again and again.
    "a message that cuts the connection, at the head of its queue": Incident(
        4,
        ("orders", "billing"),
        _messages(200, "orders", "billing"),
        (SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=0),),
        linger=30.0,
    ),
    "a destination that cuts the connection for a while": Incident(
        5,
        ("orders", "cursed"),
        _messages(200, "orders", "cursed"),
        (SimulatedFault(Kind.CUT_ON_SEND, 0.0, 20.0, "contoso", "cursed"),),
        linger=30.0,
    ),
    # A window full of completions whose answers were lost stopped the queue for two minutes.
    "answers to a window of completions that are lost": Incident(
        7,
        ("orders",),
        _messages(60, "orders"),
        (SimulatedFault(Kind.BROKER, 0.0, 2.0, "contoso-dr", how="lose-reply", operation="settle"),),
        lock=60.0,
        window=20,
        latency=0.02,
    ),
    "links that cut the connection when they are attached": Incident(
        6,
        ("orders", "cursed"),
        _messages(200, "orders", "cursed"),
        (SimulatedFault(Kind.BROKER, 0.0, 30.0, "contoso", "cursed", "drop", "attach"),),
        linger=30.0,
    ),
    # Seed 6097: five small batches were answered, and the destination was trusted before the lost ones were sent again.
    "a message that cuts the connection, among many sessions": Incident(
        8,
        ("orders", "billing"),
        tuple(
            SimulatedMessage(
                number,
                ("orders", "billing")[number % 2],
                number * 37 % 120 / 120,
                session=f"s{number // 2 % 8}",
            )
            for number in range(120)
        ),
        (SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=30),),
        lock=5.0,
        window=400,
        latency=0.02,
        linger=30.0,
    ),
    # Seed 10830: the destination had failed before, so the first message that was lost alone decided that it backs off.
    # It was the poisonous one each time, and the other one was never tried.
    "a message that cuts the connection to a destination that was disabled before": Incident(
        9,
        ("orders",),
        (SimulatedMessage(0, "orders", 2.95), SimulatedMessage(1, "orders", 7.27)),
        (
            SimulatedFault(Kind.DISABLED, 2.9, 0.78, "contoso", "orders"),
            SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=0),
        ),
        lock=20.0,
        latency=0.001,
    ),
    # Two messages that are lost alone, one after the other, look like an unavailable destination.
    **{
        f"two messages that cut the connection, at the head of the queue of a {mode.value}": Incident(
            10,
            ("orders",),
            _messages(4, "orders"),
            tuple(SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=number) for number in (0, 1)),
            mode=mode,
            lock=20.0 if mode is Mode.PUMP else 60.0,
        )
        for mode in (Mode.PUMP, Mode.WORKER, Mode.DRAIN)
    },
    # Seed 35624: some locks ended in the socket, and some messages were in it twice.
    "messages that come while the process stands still": Incident(
        11,
        ("orders", "billing", "audit"),
        tuple(
            SimulatedMessage(number, destination, at)
            for number, (destination, at) in enumerate(
                [("audit", at) for at in (3.11, 5.31, 8.62)]
                + [("billing", at) for at in (5.92, 7.21, 7.84, 8.32, 9.67, 9.92)]
                + [("orders", at) for at in (5.48, 5.79, 6.86, 7.29, 7.45, 7.5, 8.34)]
            )
        ),
        (SimulatedFault(Kind.PAUSE, 5.23, 8.0),),
        lock=5.0,
        window=20,
        latency=0.02,
    ),
    # Seeds 35685 and 41708: the first messages of all were in the socket, so that nothing was known of their locks.
    "a process that stands still while its first messages come": Incident(
        12,
        ("orders",),
        _messages(150, "orders"),
        (SimulatedFault(Kind.PAUSE, 1.05, 8.0),),
        lock=5.0,
        window=100,
        latency=0.1,
    ),
    # Seed 9152: each request to renew locks had messages in it that were being completed, and was refused for them.
    "completions beside the renewal of locks, over a slow network": Incident(
        114,
        tuple(f"d{number}" for number in range(7)),
        tuple(SimulatedMessage(number, f"d{number % 7}", number * 37 % 200 / 200) for number in range(200)),
        (SimulatedFault(Kind.CUT_ON_SEND, 0.34, math.inf, "contoso", "d4"),),
        lock=5.0,
        window=100,
        latency=0.1,
        jitter=0.1,
        broker_ahead=0.5,
    ),
    # Seed 300628: the drain looked into an empty queue once, and drained the other one for a minute.
    "a drain beside messages that come into a queue that was empty": Incident(
        13,
        ("orders",),
        (
            SimulatedMessage(0, "orders", 3.0, queue=0),
            *(SimulatedMessage(number, "orders", number * 0.4, queue=1) for number in range(1, 150)),
        ),
        mode=Mode.DRAIN,
        queues=2,
        slots=1,
        lock=60.0,
        latency=0.1,
        lease=15.0,
    ),
    # Seed 177444: what was in flight on a connection that broke was sent again after the pause by the OS, before the
    # pump checked the locks, which had expired meanwhile.
    "a process that stands still while a connection breaks": Incident(
        18,
        ("orders",),
        _messages(100, "orders"),
        (
            SimulatedFault(Kind.BROKER, 0.0, 1.5, operation="send", how="lose-reply-and-drop", number=1),
            SimulatedFault(Kind.PAUSE, 0.34, 8.0),
        ),
        lock=5.0,
        window=100,
        latency=0.02,
    ),
    # Seeds 60715, 64359 and 72997, 51363 and 59083, 900548, 66220: the checker asked for what no pump can do.
    "fewer links than destinations, over a slow network": Incident(
        14,
        tuple(f"d{number}" for number in range(8)),
        _messages(400, *(f"d{number}" for number in range(8))),
        window=20,
        latency=0.1,
        jitter=0.1,
        max_links=2,
    ),
    "messages on the way whose locks end before they arrive": Incident(
        15,
        ("orders",),
        _messages(60, "orders", every=0.05),
        (SimulatedFault(Kind.STALL, 1.5, 8.0, "contoso-dr", how="both"),),
        lock=5.0,
        window=100,
        latency=0.1,
    ),
    "sends that are on the way when a slow network is fast again": Incident(
        16,
        ("orders",),
        _messages(300, "orders", every=0.01),
        (
            SimulatedFault(Kind.OUTAGE, 0.5, 8.0, "contoso-dr", how="busy"),
            SimulatedFault(Kind.BROKER, 0.0, 4.0, entity="orders", operation="attach", how="delay"),
            SimulatedFault(Kind.SLOW, 0.4, 4.0),
        ),
        lock=5.0,
        window=20,
    ),
    "a process that stands still when the five seconds are over": Incident(
        17,
        ("orders",),
        (SimulatedMessage(0, "orders", 6.4),),
        (
            SimulatedFault(Kind.KEY_REFUSED, 1.87, 1.18, "contoso-dr"),
            SimulatedFault(Kind.PAUSE, 6.58, 8.0),
        ),
        mode=Mode.WORKER,
        lock=60.0,
        window=20,
    ),
    # Seeds 257430, 289929, 291875, 305659 and 310344: each message had been locked and delivered several times when the
    # network went on, and each delivery was forwarded.
    "deliveries of the same messages that arrive together": Incident(
        19,
        ("orders",),
        _messages(60, "orders", every=0.05),
        (SimulatedFault(Kind.STALL, 1.8, 17.0, "contoso-dr", how="down"),),
        lock=5.0,
        window=100,
        latency=0.02,
    ),
    # Seed 369321: a drain said that nothing was left, and had not looked into one of the queues for half a minute.
    "a drain beside senders that go on": Incident(
        20,
        ("orders",),
        tuple(SimulatedMessage(number, "orders", number / 2, queue=number * 9 // 5 % 4) for number in range(100)),
        mode=Mode.DRAIN,
        queues=4,
        slots=1,
        lock=60.0,
        latency=0.02,
    ),
    # Seeds 301071 and 313921, and 326734, 385822 and 397050: again the checker was wrong.
    "a link that turns out to be gone when it is used again": Incident(
        21,
        ("orders",),
        (SimulatedMessage(0, "orders", 5.0), SimulatedMessage(1, "orders", 48.8)),
        (SimulatedFault(Kind.OUTAGE, 14.4, 13.0, "contoso", how="hang"),),
        mode=Mode.SENDER,
        lock=60.0,
        latency=0.1,
    ),
    "a message that cuts the connection at the end of a lease": Incident(
        22,
        ("orders", "billing"),
        (
            SimulatedMessage(0, "orders", 1.1),
            SimulatedMessage(1, "billing", 2.0),
            SimulatedMessage(2, "billing", 9.4),
            SimulatedMessage(3, "orders", 15.3),
            SimulatedMessage(4, "orders", 15.6),
            SimulatedMessage(5, "billing", 15.7),
            SimulatedMessage(6, "orders", 23.9),
        ),
        (SimulatedFault(Kind.POISON, 0.0, 21.2, "contoso", "billing", number=5),),
        mode=Mode.WORKER,
        slots=4,
        lock=60.0,
        window=20,
        latency=0.02,
        lease=15.0,
    ),
    # Like seed 531896: the destination had answered during its trials, so it did not back off when each of its messages
    # cut the connection. They filled the window.
    "a destination whose sends cut the connection again during its trials": Incident(
        23,
        ("orders", "cursed"),
        _messages(200, "orders", "cursed"),
        (
            SimulatedFault(Kind.CUT_ON_SEND, 0.0, 2.0, "contoso", "cursed"),
            SimulatedFault(Kind.CUT_ON_SEND, 2.3, math.inf, "contoso", "cursed"),
        ),
        lock=20.0,
        window=20,
        latency=0.02,
        linger=30.0,
    ),
    # A first version of the fix blamed the destination for these five, again and again.
    "five messages that cut the connection, one after the other": Incident(
        25,
        ("orders",),
        _messages(100, "orders"),
        tuple(SimulatedFault(Kind.POISON, 0.0, math.inf, "contoso", "orders", number=number) for number in range(5)),
        lock=60.0,
        linger=30.0,
    ),
    # Seed 29002823: two slots served the queue. The first one deferred the message; the other one received nothing, and
    # the worker looked for no deferred messages when it ended.
    "a message that a slot defers while its successor finds nothing": Incident(
        29002823,
        ("orders",),
        _messages(1, "orders"),
        (SimulatedFault(Kind.BROKER, 0.0, 9.0, "contoso", how="hang", operation="send", number=3),),
        mode=Mode.WORKER,
        task_failures=1,
        lock=60.0,
        latency=0.02,
    ),
    # Seed 29100577: messages waited for half a lock, and each half second a request renewed some locks for ten credits.
    # The service refused most of them, so that the limit of receives fell to one message per second. Each peek of the
    # drain asked for 32 messages, which such a namespace never returns at once.
    "renewals and peeks at a secondary that accepts twenty credits per second": Incident(
        29100577,
        ("orders", "billing"),
        tuple(
            SimulatedMessage(number, ("orders", "billing")[number * 7 % 3 % 2], 0.0, queue=number * 5 // 3 % 4)
            for number in range(1200)
        ),
        (
            SimulatedFault(Kind.THROTTLE, 0.0, 10_000.0, "contoso", number=10),
            SimulatedFault(Kind.THROTTLE, 0.0, 10_000.0, "contoso-dr", number=20),
            SimulatedFault(Kind.FOREIGN, 0.0, 10_000.0, "contoso", number=5),
        ),
        mode=Mode.DRAIN,
        queues=4,
        slots=1,
        lock=60.0,
        window=4000,
    ),
    # Three pairs shared one slot, and whichever of two waiting pairs happened to ask first got it. One waited for two
    # minutes.
    "three pairs that share one slot": Incident(
        26,
        ("orders",),
        tuple(
            SimulatedMessage(number, "orders", float(number), pair=PAIRS[number * 7 // 4 % 3]) for number in range(200)
        ),
        mode=Mode.PAIRS,
        slots=1,
        lock=60.0,
        pairs=PAIRS,
    ),
    # The slot of the bad pair ended after ten seconds each time, with one busy answer, and the next one began to count
    # again: its messages were received every twenty seconds.
    "a pair whose primary is busy for minutes, beside one that needs its slot": Incident(
        27,
        ("orders",),
        (
            *(SimulatedMessage(number, "orders", 2.0, pair=PAIRS[0]) for number in range(10)),
            *(SimulatedMessage(number, "orders", number - 10.0, pair=PAIRS[1]) for number in range(10, 310)),
        ),
        (SimulatedFault(Kind.OUTAGE, 1.0, 280.0, PAIRS[0], how="busy"),),
        mode=Mode.PAIRS,
        slots=1,
        lock=60.0,
        pairs=PAIRS[:2],
    ),
    # Seeds 543328 and 585896: once more the checker.
    "a destination that is disabled after it has failed": Incident(
        24,
        ("orders",),
        _messages(24, "orders"),
        (
            SimulatedFault(Kind.BROKER, 0.0, 9.9, how="error com.microsoft:timeout", operation="send", number=20),
            SimulatedFault(Kind.DISABLED, 10.0, 3.1, "contoso", "orders"),
        ),
        lock=5.0,
        window=20,
    ),
    # Seed 503451: a scan passed the first message of the second queue, whose destination backed off, and found the next
    # one. The transfer that this began deferred the first, and the listener did not see it for six hours.
    "a message for a disabled destination before one that starts a slot": Incident(
        28,
        ("orders", "billing"),
        (
            SimulatedMessage(0, "orders", 2.5),
            SimulatedMessage(1, "billing", 2.0, queue=1),
            SimulatedMessage(2, "orders", 6.5, queue=1),
            SimulatedMessage(3, "billing", 6.5, queue=1),
        ),
        (SimulatedFault(Kind.DISABLED, 1.0, 9.0, "contoso", "orders"),),
        mode=Mode.WORKER,
        queues=2,
        lock=60.0,
    ),
    # Seed 504413: the checker did not know that leases which end release what a throttled service takes later.
    "a throttled primary, and leases that end before it takes all": Incident(
        29,
        ("orders", "billing"),
        _messages(150, "orders", "billing"),
        (SimulatedFault(Kind.THROTTLE, 0.0, 60.0, "contoso", number=1),),
        mode=Mode.WORKER,
        lock=60.0,
        window=100,
        lease=15.0,
    ),
    # Seed 4269 with an order of sessions: a slot deferred the only message, and was killed before it reported anything.
    # The attempt that replaced it received nothing, so the listener did not look for deferred messages for six hours.
    "a slot that is killed after it has deferred a message": Incident(
        4269,
        ("orders",),
        (SimulatedMessage(0, "orders", 0.0, queue=1),),
        (
            SimulatedFault(Kind.FULL, 0.7, 16.6, "contoso", "orders"),
            SimulatedFault(Kind.SLOT_KILLED, 1.485, 30.0, "contoso-dr", how="silently"),
        ),
        mode=Mode.WORKER,
        queues=4,
        task_failures=4,
        lock=60.0,
        window=100,
        latency=0.02,
    ),
}
