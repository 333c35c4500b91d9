"""Couples the two sides of an application's pair: when one side ends, the other one ends too (C1).

A side ends when its client is closed, by the pair or by the application that made it, or when it turns out that the
namespace can no longer be used (C3). The other side then has five seconds to be closed, and is faulted after them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from syphon.model import Faulted, SyphonError
from syphon.servicebus import CloseWatch, Namespace, NamespaceStatus, Pair, SideFault, explain, watch_close
from syphon.time_budget import COUPLING_RETRY_AFTER

if TYPE_CHECKING:
    from .embedded import EmbeddedSyphon

Side: TypeAlias = Literal["primary", "secondary"]


FindFault = Callable[[Side, str], Faulted | None]
"""Opens a connection, and returns why the namespace can no longer be used; None if it can, or is unavailable."""


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


def _no_connection() -> NoReturn:
    raise AssertionError("senders have the connections, the coupling has none")


class PairCoupling:
    """The status of both sides. Any thread may call it."""

    def __init__(
        self,
        primary: str,
        secondary: str,
        now: Callable[[], float],
        find_fault: FindFault,
        on_end: Callable[[PairSideState], None],
    ) -> None:
        """`on_end` is called when a side has ended, in the thread or task in which that happened."""
        self.pair = Pair(Namespace(primary, _no_connection, now), Namespace(secondary, _no_connection, now))
        self.is_whole = True
        """Neither side has ended. It is a plain attribute because senders read it before each step."""
        self._sides: dict[Side, Namespace] = {"primary": self.pair.primary, "secondary": self.pair.secondary}
        self._now = now
        self._find_fault = find_fault
        self._on_end = on_end
        self._watches: list[CloseWatch] = []
        self._syphon: EmbeddedSyphon | None = None
        self._next_check: dict[Side, float] = {}
        self._lock = threading.Lock()
        for side, namespace in self._sides.items():
            namespace.on_end = partial(self._ended, side)

    def watch(self, primary: Any, secondary: Any, syphon: EmbeddedSyphon | None) -> None:
        """Watches the clients of both sides, and the sides of the syphon that the application hosts."""
        self._watches = [
            watch_close(primary, self.pair.primary.close),
            watch_close(secondary, self.pair.secondary.close),
        ]
        self._syphon = syphon
        for namespace, other in zip(self.pair.sides, syphon.sides if syphon else (), strict=False):
            other.on_end = partial(self._follow, namespace, other)
            other.on_end()  # it may have ended before

    def stop_watching(self) -> None:
        """The pair itself is being closed: its end is no event."""
        for watch in self._watches:
            watch.stop()
        self._on_end = lambda state: None  # noqa: ARG005

    def close(self) -> None:
        """Closes both sides."""
        for namespace in self.pair.sides:
            namespace.close()

    # --- the state -----------------------------------------------------------------------------------------------

    def state(self) -> PairState:
        return PairState(self._state("primary"), self._state("secondary"))

    def _state(self, side: Side) -> PairSideState:
        namespace = self._sides[side]
        return PairSideState(side, namespace.name, namespace.status, namespace.reason)

    def has_ended(self, side: Side) -> bool:
        return self._sides[side].has_ended

    def seconds_left(self) -> float | None:
        """What is left of the five seconds; None if both sides are open, or both have ended."""
        due = self.pair.deadline()
        return None if due is None else max(0.0, due - self._now())

    # --- how a side ends -----------------------------------------------------------------------------------------

    def was_closed(self, side: Side) -> None:
        """The client of a side turned out to be closed."""
        self._sides[side].close()

    def suspect(self, side: Side, path: str, error: Exception) -> None:
        """Finds out whether the namespace can still be used, if an error of one of its entities leaves that open.

        A refusal may concern one entity only: a policy that lacks a claim, for instance. So a thread asks the namespace
        itself, as pairing did.
        """
        namespace = self._sides[side]
        if not isinstance(explain(error, namespace.name, path), Faulted):
            return
        with self._lock:
            if namespace.has_ended or self._now() < self._next_check.get(side, self._now()):
                return
            self._next_check[side] = self._now() + COUPLING_RETRY_AFTER
        check = partial(self._check, side, path)
        threading.Thread(target=check, name=f"check {namespace.name}", daemon=True).start()

    def _check(self, side: Side, path: str) -> None:
        fault = self._find_fault(side, path)
        if fault is not None:
            self._sides[side].fault(fault)

    def _follow(self, namespace: Namespace, of_syphon: Namespace) -> None:
        """The syphon has found a fault. (It also closes its sides when it ends by itself: that is no fault of them.)"""
        if of_syphon.status is NamespaceStatus.FAULTED and of_syphon.reason is not None:
            namespace.fault(of_syphon.reason)

    def _ended(self, side: Side) -> None:
        self.is_whole = False
        state = self._state(side)
        if self._syphon is not None:
            self._syphon.end_side(SideFault.of(side, state.reason or Faulted(str(state))))
        self._on_end(state)
