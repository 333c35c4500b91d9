"""The state of a pair as a value: what `client.state` shows, and what errors and events carry (C1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from syphon.model import SyphonError
from syphon.servicebus import NamespaceStatus

Side: TypeAlias = Literal["primary", "secondary"]


@dataclass(frozen=True, slots=True)
class PairSideState:
    """One namespace of a pair: opened, closing, closed or faulted."""

    side: Side
    namespace: str
    status: NamespaceStatus
    reason: SyphonError | None = None
    """Why it is faulted."""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason is not None else ""
        return f"The {self.side} {self.namespace} is {self.status}{why}".rstrip(".") + "."

    @property
    def has_ended(self) -> bool:
        return self.status in (NamespaceStatus.CLOSED, NamespaceStatus.FAULTED)


@dataclass(frozen=True, slots=True)
class PairState:
    """Both sides of a pair."""

    primary: PairSideState
    secondary: PairSideState

    def __str__(self) -> str:
        return f"{self.primary} {self.secondary}"

    @property
    def has_ended(self) -> bool:
        """Both sides are closed or faulted."""
        return self.primary.has_ended and self.secondary.has_ended
