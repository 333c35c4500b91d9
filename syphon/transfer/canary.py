"""A canary: a probe that takes the way of every message, through a backlog queue to an entity of its own.

An idle pair may be broken for months without a sign. The probe shows before an outage that senders can write to the
backlog, that the worker notices it, and that the primary accepts what it forwards; and how long all that takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from syphon.amqp import Header, Properties, UInt, data_section, header_bytes, properties_bytes
from syphon.backlog import to_backlog
from syphon.config import PairSettings
from syphon.model import (
    DestinationMissing,
    EntityPath,
    ExitCode,
    NotAuthorized,
    SyphonError,
    duration,
    exit_code_for,
)
from syphon.servicebus import Connection, LinkState, RawReceiver, connected, namespace_of, wait_for_traffic
from syphon.time_budget import CANARY_SETTLES_WITHIN, CANARY_TURN, PUMP_TICK

from .entity_sender import EntitySender, OutgoingMessage

PROBE = "syphon-canary-"
"""What the message ids of probes begin with."""
PROBE_LIVES = UInt(3_600_000)
"""The time to live of a probe at its destination, in milliseconds: probes that nobody receives do not pile up."""


class CanaryFailed(SyphonError):
    """A probe could not be sent, or its destination could not be received from."""


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
            inbox.open()  # before the probe is sent: without the right to receive nobody would see it arrive
            message_id = PROBE + uuid4().hex
            _send(pair, queue, destination, message_id)
            sent_at = now()
            while now() - sent_at < within and not is_stopped():
                if inbox.has_received(message_id.encode()):
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
    """Receives from the destination of the probes. Exactly one thread uses it."""

    def __init__(self, connection: Connection, path: str, now: Callable[[], float]) -> None:
        self._connection = connection
        self._path = path
        self._now = now
        self._receiver: RawReceiver | None = None
        self._ticked_at = now()

    def open(self) -> None:
        """Attaches the link. Raises if the entity cannot be received from."""
        deadline = self._now() + CANARY_SETTLES_WITHIN
        try:
            while self._now() < deadline:
                self._turn()
                if self._receiver is None and self._connection.tokens.allow(self._path):
                    self._receiver = RawReceiver(self._connection.wire, self._path)
                if self._receiver is not None and self._receiver.state is LinkState.OPEN:
                    return
                if self._receiver is not None and self._receiver.state is LinkState.LOST:
                    raise self._receiver.error or CanaryFailed(f"the link to '{self._path}' was lost.")
        except DestinationMissing:
            text = f"'{self._path}' does not exist on the primary: create this queue for the probes."
            raise CanaryFailed(text) from None
        except NotAuthorized as error:
            raise NotAuthorized(f"the probes cannot be received: grant Listen on '{self._path}' ({error})") from None
        raise CanaryFailed(f"'{self._path}' does not answer.")

    def has_received(self, message_id: bytes) -> bool:
        """Receives for a moment. True if the probe with this id has come. Completes earlier probes, which were late."""
        receiver = self._receiver
        assert receiver is not None, "open() comes first"
        self._turn()
        if receiver.state is LinkState.LOST:
            raise receiver.error or CanaryFailed(f"the link to '{self._path}' was lost.")
        if not receiver.credit and not receiver.settling:
            receiver.grant(1)
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if PROBE.encode() not in arrival.payload:
                receiver.release(arrival)
                self._settle(receiver)
                raise CanaryFailed(
                    f"'{self._path}' has messages that are no probes: a canary needs a queue of its own."
                )
            receiver.complete(arrival)
            if message_id in arrival.payload:
                self._settle(receiver)
                return True
        return False

    def _settle(self, receiver: RawReceiver) -> None:
        deadline = self._now() + CANARY_SETTLES_WITHIN
        while receiver.settling and self._now() < deadline:
            self._turn()

    def _turn(self) -> None:
        connection = self._connection
        wait_for_traffic([connection.wire], CANARY_TURN)
        if connection.wire.failure is not None:
            raise connection.wire.failure
        connection.read()
        if self._now() - self._ticked_at >= PUMP_TICK:
            self._ticked_at = self._now()
            connection.tick()
