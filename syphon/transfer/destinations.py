"""All destinations that one pump has met: found by their path, few links for many of them, none in another's way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from syphon.backlog import not_allowed
from syphon.bus import Connection
from syphon.model import Durations, EntityPath, Waits

from .batches import Transfer
from .breaker import BackingOff, Rejecting
from .destination import NO_LINK, Destination, Progress, WindowShare
from .options import PumpOptions
from .traces import Traces

UNDER_WAY = 0.75
"""The share of what may be in hand that may be under way to destinations, all of them together."""

LOOK_AT_ALL = 0.5
"""Seconds between looks at those that get no link: there may be hundreds, and little to be done for them."""


class DestinationBackoff(NamedTuple):
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
        self._paused: frozenset[EntityPath] = frozenset()
        self._next_look_at_all = 0.0
        self.send_times = Durations()
        """How long destinations took to answer, all of them together."""

    def __getitem__(self, path: str) -> Destination:
        return self._known[EntityPath.of(path).key]

    def __iter__(self) -> Iterator[Destination]:
        return iter(list(self._known.values()))

    def find(self, path: EntityPath) -> Destination | str:
        """Where a message is to go, or why it must not go there (D13)."""
        destination = self._known.get(path.key)
        if destination is None:
            forbidden = not_allowed(path, self._options.allow)
            if forbidden is not None:
                return forbidden
            destination = self._known[path.key] = Destination(path.name, self._options.permanent)
            destination.is_paused = path in self._paused
        return destination

    def offer(self, destination: Destination, transfer: Transfer) -> None:
        destination.offer(transfer)
        self._busy[destination.path] = destination

    def work(self, connection: Connection | None, now: float) -> Iterator[tuple[Destination, Progress]]:
        """A round of work at all that have some."""
        share, room_for_links = self._share(), self._room_for_links()
        is_time_for_all = now >= self._next_look_at_all
        if is_time_for_all:
            self._next_look_at_all = now + LOOK_AT_ALL
        for key, destination in list(self._busy.items()):
            had_link = destination.has_link()
            gets_one = had_link or room_for_links > 0
            if not gets_one and not is_time_for_all:
                continue
            progress = destination.work(connection, now, share if gets_one else NO_LINK)
            room_for_links += had_link - destination.has_link()
            for answer in progress.answers:
                self.send_times.note(answer.seconds)
                self._traces.note(destination.path, answer, now)
            yield destination, progress
            if not destination.has_work():
                del self._busy[key]

    def _share(self) -> WindowShare:
        """Most of the window is for what is under way. Whoever does not answer must leave some for others."""
        share = UNDER_WAY / max(1, len(self._busy))
        return WindowShare(int(share * self._options.window), int(share * self._options.window_bytes))

    def _room_for_links(self) -> int:
        """A thousand destinations do not mean a thousand links: who needs one gets that of one that does not."""
        linked = [destination for destination in self._known.values() if destination.has_link()]
        room = self._options.max_links - len(linked)
        wanted = sum(not destination.has_link() for destination in self._busy.values())
        if wanted > room:
            spare = (destination for destination in linked if destination.can_spare_its_link())
            for destination in sorted(spare, key=lambda d: d.used_at)[: wanted - room]:
                destination.close()
                room += 1
        return room

    def unsent(self, locked_before: float = math.inf) -> Iterator[Transfer]:
        """What was not sent yet, taken back: all, or what was last locked before then."""
        for destination in self._busy.values():
            yield from destination.give_up(locked_before)

    def waiting(self, now: float) -> list[DestinationBackoff]:
        """Who is left alone now. May be asked from another thread."""
        return self._in_state(BackingOff, now)

    def closed(self, now: float) -> list[DestinationBackoff]:
        """Whose messages go to the dead letters now. May be asked from another thread."""
        return [found for found in self._in_state(Rejecting, now) if found.seconds > 0]

    def _in_state(self, kind: type[BackingOff] | type[Rejecting], now: float) -> list[DestinationBackoff]:
        found = []
        for destination in self:
            state = destination.state
            if isinstance(state, kind):
                seconds = max(0.0, state.until - now)
                found.append(
                    DestinationBackoff(
                        destination.path,
                        seconds,
                        str(state.because),
                        destination.left,
                        destination.breaker.failures,
                    )
                )
        return found

    def pause(self, paths: frozenset[EntityPath]) -> None:
        """Leaves these destinations alone from now on, and no others."""
        self._paused = paths
        for destination in self:
            destination.is_paused = EntityPath.of(destination.path) in paths

    def leave_alone(self, known: DestinationBackoff, now: float) -> None:
        """What another pump has found out counts here as well."""
        destination = self.find(EntityPath.of(known.path))
        if isinstance(destination, Destination):
            destination.breaker.leave_alone(now + known.seconds, Waits(known.reason), known.failures)

    def close(self) -> None:
        for destination in self:
            destination.close()
