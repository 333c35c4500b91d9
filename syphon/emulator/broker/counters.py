"""Counts of the operations on a namespace, by entity and kind. Cost estimates and tests for idleness read them."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of operations that Service Bus bills or could bill."""

    SEND = "send"
    RECEIVE = "receive"
    EMPTY_RECEIVE = "empty_receive"
    SETTLE = "settle"
    PEEK = "peek"
    MANAGE = "manage"


class OperationCounters:
    """Counts that only grow until they are reset. Each operation is counted once, under one kind."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        """By entity as it was written, and kind."""

    def add(self, entity: str, kind: str, times: int = 1) -> None:
        key = entity, kind
        self._counts[key] = self._counts.get(key, 0) + times

    def by_entity(self) -> dict[str, dict[str, int]]:
        # Paths ignore case. The first spelling that a client used is the one shown.
        spellings: dict[str, str] = {}
        found: Counter[tuple[str, str]] = Counter()
        for (entity, kind), count in self._counts.items():
            spellings.setdefault(entity.lower(), entity)
            found[entity.lower(), kind] += count
        table: dict[str, dict[str, int]] = {}
        for (key, kind), count in sorted(found.items()):
            table.setdefault(spellings[key], {})[kind] = count
        return table

    def totals(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for (_, kind), count in self._counts.items():
            total[kind] += count
        return {kind.value: total[kind.value] for kind in Kind}

    def of(self, entity: str, kind: Kind) -> int:
        path = entity.lower()
        return sum(count for (each, what), count in self._counts.items() if what == kind and each.lower() == path)

    def reset(self) -> None:
        self._counts.clear()
