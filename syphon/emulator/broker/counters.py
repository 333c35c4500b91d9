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
        self._counts: Counter[tuple[str, str]] = Counter()
        self._spellings: dict[str, str] = {}

    def add(self, entity: str, kind: str, times: int = 1) -> None:
        # Paths ignore case. The first spelling that a client used is the one shown.
        key = entity.lower()
        self._spellings.setdefault(key, entity)
        self._counts[key, kind] += times

    def by_entity(self) -> dict[str, dict[str, int]]:
        table: dict[str, dict[str, int]] = {}
        for (key, kind), count in sorted(self._counts.items()):
            table.setdefault(self._spellings[key], {})[kind] = count
        return table

    def totals(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for (_, kind), count in self._counts.items():
            total[kind] += count
        return {kind.value: total[kind.value] for kind in Kind}

    def of(self, entity: str, kind: Kind) -> int:
        return self._counts[entity.lower(), kind.value]

    def reset(self) -> None:
        self._counts.clear()
        self._spellings.clear()
