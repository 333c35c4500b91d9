"""Incidents that once broke a promise. They are written out: the generator may change, and they must not."""

from __future__ import annotations

import math

from .incident import Incident, Kind, SimulatedFault, SimulatedMessage


def _messages(count: int, *destinations: str) -> tuple[SimulatedMessage, ...]:
    return tuple(SimulatedMessage(number, destinations[number % len(destinations)], 0.0) for number in range(count))


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
}
