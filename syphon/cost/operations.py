"""How many operations Service Bus bills for what syphon does: idle queues, messages, and an outage (S1, S7).

Receives, sends and peeks are billed; settling a message is not. This package stands below the transfer, so its
constants are copies: a test compares them with those of the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_POLL = 900
"""Seconds that one receive waits at an idle queue (S1)."""
CHUNK = 64 * 1024
"""Bytes of a message in one billed operation; a larger message counts as several."""
PEEK_PAGE = 250
"""Messages that one peek returns at most."""
FIRST_PAUSE, LONGEST_PAUSE = 30, 120
"""Seconds between tries of a destination that is missing, disabled or full: each failure doubles them (S9)."""
PING_EVERY = 60
"""Seconds between two pings of an entity that is failed over (F5)."""
CROSSINGS = 2
"""How often a message crosses from one region to the other on its way through the backlog."""
HOUR = 3600


@dataclass(frozen=True)
class BilledOperation:
    """One of the four operations that each message needs (S7), and the party that causes it."""

    what: str
    whose: str


BILLED_OPERATIONS = (
    BilledOperation("send to the backlog", "sender"),
    BilledOperation("receive from the backlog", "syphon"),
    BilledOperation("send to the primary", "syphon"),
    BilledOperation("receive from the primary", "receiver"),
)


@dataclass(frozen=True)
class DeadDestination:
    """The operations of all workers while one destination takes nothing, and all queues hold messages for it."""

    first_receives: int
    """Each message once, before it is deferred; and once more for the ring of each queue."""
    browse_peeks: int
    """To look through each queue once, page by page, for deferred messages."""
    tries: int
    """A ping, whenever a back-off is over."""

    @property
    def operations(self) -> int:
        return self.first_receives + self.browse_peeks + self.tries


def idle_receives(queues: int, days: int, long_poll: int = LONG_POLL, workers: int = 1) -> int:
    """The receives of listening to empty queues: 10 queues and 30 days are 28,800 for each worker (S1)."""
    return workers * -(-queues * days * 86_400 // long_poll)


def chunks_of(message_bytes: int) -> int:
    return max(1, -(-message_bytes // CHUNK))


def drain_operations(messages: int, message_bytes: int = 0) -> int:
    """The four operations of all messages."""
    return len(BILLED_OPERATIONS) * messages * chunks_of(message_bytes)


def ring_receives(rings: int, message_bytes: int = 0, workers: int = 1) -> int:
    """The receives of doorbells: a message that rings is received and released, and then received by a job.

    With several workers the released message may ring at each of them.
    """
    return rings * workers * chunks_of(message_bytes)


def tries_within(seconds: int) -> int:
    """How often a destination that takes nothing is tried: at once, and after pauses that double up to the longest."""
    tries, moment, pause = 0, 0, FIRST_PAUSE
    while moment < seconds and pause < LONGEST_PAUSE:
        tries, moment, pause = tries + 1, moment + pause, min(2 * pause, LONGEST_PAUSE)
    return tries + max(0, -(-(seconds - moment) // LONGEST_PAUSE))


def pings_within(hours: float, entities: int = 1, senders: int = 1, interval: float = PING_EVERY) -> int:
    """The pings in an outage: each process that sends pings each entity that is failed over (F5)."""
    return senders * entities * int(hours * HOUR // interval)


def crossing_bytes(messages: int, message_bytes: int) -> int:
    """The bytes that cross between the regions: from the sender to the secondary, and back to the primary.

    It makes no difference in which of the two regions syphon runs.
    """
    return CROSSINGS * messages * message_bytes


def dead_destination(queues: int, messages: int, hours: float, workers: int = 1) -> DeadDestination:
    """What a destination that takes nothing for so many hours costs, with `messages` for it in equal parts in all
    queues."""
    seconds = round(hours * HOUR)
    each = -(-messages // queues)
    return DeadDestination(
        first_receives=messages + workers * queues if messages else 0,
        browse_peeks=workers * queues * (1 + each // PEEK_PAGE) if messages else 0,
        tries=workers * tries_within(seconds) if messages else 0,
    )
