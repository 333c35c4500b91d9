"""A canary: a probe that takes the way of every message, through a backlog queue to an entity of its own.

An idle pair may be broken for months without a sign. The probe shows before an outage that senders can write to the
backlog, that the worker notices it, and that the primary accepts what it forwards; and how long all that takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from syphon.amqp import Header, Malformed, Properties, UInt, Value, data_section, header_bytes, properties_bytes
from syphon.backlog import message_id_of, to_backlog
from syphon.config import PairSettings
from syphon.model import (
    DestinationBusy,
    DestinationMissing,
    EntityPath,
    ExitCode,
    NotAuthorized,
    SyphonError,
    duration,
    exit_code_for,
)
from syphon.servicebus import (
    FIRST_OF_PARTITION,
    Connection,
    Peeked,
    Peeker,
    connected,
    namespace_of,
    sequence_bounds,
    wait_for_traffic,
)
from syphon.time_budget import CANARY_PEEKS_EVERY, CANARY_SETTLES_WITHIN, CANARY_TURN, PUMP_TICK

from .entity_sender import EntitySender, OutgoingMessage

PROBE = "syphon-canary-"
"""What the message ids of probes begin with."""
PROBE_LIVES = UInt(3_600_000)
"""The time to live of a probe at its destination, in milliseconds: nobody receives probes, and they do not pile up."""


class CanaryFailed(SyphonError):
    """A probe could not be sent, or its destination could not be peeked at."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What became of one probe."""

    pair: str
    queue: str
    destination: str
    seconds: float | None
    """From the acceptance by the backlog to the arrival; None if it did not arrive in time."""
    failure: SyphonError | None = None
    """Why it could not be sent or waited for: then nothing is known about the worker."""

    @property
    def has_arrived(self) -> bool:
        return self.seconds is not None

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that sends just this probe."""
        if self.failure is not None:
            return exit_code_for([self.failure])
        return ExitCode.OK if self.has_arrived else ExitCode.LEFT

    def as_json(self) -> dict[str, object]:
        error = None if self.failure is None else str(self.failure)
        names = {"pair": self.pair, "queue": self.queue, "destination": self.destination}
        return names | {"seconds": self.seconds, "error": error}

    def __str__(self) -> str:
        way = f"{self.queue} to {self.destination}"
        if self.failure is not None:
            return f"{self.pair}: no probe from {way}: {self.failure}"
        if self.seconds is None:
            return f"{self.pair}: the probe from {way} has not arrived"
        return f"{self.pair}: the probe from {way} arrived after {duration(self.seconds)}"


def send_probe(
    pair: PairSettings,
    queue: str,
    destination: str,
    within: float,
    is_stopped: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Sends a probe to a backlog queue, and waits until it arrives at its destination. Raises nothing."""
    try:
        path = pair.destinations.renames.actual(EntityPath.of(destination)).name
        with connected(pair.primary, path) as primary:
            inbox = _Inbox(primary, path, now)
            inbox.open()  # before the probe is sent: without the right to peek nobody would see it arrive
            message_id = PROBE + uuid4().hex
            _send(pair, queue, destination, message_id)
            sent_at = now()
            while now() - sent_at < within and not is_stopped():
                if inbox.has(message_id):
                    return ProbeResult(pair.name, queue, destination, round(now() - sent_at, 3))
        return ProbeResult(pair.name, queue, destination, None)
    except SyphonError as error:
        return ProbeResult(pair.name, queue, destination, None, error)


def _send(pair: PairSettings, queue: str, destination: str, message_id: str) -> None:
    payload = (
        header_bytes(Header(ttl=PROBE_LIVES)) + properties_bytes(Properties(message_id=message_id)) + data_section(b"")
    )

    def refused(_: OutgoingMessage, error: SyphonError) -> None:
        raise error

    sender = EntitySender(namespace_of(pair.secondary, queue), queue, refused, CANARY_SETTLES_WITHIN)
    try:
        sender.send(OutgoingMessage(0, to_backlog(payload, destination), message_id, None, None))
        sender.finish()
    finally:
        sender.close()


class _Inbox:
    """Peeks at the destination of a probe, and changes nothing there. Exactly one thread uses it.

    Another canary may have probes in the same queue, and an application its messages: none of them is received.
    """

    def __init__(self, connection: Connection, path: str, now: Callable[[], float]) -> None:
        self._connection = connection
        self._path = path
        self._now = now
        self._peeker = Peeker(connection, path)
        self._first = self._next = 1
        self._asked_at = self._peeks_at = self._ticked_at = now()

    def open(self) -> None:
        """Finds the end of the queue: the probe comes after it. Raises if the entity cannot be peeked at."""
        try:
            bounds = sequence_bounds(self._connection, self._path)
        except DestinationMissing:
            text = f"'{self._path}' does not exist on the primary: create this queue for the probes."
            raise CanaryFailed(text) from None
        except NotAuthorized as error:
            raise NotAuthorized(f"the probes cannot be seen: grant Listen on '{self._path}' ({error})") from None
        if bounds is not None and bounds[1] < FIRST_OF_PARTITION:  # a partitioned queue has no end
            self._first = self._next = bounds[1] + 1

    def has(self, message_id: str) -> bool:
        """Peeks for a moment. True if the message with this id is in the queue."""
        self._turn()
        peeker, now = self._peeker, self._now()
        if not peeker.is_waiting and now >= self._peeks_at:
            self._asked_at = now
            peeker.ask(self._next)
        try:
            page = peeker.take()
        except DestinationBusy as busy:
            self._peeks_at = now + busy.retry_after
            return False
        if page is None:
            if peeker.is_waiting and now - self._asked_at > CANARY_SETTLES_WITHIN:
                raise CanaryFailed(f"'{self._path}' does not answer.")
            return False
        if page:
            self._next = page[-1].sequence_number + 1
        else:  # the end: again from the first, since a partition may have got one with a lower number
            self._next, self._peeks_at = self._first, now + CANARY_PEEKS_EVERY
        return any(_id_of(message) == message_id for message in page)

    def _turn(self) -> None:
        connection = self._connection
        wait_for_traffic([connection.wire], CANARY_TURN)
        if connection.wire.failure is not None:
            raise connection.wire.failure
        connection.read()
        if self._now() - self._ticked_at >= PUMP_TICK:
            self._ticked_at = self._now()
            connection.tick()


def _id_of(message: Peeked) -> Value:
    try:
        return message_id_of(message.payload)
    except Malformed:
        return None
