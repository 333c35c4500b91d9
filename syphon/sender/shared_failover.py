"""The state that all senders of a pair share: each entity of the primary, and the backlog queues in rotation."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from zlib import crc32

from syphon.backlog import QueueName
from syphon.time_budget import BUSY_DELAY, ORDER_HOLD, ORDER_HOLD_TURN, OUT_FOR

from .entity_state import EntityState, OrderedReturn, PrimaryEntity
from .error_classes import FailureClass, classify
from .events import (
    Change,
    EntityFailedOver,
    EntityPinged,
    OrderGivenUp,
    QueueTakenBack,
    QueueTakenOut,
    SenderMetrics,
    SideEnded,
)
from .pair_options import PairOptions, seconds

log = logging.getLogger(__name__)


class BacklogQueuePool:
    """The backlog queues of one pair. A queue that fails is out of rotation for all senders (F4).

    It has no clock: time is an argument, and so is the random choice.
    """

    def __init__(
        self, queues: Sequence[QueueName], choose: Callable[[Sequence[QueueName]], QueueName] = random.choice
    ) -> None:
        self.queues = tuple(queues)
        self._choose = choose
        self._out_until: dict[QueueName, float] = {}

    def is_in_rotation(self, queue: QueueName, now: float) -> bool:
        return self._out_until.get(queue, now) <= now

    def pick(self, tried: Collection[QueueName], now: float) -> QueueName | None:
        """Picks one of the queues in rotation at random.

        If all are out, it gives the one that has been out longest, but only to a call that has not tried a queue yet.
        """
        able = [queue for queue in self.queues if self.is_in_rotation(queue, now) and queue not in tried]
        if able:
            return self._choose(able)
        return None if tried else min(self.queues, key=lambda queue: self._out_until[queue])

    def take_out(self, queue: QueueName, error: Exception, seconds: float, now: float) -> Iterator[Change]:
        """Takes a queue that has failed out of rotation."""
        if self.is_in_rotation(queue, now):  # several senders may see the failure at the same time
            yield QueueTakenOut(queue, seconds, error)
        self._out_until[queue] = now + seconds

    def put_back(self, queue: QueueName) -> Iterator[Change]:
        """Puts a queue that has accepted messages back into rotation."""
        if self._out_until.pop(queue, None) is not None:
            yield QueueTakenBack(queue)


class Failover:
    """The shared state of one pair. Any thread may call it. It reports events after it has released its lock."""

    def __init__(
        self,
        pair: str,
        options: PairOptions,
        queues: Sequence[QueueName],
        now: Callable[[], float],
        start_watch: Callable[[PrimaryEntity], None],
        all_queues: Sequence[QueueName] = (),
    ) -> None:
        """`all_queues` are those of `backlog_queue_count`, also if some could not be created.

        `start_watch` is called at the first failure of a healthy entity, and not again before that watch has ended
        (`end_watch`)."""
        self.options = options
        self.operation_timeout = seconds(options.operation_timeout)
        self.now = now
        self.metrics = SenderMetrics(pair)
        self._pair = pair
        self._pool = BacklogQueuePool(queues)
        self._all_queues = tuple(all_queues) or tuple(queues)
        self._start_watch = start_watch
        self._watched: set[PrimaryEntity] = set()
        self._entities: dict[str, PrimaryEntity] = {}
        self._lock = threading.Lock()

    # --- entities ------------------------------------------------------------------------------------------------

    def entity(self, path: str) -> PrimaryEntity:
        """The entity of that name. Names of Service Bus entities are not case-sensitive."""
        with self._lock:
            key = path.strip("/").lower()
            if key not in self._entities:
                failing, pinging = self.options.failover_interval, self.options.ping_primary_interval
                self._entities[key] = PrimaryEntity(path.strip("/"), seconds(failing), seconds(pinging))
            return self._entities[key]

    def failed_over(self) -> tuple[str, ...]:
        """The paths of all entities that are failed over."""
        with self._lock:
            return tuple(entity.path for entity in self._entities.values() if entity.is_failed_over)

    def is_failed_over(self, entity: PrimaryEntity) -> bool:
        """Whether messages for the entity currently go to the backlog."""
        if entity.state is EntityState.DOUBTFUL:
            self._change(lambda: entity.check(self.now()))
        return entity.is_failed_over

    def succeeded(self, entity: PrimaryEntity, count: int) -> None:
        """Messages have arrived at the primary."""
        if not entity.is_healthy or entity.busy_error is not None:
            with self._lock:
                entity.succeeded()
        self.metrics.accepted(entity.path, "primary", count)

    def failed(self, entity: PrimaryEntity, error: Exception) -> None:
        """A send has failed with an error that counts."""
        self._change(lambda: entity.failed(error, self.now()))
        with self._lock:
            is_new = entity not in self._watched and entity.due() is not None
            if is_new:
                self._watched.add(entity)
        if is_new:
            self._start_watch(entity)

    def was_busy(self, entity: PrimaryEntity, error: Exception) -> None:
        """The service has answered "server busy" (S5)."""
        with self._lock:
            entity.was_busy(error, self.now())

    def pinged(self, entity: PrimaryEntity, error: Exception | None, began: float) -> None:
        """A ping has arrived, or has failed with an error."""
        self._change(lambda: entity.pinged(error, began, self.now()))

    # --- the order of sessions -----------------------------------------------------------------------------------

    @property
    def keeps_order(self) -> bool:
        return self.options.session_order

    @property
    def order_queues(self) -> tuple[QueueName, ...]:
        """The queues that sessions may be in."""
        return self._pool.queues

    def queue_of(self, path: str, session: str) -> QueueName:
        """The backlog queue of a session, the same in every process."""
        return self._all_queues[crc32(f"{path.lower()}\n{session}".encode()) % len(self._all_queues)]

    def enter_backlog(self, entity: PrimaryEntity, may_wait: float) -> OrderedReturn | float:
        """Begins a send to the backlog, which ends with `leave_backlog`. Otherwise returns how long to wait, 0 if the
        entity has returned to the primary. `may_wait` is how long the send may wait."""
        with self._lock:
            if not entity.is_failed_over:
                return 0.0
            ordered = entity.ordered = entity.ordered or OrderedReturn()
            held = ordered.held_until - self.now()
            if 0 < held < may_wait:
                return min(held, ORDER_HOLD_TURN)
            ordered.begun += 1
            ordered.in_flight += 1
            return ordered

    def leave_backlog(self, ordered: OrderedReturn) -> None:
        with self._lock:
            ordered.in_flight -= 1

    def sends_to_backlog(self, entity: PrimaryEntity) -> int:
        """How many sends to the backlog have begun since the entity was failed over."""
        with self._lock:
            return 0 if entity.ordered is None else entity.ordered.begun

    def return_in_order(self, entity: PrimaryEntity, begun: int | None, ping_began: float) -> bool:
        """Returns an entity to the primary if its backlog is empty: a check has found no message, and no send has begun
        since (`begun`; None: it has found one). Otherwise new sends may wait for a moment."""
        returned = False

        def change() -> Iterator[Change]:
            nonlocal returned
            now = self.now()
            ordered = entity.ordered = entity.ordered or OrderedReturn()
            ordered.waits_since = now if ordered.waits_since is None else ordered.waits_since
            waited = now - ordered.waits_since
            is_empty = begun == ordered.begun and not ordered.in_flight
            if is_empty or waited > seconds(self.options.session_order_wait):
                if not is_empty:
                    yield OrderGivenUp(entity.path, waited)
                entity.ordered, returned = None, True
                yield from entity.pinged(None, ping_began, now)
            elif now >= ordered.not_held_before:
                ordered.held_until, ordered.not_held_before = now + ORDER_HOLD, now + 2 * ORDER_HOLD

        self._change(change)
        return returned

    # --- the watch over an entity --------------------------------------------------------------------------------

    def due(self, entity: PrimaryEntity) -> float | None:
        """When the entity needs attention. None while it is healthy."""
        with self._lock:
            return entity.due()

    def end_watch(self, entity: PrimaryEntity) -> bool:
        """Ends the watch over a healthy entity; returns False, and keeps the watch, if the entity has failed again.

        One step under the lock: otherwise a failure in between would start no new watch.
        """
        with self._lock:
            if entity.due() is not None:
                return False
            self._watched.discard(entity)
            return True

    # --- backlog queues ------------------------------------------------------------------------------------------

    def queue_for(self, present: QueueName | None, tried: dict[QueueName, Exception]) -> QueueName | None:
        """The backlog queue that a sender uses next: its present one as long as that works, otherwise another one."""
        with self._lock:
            now = self.now()
            if present is not None and present not in tried and self._pool.is_in_rotation(present, now):
                return present
            return self._pool.pick(tried, now)

    def queue_failed(self, queue: QueueName, error: Exception) -> None:
        """A backlog queue did not accept messages."""
        seconds = BUSY_DELAY if classify(error) is FailureClass.BUSY else OUT_FOR
        self._change(lambda: self._pool.take_out(queue, error, seconds, self.now()))

    def queue_works(self, queue: QueueName) -> None:
        """A backlog queue has accepted messages."""
        self._change(lambda: self._pool.put_back(queue))

    # --- reporting -----------------------------------------------------------------------------------------------

    def _change(self, step: Callable[[], Iterable[Change]]) -> None:
        with self._lock:
            changes = list(step())
        for change in changes:
            self.report(change)

    def report(self, change: Change) -> None:
        """Logs and counts an event, and tells the application."""
        serious = isinstance(change, EntityFailedOver | OrderGivenUp | QueueTakenOut | SideEnded) or (
            isinstance(change, EntityPinged) and change.error is not None
        )
        log.log(logging.WARNING if serious else logging.INFO, "%s: %s", self._pair, change)
        self.metrics.record(change)
        if self.options.on_change is not None:
            try:
                self.options.on_change(change)
            except Exception:
                log.exception("%s: the application's on_change raised; sending continues", self._pair)
