"""All destinations that one pump has met: found by their path, few links for many of them, none in another's way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from syphon.backlog import not_allowed

from ..bus.connection import Connection
from ..errors import Waits
from .batches import Transfer
from .destination import Closed, Destination, Progress, Waiting
from .durations import Durations
from .options import PumpOptions
from .traces import Traces


class WaitingDestination(NamedTuple):
    """A destination that is left alone for now, as the operator sees it."""

    path: str
    seconds: float
    """Until it is tried again."""
    reason: str
    left: int
    """How many messages were left in the backlog because of it, since it last took one."""
    failures: int = 1
    """How often in a row it has failed: the next wait is the longer for it."""


class Destinations:
    """The queues and topics of the primary, as far as messages have named them."""

    def __init__(self, options: PumpOptions, traces: Traces) -> None:
        self._options = options
        self._traces = traces
        self._known: dict[str, Destination] = {}
        self._busy: dict[str, Destination] = {}
        self._paused: frozenset[str] = frozenset()
        self.send_times = Durations()
        """How long destinations took to answer, all of them together."""

    def __getitem__(self, path: str) -> Destination:
        return self._known[path.strip("/").lower()]

    def __iter__(self) -> Iterator[Destination]:
        return iter(list(self._known.values()))

    def find(self, path: str) -> Destination | str:
        """Where a message is to go, or why it must not go there (D13)."""
        key = path.strip("/").lower()
        destination = self._known.get(key)
        if destination is None:
            forbidden = not_allowed(path, self._options.allow)
            if forbidden is not None:
                return forbidden
            destination = self._known[key] = Destination(path.strip("/"), self._options.permanent)
            destination.is_paused = key in self._paused
        return destination

    def offer(self, destination: Destination, transfer: Transfer) -> None:
        destination.offer(transfer)
        self._busy[destination.path] = destination

    def work(self, connection: Connection | None, now: float) -> Iterator[tuple[Destination, Progress]]:
        """A round of work at all that have some."""
        room_for_links = self._room_for_links()
        for key, destination in list(self._busy.items()):
            if not destination.has_link():
                if room_for_links <= 0:
                    continue
                room_for_links -= 1
            progress = destination.work(connection, now)
            for answer in progress.answers:
                self.send_times.note(answer.seconds)
                self._traces.note(destination.path, answer, now)
            yield destination, progress
            if not destination.has_work():
                del self._busy[key]

    def _room_for_links(self) -> int:
        """A thousand destinations do not mean a thousand links: who needs one gets that of one that does not."""
        linked = [destination for destination in self._known.values() if destination.has_link()]
        room = self._options.max_links - len(linked)
        wanted = sum(not destination.has_link() for destination in self._busy.values())
        if wanted > room:
            idle = sorted((destination for destination in linked if destination.is_idle()), key=lambda d: d.used_at)
            for destination in idle[: wanted - room]:
                destination.close()
                room += 1
        return room

    def unsent(self) -> Iterator[tuple[Destination, Transfer]]:
        """What was not sent yet, taken back."""
        for destination in self._busy.values():
            for transfer in destination.give_up():
                yield destination, transfer

    def waiting(self, now: float) -> list[WaitingDestination]:
        """Who is left alone now. May be asked from another thread."""
        return self._in_state(Waiting, now)

    def closed(self, now: float) -> list[WaitingDestination]:
        """Whose messages go to the dead letters now. May be asked from another thread."""
        return [found for found in self._in_state(Closed, now) if found.seconds > 0]

    def _in_state(self, kind: type[Waiting] | type[Closed], now: float) -> list[WaitingDestination]:
        found = []
        for destination in self:
            state = destination.state
            if isinstance(state, kind):
                seconds = max(0.0, state.until - now)
                found.append(
                    WaitingDestination(
                        destination.path, seconds, str(state.because), destination.left, destination.failures
                    )
                )
        return found

    def pause(self, paths: frozenset[str]) -> None:
        """Those of these paths, in lower case, are left alone from now on, and no others."""
        self._paused = paths
        for key, destination in self._known.items():
            destination.is_paused = key in paths

    def leave_alone(self, known: WaitingDestination, now: float) -> None:
        """What another pump has found out counts here as well."""
        destination = self.find(known.path)
        if isinstance(destination, Destination):
            destination.failures = known.failures
            destination.state = Waiting(now + known.seconds, Waits(known.reason))

    def close(self) -> None:
        for destination in self:
            destination.close()
