"""What happens to a pair, as events, and the metrics of a pair.

The text of an event is its log line. The application's `on_change` is called with the event itself. The metrics go
through OpenTelemetry, and this module has all of their names; without a meter provider they cost next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from .error_classes import brief
from .pair_state import PairSideState

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntityFailedOver:
    """No message sent to the entity has arrived during the failover interval."""

    entity: str
    failing_for: float
    """Seconds since the first failure."""
    because: Exception

    def __str__(self) -> str:
        since = f"failing for {self.failing_for:.0f} s" if self.failing_for >= 1 else "failing"
        return f"'{self.entity}' failed over ({since}): sending to the backlog. {brief(self.because)}"


@dataclass(frozen=True, slots=True)
class EntityPinged:
    """A ping was sent to the entity."""

    entity: str
    error: Exception | None

    def __str__(self) -> str:
        result = "arrived" if self.error is None else f"failed: {brief(self.error)}"
        return f"A ping to '{self.entity}' {result}"


@dataclass(frozen=True, slots=True)
class EntityReturned:
    """A ping has arrived: all senders use the primary again."""

    entity: str
    away_for: float
    """Seconds since it was failed over."""

    def __str__(self) -> str:
        return f"'{self.entity}' is back after {self.away_for:.0f} s: its messages go to the primary again"


@dataclass(frozen=True, slots=True)
class OrderGivenUp:
    """An entity returns to the primary although its backlog is not known to be empty (`session_order_wait`)."""

    entity: str
    waited: float
    """Seconds since its first ping arrived."""

    def __str__(self) -> str:
        return (
            f"'{self.entity}' returns to the primary after waiting {self.waited:.0f} s for its backlog: "
            "new messages may overtake earlier ones of their session"
        )


@dataclass(frozen=True, slots=True)
class QueueTakenOut:
    """A backlog queue did not accept messages: no sender of the pair uses it for a while."""

    queue: str
    seconds: float
    because: Exception

    def __str__(self) -> str:
        return f"{self.queue} is out of rotation for {self.seconds:.0f} s: {brief(self.because)}"


@dataclass(frozen=True, slots=True)
class QueueTakenBack:
    """A backlog queue that was out of rotation accepts messages again."""

    queue: str

    def __str__(self) -> str:
        return f"{self.queue} is accepting messages again"


@dataclass(frozen=True, slots=True)
class SideEnded:
    """A side of the pair was closed or faulted. The other one has five seconds to be closed (C1)."""

    state: PairSideState

    def __str__(self) -> str:
        return str(self.state)


Change: TypeAlias = (
    EntityFailedOver | EntityPinged | EntityReturned | OrderGivenUp | QueueTakenOut | QueueTakenBack | SideEnded
)

# --- metrics -----------------------------------------------------------------------------------------------------

MESSAGES: Final = "syphon.sender.messages"
FAILOVERS: Final = "syphon.sender.failovers"
POSSIBLE_DUPLICATES: Final = "syphon.sender.possible_duplicates"
RETURNS: Final = "syphon.sender.returns"
PINGS: Final = "syphon.sender.pings"
ORDER_GIVEN_UP: Final = "syphon.sender.order_given_up"
FAILED_OVER: Final = "syphon.sender.entities.failed_over"
QUEUES_OUT: Final = "syphon.sender.backlog_queues.out"


class SenderMetrics:
    """The metrics of one pair."""

    def __init__(self, pair: str, provider: MeterProvider | None = None) -> None:
        from opentelemetry.metrics import get_meter  # a quarter of the time in which this package is imported

        meter = get_meter("syphon.sender", meter_provider=provider)
        self._pair = pair
        self._messages = meter.create_counter(MESSAGES, "{message}", "Messages accepted, by side: primary or backlog.")
        self._possible_duplicates = meter.create_counter(
            POSSIBLE_DUPLICATES, "{message}", "Messages in the backlog whose answer from the primary was lost."
        )
        self._failovers = meter.create_counter(FAILOVERS, "{failover}", "Times an entity was failed over.")
        self._returns = meter.create_counter(RETURNS, "{return}", "Times an entity returned to the primary.")
        self._order_given_up = meter.create_counter(
            ORDER_GIVEN_UP, "{return}", "Returns to the primary that may have broken the order of sessions."
        )
        self._pings = meter.create_counter(PINGS, "{ping}", "Pings sent to failed-over entities, by result.")
        self._failed_over = meter.create_up_down_counter(FAILED_OVER, "{entity}", "Entities that are failed over.")
        self._queues_out = meter.create_up_down_counter(
            QUEUES_OUT, "{queue}", "Backlog queues that are out of rotation."
        )

    def accepted(self, entity: str, side: str, count: int) -> None:
        """Counts messages that the primary or the backlog has accepted."""
        self._messages.add(count, {"pair": self._pair, "entity": entity, "side": side})

    def possible_duplicates(self, entity: str, count: int) -> None:
        """Counts messages that went to the backlog after the primary may have stored them."""
        self._possible_duplicates.add(count, {"pair": self._pair, "entity": entity})

    def record(self, change: Change) -> None:
        """Counts an event."""
        match change:
            case EntityFailedOver():
                self._failovers.add(1, {"pair": self._pair, "entity": change.entity})
                self._failed_over.add(1, {"pair": self._pair})
            case EntityReturned():
                self._returns.add(1, {"pair": self._pair, "entity": change.entity})
                self._failed_over.add(-1, {"pair": self._pair})
            case OrderGivenUp():
                self._order_given_up.add(1, {"pair": self._pair, "entity": change.entity})
            case EntityPinged():
                result = "arrived" if change.error is None else "failed"
                self._pings.add(1, {"pair": self._pair, "entity": change.entity, "result": result})
            case QueueTakenOut():
                self._queues_out.add(1, {"pair": self._pair})
            case QueueTakenBack():
                self._queues_out.add(-1, {"pair": self._pair})
