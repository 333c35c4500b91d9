"""What has been asked of a namespace, by entity and kind of operation: the basis of cost and of tests for idleness."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Kind(StrEnum):
    """What Service Bus bills, or would."""

    SEND = "send"
    RECEIVE = "receive"
    EMPTY_RECEIVE = "empty_receive"
    SETTLE = "settle"
    PEEK = "peek"
    MANAGE = "manage"


class Counters:
    """Counts that only grow, until they are reset."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, entity: str, kind: str, times: int = 1) -> None:
        self._counts[entity, kind] += times

    def by_entity(self) -> dict[str, dict[str, int]]:
        table: dict[str, dict[str, int]] = {}
        for (entity, kind), count in sorted(self._counts.items()):
            table.setdefault(entity, {})[kind] = count
        return table

    def totals(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for (_, kind), count in self._counts.items():
            total[kind] += count
        return {kind.value: total[kind.value] for kind in Kind}

    def of(self, entity: str, kind: Kind) -> int:
        return self._counts[entity, kind.value]

    def reset(self) -> None:
        self._counts.clear()
