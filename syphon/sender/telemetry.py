"""The sender's metrics, by OpenTelemetry: all of their names are here. Without a meter provider they cost next to
nothing and go nowhere."""

from __future__ import annotations

from typing import Final

from opentelemetry.metrics import MeterProvider, get_meter

from .changes import Change, EntityFailedOver, EntityPinged, EntityReturned, QueueTakenBack, QueueTakenOut

MESSAGES: Final = "syphon.sender.messages"
FAILOVERS: Final = "syphon.sender.failovers"
POSSIBLE_DUPLICATES: Final = "syphon.sender.possible_duplicates"
RETURNS: Final = "syphon.sender.returns"
PINGS: Final = "syphon.sender.pings"
FAILED_OVER: Final = "syphon.sender.entities.failed_over"
QUEUES_OUT: Final = "syphon.sender.backlog_queues.out"


class Telemetry:
    """The metrics of one pair."""

    def __init__(self, pair: str, provider: MeterProvider | None = None) -> None:
        meter = get_meter("syphon.sender", meter_provider=provider)
        self._pair = pair
        self._messages = meter.create_counter(MESSAGES, "{message}", "Messages accepted, by side: primary or backlog.")
        self._doubtful = meter.create_counter(
            POSSIBLE_DUPLICATES, "{message}", "Messages in the backlog whose answer from the primary was lost."
        )
        self._failovers = meter.create_counter(FAILOVERS, "{failover}", "Times an entity was failed over.")
        self._returns = meter.create_counter(RETURNS, "{return}", "Times an entity returned to the primary.")
        self._pings = meter.create_counter(PINGS, "{ping}", "Pings sent to failed-over entities, by result.")
        self._away = meter.create_up_down_counter(FAILED_OVER, "{entity}", "Entities that are failed over now.")
        self._out = meter.create_up_down_counter(QUEUES_OUT, "{queue}", "Backlog queues that are out of rotation now.")

    def accepted(self, entity: str, side: str, count: int) -> None:
        """Messages have arrived."""
        self._messages.add(count, {"pair": self._pair, "entity": entity, "side": side})

    def possible_duplicates(self, entity: str, count: int) -> None:
        """Messages went to the backlog after the primary had been sent them and gave no answer."""
        self._doubtful.add(count, {"pair": self._pair, "entity": entity})

    def note(self, change: Change) -> None:
        """Something has changed."""
        match change:
            case EntityFailedOver():
                self._failovers.add(1, {"pair": self._pair, "entity": change.entity})
                self._away.add(1, {"pair": self._pair})
            case EntityReturned():
                self._returns.add(1, {"pair": self._pair, "entity": change.entity})
                self._away.add(-1, {"pair": self._pair})
            case EntityPinged():
                result = "arrived" if change.error is None else "failed"
                self._pings.add(1, {"pair": self._pair, "entity": change.entity, "result": result})
            case QueueTakenOut():
                self._out.add(1, {"pair": self._pair})
            case QueueTakenBack():
                self._out.add(-1, {"pair": self._pair})
