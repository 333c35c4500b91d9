"""What all senders of a pair know together: the state of each entity, the queues in rotation, and who is told of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from syphon.backlog import QueueName

from .changes import Change, EntityFailedOver, EntityPinged, QueueTakenOut
from .entities import HEALTHY, QUIET, Doubtful, Entity
from .error_classes import Verdict, judge
from .options import PairOptions
from .rotation import OUT_FOR, Rotation
from .telemetry import Telemetry

log = logging.getLogger(__name__)


class Failover:
    """The shared state of one pair. Any thread may call; changes are told outside the lock."""

    def __init__(
        self,
        pair: str,
        options: PairOptions,
        queues: Sequence[QueueName],
        now: Callable[[], float],
        watch: Callable[[Entity], None],
    ) -> None:
        """`watch` is called once for an entity that needs to be looked after, and again only when `due` was None."""
        self.options = options
        self.operation_timeout = options.operation_timeout.total_seconds()
        self.now = now
        self.telemetry = Telemetry(pair)
        self._pair = pair
        self._rotation = Rotation(queues)
        self._watch = watch
        self._watched: set[Entity] = set()
        self._entities: dict[str, Entity] = {}
        self._lock = threading.Lock()

    # --- entities ------------------------------------------------------------------------------------------------

    def entity(self, path: str) -> Entity:
        """The entity of that name: Service Bus makes no difference between capitals and small letters."""
        with self._lock:
            key = path.strip("/").lower()
            if key not in self._entities:
                failing, pinging = self.options.failover_interval, self.options.ping_primary_interval
                self._entities[key] = Entity(path.strip("/"), failing.total_seconds(), pinging.total_seconds())
            return self._entities[key]

    def failed_over(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(entity.path for entity in self._entities.values() if entity.is_failed_over)

    def is_failed_over(self, entity: Entity) -> bool:
        """Whether messages go to the backlog, now."""
        if isinstance(entity.state, Doubtful):
            self._change(lambda: entity.check(self.now()))
        return entity.is_failed_over

    def succeeded(self, entity: Entity, count: int) -> None:
        """Messages have arrived at the primary."""
        if entity.state is not HEALTHY or entity.busy is not None:
            with self._lock:
                entity.succeeded()
        self.telemetry.accepted(entity.path, "primary", count)

    def failed(self, entity: Entity, error: Exception) -> None:
        """A send has failed in a way that counts."""
        self._change(lambda: entity.failed(error, self.now()))
        with self._lock:
            new = entity not in self._watched and entity.due() is not None
            if new:
                self._watched.add(entity)
        if new:
            self._watch(entity)

    def was_busy(self, entity: Entity, error: Exception) -> None:
        with self._lock:
            entity.was_busy(error, self.now())

    def due(self, entity: Entity) -> float | None:
        """When the entity has to be looked at. None: it is healthy, and whoever watches it can go."""
        with self._lock:
            due = entity.due()
            if due is None:
                self._watched.discard(entity)
            return due

    def pinged(self, entity: Entity, error: Exception | None, began: float) -> None:
        self._change(lambda: entity.pinged(error, began, self.now()))

    # --- backlog queues ------------------------------------------------------------------------------------------

    def queue_for(self, present: QueueName | None, tried: dict[QueueName, Exception]) -> QueueName | None:
        """The queue a sender goes on with: the one it has, while that works, else another."""
        with self._lock:
            now = self.now()
            if present is not None and present not in tried and self._rotation.has(present, now):
                return present
            return self._rotation.pick(tried, now)

    def queue_failed(self, queue: QueueName, error: Exception) -> None:
        seconds = QUIET if judge(error) is Verdict.BUSY else OUT_FOR
        self._change(lambda: self._rotation.take_out(queue, error, seconds, self.now()))

    def queue_works(self, queue: QueueName) -> None:
        self._change(lambda: self._rotation.works(queue))

    # --- telling -------------------------------------------------------------------------------------------------

    def _change(self, step: Callable[[], Iterable[Change]]) -> None:
        with self._lock:
            changes = list(step())
        for change in changes:
            self._tell(change)

    def _tell(self, change: Change) -> None:
        serious = isinstance(change, EntityFailedOver | QueueTakenOut) or (
            isinstance(change, EntityPinged) and change.error is not None
        )
        log.log(logging.WARNING if serious else logging.INFO, "%s: %s", self._pair, change)
        self.telemetry.note(change)
        if self.options.on_change is not None:
            try:
                self.options.on_change(change)
            except Exception:
                log.exception("%s: the application's on_change failed; sending goes on", self._pair)
