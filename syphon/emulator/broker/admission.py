"""What a queue or topic checks before it accepts a batch: sessions, partitions, duplicates, quota."""

from __future__ import annotations

import random
import zlib
from collections import OrderedDict
from typing import Protocol

from ..clock import EmulatorClock, Millis
from .descriptions import QueueDescription, TopicDescription
from .journal import Journal
from .message import BrokeredMessage
from .refusals import NotAllowed, QuotaExceeded, TimedOut

FRAGMENTS = 16


class BatchAdmission:
    """Checks a batch before a queue or topic accepts it, chooses its fragment, and then removes duplicates."""

    def __init__(self, path: str, clock: EmulatorClock, journal: Journal) -> None:
        self.duplicates = DuplicateHistory()
        self._path = path
        self._clock = clock
        self._journal = journal
        self._random = random.Random(zlib.crc32(path.encode()))  # noqa: S311  spreads messages, keeps no secret

    def check(
        self,
        description: QueueDescription | TopicDescription,
        messages: list[BrokeredMessage],
        down: set[int],
        fragment: int | None = None,
    ) -> None:
        """Raises if the entity refuses one of the messages, and otherwise gives them their fragment.

        Messages without a key go to the given fragment, or to one at random.
        """
        if isinstance(description, QueueDescription) and description.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise NotAllowed(
                        "The SessionId was not set on a message, and it cannot be sent to the entity "
                        f"'{self._path}'. Entities with session support take only messages with a SessionId."
                    )
        if description.enable_partitioning:
            fragment = self._choose_fragment(description, messages, down, fragment)
        else:
            fragment = 0  # a forwarded message may have had another one in its source
        for message in messages:
            message.fragment = fragment

    def admit(
        self, description: QueueDescription | TopicDescription, messages: list[BrokeredMessage]
    ) -> list[BrokeredMessage]:
        """Returns the messages to store, after their check: all except pings and duplicates."""
        kept = [message for message in messages if not message.ping]
        if description.requires_duplicate_detection:
            window = description.duplicate_detection_history_time_window
            partitioned = description.enable_partitioning
            kept = [message for message in kept if not self._is_duplicate(message, window, partitioned)]
        for message in kept:
            message.ensure_message_id()
        return kept

    def _is_duplicate(self, message: BrokeredMessage, window: Millis, partitioned: bool) -> bool:
        if message.message_id is None:
            return False
        # Each fragment detects duplicates separately, so equal ids under different partition keys are not duplicates.
        key = f"{(partitioned and (message.session_id or message.partition_key)) or ''}\n{message.message_id!s}"
        now = self._clock.now()
        repeat = self.duplicates.is_duplicate(key, now, window)
        if not repeat:
            self._journal.seen(self._path, key, now, window)
        return repeat

    def _choose_fragment(
        self,
        description: QueueDescription | TopicDescription,
        messages: list[BrokeredMessage],
        down: set[int],
        wanted: int | None,
    ) -> int:
        by_id = description.requires_duplicate_detection
        keys = {
            message.session_id
            or message.partition_key
            or (str(message.message_id) if by_id and message.message_id is not None else None)
            for message in messages
        }
        if len(keys) > 1:
            raise NotAllowed(
                f"A batch sent to the partitioned entity '{self._path}' must have one partition key, not {len(keys)}."
            )
        key = next(iter(keys), None)
        if key is not None:
            fragment = zlib.crc32(key.encode()) % FRAGMENTS
            if fragment in down:
                raise TimedOut(f"Fragment {fragment} of '{self._path}', where key '{key}' belongs, is not available.")
            return fragment
        up = [fragment for fragment in range(FRAGMENTS) if fragment not in down and wanted in (None, fragment)]
        if not up:
            raise TimedOut(f"No fragment of '{self._path}' is available.")
        return self._random.choice(up)


class DuplicateHistory:
    """The message ids of the duplicate detection window, oldest first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Millis] = OrderedDict()

    def is_duplicate(self, message_id: str, now: Millis, window: Millis) -> bool:
        """Whether the id was seen within the window. A new id is added to the history."""
        while self._seen:
            oldest, at = next(iter(self._seen.items()))
            if now - at < window:
                break
            del self._seen[oldest]
        if message_id in self._seen:
            return True
        self._seen[message_id] = now
        return False

    def knows(self, message_id: str) -> bool:
        return message_id in self._seen

    def restore(self, message_id: str, at: Millis) -> None:
        self._seen[message_id] = at


class Sized(Protocol):
    """A queue or a topic: what the check of the quota needs of it."""

    path: str
    quota_bytes: int | None

    @property
    def size(self) -> int: ...


def check_quota(entity: Sized, messages: list[BrokeredMessage], megabytes: int) -> None:
    """Refuses a batch for which the entity has no room."""
    quota = megabytes * 1024 * 1024 if entity.quota_bytes is None else entity.quota_bytes
    if entity.size + sum(message.size for message in messages) > quota:
        raise QuotaExceeded(
            f"The maximum entity size has been reached or exceeded for '{entity.path}': {entity.size} of {quota} bytes."
        )
