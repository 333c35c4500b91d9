"""How many messages a backlog queue holds: proven by a peek, or reported by the namespace.

Only a peek proves that a queue is empty (D4). The counts of the namespace are hints: a throttled namespace reports 0.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

from syphon.backlog import SelectedQueue, by_pair, secondary_administration
from syphon.config import SideSettings
from syphon.model import QueueKey, SyphonError, dead_letter_owner
from syphon.servicebus import Connection, MessageState, Peeked, connected, peek

log = logging.getLogger(__name__)

MessageCounts = dict[QueueKey, int]
"""Active messages by pair and queue."""


Connect = Callable[[SideSettings, str], AbstractContextManager[Connection]]
"""Opens a connection to a side, for one of its queues."""


IN_THE_BACKLOG = (MessageState.ACTIVE, MessageState.DEFERRED)
"""The states of messages that a pump can move."""


class PeekCount(NamedTuple):
    """Active and deferred messages that a peek found in a queue, including locked ones."""

    wanted: int
    others: int
    """Messages outside the filter: all of them, unless the count stopped at the limit of wanted messages."""
    deferred: int = 0
    """Deferred messages among the wanted ones."""
    scheduled: int = 0
    """Matching messages that no receiver gets before their time; not among the wanted ones."""


class EmptinessCheck:
    """Peeks into the backlog queues of one secondary, over a connection of the driver. Thread-safe."""

    def __init__(self, settings: SideSettings, connect: Connect = connected) -> None:
        self._settings = settings
        self._connect = connect
        self._connection: Connection | None = None
        self._held = ExitStack()
        self._lock = threading.Lock()

    def count(self, queue: str, wants: Callable[[Peeked], bool], at_most: int) -> PeekCount:
        """Counts the active and deferred messages of a queue, until it has found `at_most` wanted ones."""
        with self._lock:
            wanted = others = deferred = scheduled = 0
            for message in peek(self._open(queue), queue, first=at_most):
                if message.state not in IN_THE_BACKLOG:
                    scheduled += wants(message)
                elif wants(message):
                    wanted += 1
                    deferred += message.state is MessageState.DEFERRED
                else:
                    others += 1
                if wanted >= at_most:
                    break
            return PeekCount(wanted, others, deferred, scheduled)

    def oldest(self, queue: str) -> Peeked | None:
        """The first message of a queue that a pump can move; None if there is none."""
        with self._lock:
            messages = peek(self._open(queue), queue, first=1)
            return next((message for message in messages if message.state in IN_THE_BACKLOG), None)

    def _open(self, queue: str) -> Connection:
        if self._connection is None or self._connection.wire.failure is not None:
            self._held.close()
            self._connection = self._held.enter_context(self._connect(self._settings, queue))
        return self._connection

    def close(self) -> None:
        with self._lock:
            self._held.close()
            self._connection = None


def counts_of(selected: Sequence[SelectedQueue]) -> MessageCounts:
    """The namespace's own counts, read once. They need the Manage claim; a drain works without them."""
    counts: MessageCounts = {}
    for pair, queues in by_pair(selected):
        try:
            administration = secondary_administration(pair)
            try:
                for _, queue in queues:
                    owner = dead_letter_owner(queue)
                    count = administration.queue_counts(owner or queue)
                    if count is not None:
                        counts[QueueKey(pair.name, queue)] = count.active if owner is None else count.dead_letters
            finally:
                administration.close()
        except SyphonError as error:
            log.info("%s: no message counts, and so no ETA: %s", pair.name, error)
    return counts
