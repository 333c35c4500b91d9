"""All destinations of one pump: found by path, with few links for many of them, and isolated from each other (S3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from syphon.model import DestinationError, Durations, EntityPath, Renames
from syphon.servicebus import Connection
from syphon.time_budget import CHECK_ALL_EVERY

from .breaker import BUSY_IN_A_ROW, BackingOff, Rejecting
from .congestion import Congestion
from .connection_suspects import Isolation
from .destination import MOST_THROTTLED, Destination, SendResults, WindowShare
from .message_transfer import Chosen, MessageTransfer
from .ordered_messages import OrderedUnsent
from .pump_options import PumpOptions
from .traces import Traces
from .window import RateLimiter

IN_FLIGHT_SHARE = 0.75
"""The share of the window that may be in flight to all destinations together."""

BURST = 0.25
"""Seconds of messages that may be sent at once while the service throttles. Congestion is measured per second, so this
burst stays within the head-room. It also covers a slow turn of a busy machine."""


class DestinationBackoff(NamedTuple):
    """A destination that backs off or rejects, as the operator sees it."""

    path: str
    seconds: float
    """Seconds until the next attempt."""
    reason: str
    left: int
    """How many messages stayed in the backlog because of it since it last accepted one."""
    failures: int = 1
    """How often in a row it has failed: each failure doubles the next wait."""
    error: DestinationError = DestinationError.NONE

    @property
    def is_throttled(self) -> bool:
        """Whether the service answered busy, and is expected to accept messages soon: they stay in flight."""
        return self.error is DestinationError.BUSY and self.failures <= BUSY_IN_A_ROW


class Destinations:
    """The queues and topics that messages have named so far."""

    def __init__(
        self,
        options: PumpOptions,
        traces: Traces,
        objection: Callable[[EntityPath], str | None],
        rename: Renames | None = None,
    ) -> None:
        self._options = options
        self._traces = traces
        self._objection = objection
        self._rename = rename or Renames()
        self._known: dict[str, Destination] = {}
        self._named: dict[str, Destination] = {}
        """By the paths that messages name. They differ from those of `_known` where the operator renames them."""
        self._busy: dict[str, Destination] = {}
        self._paused: frozenset[EntityPath] = frozenset()
        self._check_all_at = 0.0
        self._isolation = Isolation()
        self.congestion = Congestion(options.rate_share)
        """What the namespace takes from us."""
        self._pace = RateLimiter(0.0, BURST)
        self.send_times = Durations()
        """How long the destinations took to answer."""

    def __getitem__(self, path: str) -> Destination:
        return self._known[EntityPath.of(path).key]

    def __iter__(self) -> Iterator[Destination]:
        return iter(list(self._known.values()))

    def find(self, path: EntityPath) -> Destination | str:
        """The destination of a path that a message names, or why nothing may be sent there (D13)."""
        destination = self._named.get(path.key)
        if destination is None:
            objection = self._objection(path)
            if objection is not None:
                return objection
            destination = self._named[path.key] = self._entity(self._rename.actual(path))
        return destination

    def by_key(self, key: str) -> Destination | None:
        """The destination with a key, which is that of an entity or of a path that messages name.

        None if nothing may be sent there: the messages go to the dead letters.
        """
        found = self._known.get(key) or self.find(EntityPath.of(key))
        return None if isinstance(found, str) else found

    def renamed(self, path: EntityPath) -> str | None:
        """The entity that messages for a path go to, if it is another one."""
        actual = self._rename.actual(path)
        return None if actual is path else actual.name

    def _entity(self, path: EntityPath) -> Destination:
        """The destination for an entity of the primary, whatever the messages for it name."""
        destination = self._known.get(path.key)
        if destination is None:
            destination = self._known[path.key] = Destination(
                path.name, self._options.permanent, None if self._options.session_order is None else OrderedUnsent()
            )
            destination.pause(path in self._paused)
        return destination

    def offer(self, destination: Destination, transfer: MessageTransfer) -> None:
        destination.offer(transfer)
        self._busy[destination.path] = destination

    def work(self, connection: Connection | None, now: float) -> Iterator[tuple[Destination, SendResults]]:
        """Does a round of work for every destination that has some, and yields the results."""
        share, room_for_links = self._share(), self._room_for_links()
        limit = self.congestion.limit(now)
        room, refused = self._pace.room(limit, now), 0
        is_time_for_all = now >= self._check_all_at
        if is_time_for_all:
            self._check_all_at = now + CHECK_ALL_EVERY
        if connection is not None:
            self._isolation.begin_round(self._busy.values(), room_for_links, now)
            connection.is_isolating = self._isolation.is_active
        for key, destination in list(self._busy.items()):
            had_link = destination.has_link()
            gets_one = had_link or room_for_links > 0
            if not gets_one and not is_time_for_all:
                continue
            may_send, allowed = self._isolation.may_send(destination), share
            if not (gets_one and may_send):  # few: with 1,000 destinations the copies would cost a tenth of the time
                allowed = share._replace(may_open_link=gets_one, may_send=may_send)
            results = destination.work(connection, now, allowed, room)
            room_for_links += had_link - destination.has_link()
            for answer in results.answers:
                self.send_times.count(answer.seconds)
                self._traces.record(destination.path, answer, now)
            if results.accepted:
                self.congestion.accepted(len(results.accepted), now)
            refused = max(refused, results.busy)
            if room is not None:
                self._pace.spend(results.sent)
                room -= results.sent
                if room <= 0:
                    self.congestion.bound(now)
                if results.sent:  # the others come first in the next round: a small room is shared by taking turns
                    del self._busy[key]
                    self._busy[key] = destination
            yield destination, results
            if not destination.has_work():
                del self._busy[key]
        if refused:  # after all: what other destinations have accepted counts, too
            self.congestion.busy(now, refused)
        if connection is None:
            self._isolation.end()  # after the destinations have seen what was in flight

    def _share(self) -> WindowShare:
        """Shares most of the window equally: a destination that does not answer must leave room for others."""
        share = IN_FLIGHT_SHARE / max(1, len(self._busy))
        held = int(MOST_THROTTLED * self._options.window / max(1, len(self._busy)))
        return WindowShare(int(share * self._options.window), int(share * self._options.window_bytes), max(1, held))

    def _room_for_links(self) -> int:
        """How many more links may be opened, at least. Takes idle links from destinations if others need one."""
        if len(self._known) <= self._options.max_links:
            return self._options.max_links  # there are enough for all
        linked = [destination for destination in self._known.values() if destination.has_link()]
        room = self._options.max_links - len(linked)
        wanted = sum(not destination.has_link() for destination in self._busy.values())
        if wanted > room:
            spare = (destination for destination in linked if destination.can_spare_its_link())
            for destination in sorted(spare, key=lambda d: d.used_at)[: wanted - room]:
                destination.close()
                room += 1
        return room

    def wake(self) -> None:
        """Messages that had to wait for others of their session may be sent."""
        for destination in self._busy.values():
            destination.wake()

    def take_unsent(self, chosen: Chosen = None) -> Iterator[MessageTransfer]:
        """Removes and yields the messages that were not sent: all, or the chosen ones."""
        for destination in self._busy.values():
            yield from destination.take_unsent(chosen)

    def throttled(self) -> int:
        """How many messages wait for the end of ten seconds without requests."""
        return sum(destination.unsent for destination in self._busy.values() if destination.breaker.is_throttled)

    def take_throttled(self) -> Iterator[MessageTransfer]:
        """Removes and yields the unsent messages of the destinations that are throttled."""
        for destination in self._busy.values():
            if destination.breaker.is_throttled:
                yield from destination.take_unsent()

    @property
    def has_unsent(self) -> bool:
        """Whether a message waits to be sent."""
        return any(destination.unsent for destination in self._busy.values())

    def backing_off(self, now: float) -> list[DestinationBackoff]:
        """The destinations that back off now. Another thread may ask."""
        return self._in_state(BackingOff, now)

    def rejecting(self, now: float) -> list[DestinationBackoff]:
        """The destinations whose messages are dead-lettered now. Another thread may ask."""
        return [found for found in self._in_state(Rejecting, now) if found.seconds > 0]

    def recovered(self) -> list[str]:
        """The paths of destinations that had failed, and are available. Another thread may ask."""
        return [destination.path for destination in self if destination.has_recovered]

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
                        destination.breaker.attempts,
                        DestinationError.of(state.because),
                    )
                )
        return found

    def pause(self, paths: frozenset[EntityPath]) -> None:
        """Pauses exactly these destinations from now on."""
        self._paused = paths
        for destination in self:
            destination.pause(EntityPath.of(destination.path) in paths)

    def back_off(self, known: DestinationBackoff, now: float) -> None:
        """Makes a destination back off because another pump found that it is unavailable.

        If the time is over, it only counts as failed: it is tried with one batch, or a ping.
        """
        because = known.error.error(known.reason)
        destination = self._entity(EntityPath.of(known.path))
        if known.seconds > 0:
            destination.breaker.back_off(now + known.seconds, because, known.failures)
        elif not destination.has_accepted:
            destination.breaker.count_failures(because, known.failures)

    def retry(self, path: EntityPath) -> None:
        """Ends the back-off of a destination. It has still failed: it is tried with one batch, or a ping."""
        destination = self._known.get(path.key)
        if destination is not None:
            destination.breaker.retry()

    def ping(self, destination: Destination) -> None:
        """Finds out without a message whether a destination is available."""
        destination.ping()
        self._busy[destination.path] = destination

    def close(self) -> None:
        for destination in self:
            destination.close()
