"""What holds for the messages of a line: how long they are locked, how long they live, how often they are tried."""

from __future__ import annotations

from dataclasses import dataclass

from ..clock import FOREVER, Millis
from .descriptions import QueueDescription, SubscriptionDescription


@dataclass(frozen=True, slots=True)
class Terms:
    """What an entity's description says about its messages."""

    lock_duration: Millis = 60_000
    default_ttl: Millis = FOREVER
    max_delivery_count: int | None = None
    dead_letter_on_expiry: bool = False
    requires_session: bool = False
    ages: bool = True
    """Dead letters do not: they wait for somebody to look at them, however long that takes."""

    @classmethod
    def of(cls, description: QueueDescription | SubscriptionDescription) -> Terms:
        return cls(
            lock_duration=description.lock_duration,
            default_ttl=min(description.default_message_time_to_live, FOREVER),
            max_delivery_count=description.max_delivery_count,
            dead_letter_on_expiry=description.dead_lettering_on_message_expiration,
            requires_session=description.requires_session,
        )

    def for_dead_letters(self) -> Terms:
        """What holds for the dead letters of the same entity."""
        return Terms(lock_duration=self.lock_duration, ages=False)
