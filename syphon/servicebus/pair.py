"""A pair of namespaces: if one closes or faults, the other follows (C1 to C3).

An outage is not a fault. A side is faulted when it can no longer be used, and closed when its user closed it. If one
side has ended and the other has not ended within five seconds, the other is faulted, with an error that names both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syphon.model import Faulted, NotAuthorized, SyphonError
from syphon.time_budget import OTHER_SIDE_ENDS_WITHIN

from .namespace import Namespace, NamespaceStatus


class PartnerEnded(Faulted):
    """The other side of the pair has ended, and this side did not end in time."""


@dataclass(frozen=True, slots=True)
class SideFault:
    """The fault of a side, as a value that one process can send to another."""

    side: Literal["primary", "secondary"]
    denied: bool
    """Credentials or claims were refused."""
    text: str

    @staticmethod
    def of(side: Literal["primary", "secondary"], error: SyphonError) -> SideFault:
        return SideFault(side, isinstance(error, NotAuthorized), str(error))

    def error(self) -> Faulted:
        return NotAuthorized(self.text) if self.denied else Faulted(self.text)


class Pair:
    """A primary and a secondary."""

    def __init__(self, primary: Namespace, secondary: Namespace) -> None:
        self.primary = primary
        self.secondary = secondary

    @property
    def sides(self) -> tuple[Namespace, Namespace]:
        return self.primary, self.secondary

    def fault_side(self, fault: SideFault) -> None:
        """Faults a side because another process found that it can no longer be used."""
        side = self.primary if fault.side == "primary" else self.secondary
        side.fault(fault.error())

    @property
    def has_ended(self) -> bool:
        """Both sides are closed or faulted: the pumps stop (C2)."""
        return self.primary.has_ended and self.secondary.has_ended

    @property
    def fault(self) -> SyphonError | None:
        """Why the pair is faulted, if it is: the reason of the side that faulted first."""
        first = self._first_faulted
        return None if first is None else first.reason

    @property
    def side_fault(self) -> SideFault | None:
        """The same with the name of that side."""
        first = self._first_faulted
        if first is None or first.reason is None:
            return None
        return SideFault.of("primary" if first is self.primary else "secondary", first.reason)

    @property
    def _first_faulted(self) -> Namespace | None:
        faulted = [side for side in self.sides if side.status is NamespaceStatus.FAULTED]
        return min(faulted, key=lambda side: side.since, default=None)

    @property
    def has_been_connected(self) -> bool:
        """Whether both sides have accepted our credentials."""
        return self.primary.has_been_connected and self.secondary.has_been_connected

    def deadline(self) -> float | None:
        """When the five seconds end, if one side has ended and the other has not."""
        ended = [side for side in self.sides if side.has_ended]
        return ended[0].since + OTHER_SIDE_ENDS_WITHIN if len(ended) == 1 else None

    def check(self) -> None:
        """Applies the five-second rule."""
        if not (self.primary.has_ended or self.secondary.has_ended):
            return  # the usual case, in every turn of every pump
        due = self.deadline()
        for side, partner in (self.sides, (self.secondary, self.primary)):
            if due is not None and partner.has_ended and not side.has_ended and side.now() >= due:
                why = f": {partner.reason}" if partner.reason is not None else ""
                side.fault(
                    PartnerEnded(
                        f"{side.name} was still {side.status} {OTHER_SIDE_ENDS_WITHIN:g} seconds "
                        f"after its partner {partner.name} "
                        f"had {partner.status}{why}. A pair ends together; open both again."
                    )
                )
