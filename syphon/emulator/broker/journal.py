"""The journal: the broker reports each change to it.

The broker holds everything in memory. It sends an acknowledgement through `when_durable`: at once if no state is kept,
or after the changes are on disk. `syphon.emulator.state` has the journal on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..clock import Millis
from .message import BrokeredMessage


class Journal(Protocol):
    """Receives every change, in order."""

    @property
    def write_error(self) -> str | None:
        """Why changes cannot be written at present, or None."""

    def put(self, path: str, message: BrokeredMessage) -> None:
        """Records a message that is new or whose bytes have changed."""

    def touch(self, path: str, message: BrokeredMessage) -> None:
        """Records a change of a message's state, lock or delivery count."""

    def remove(self, path: str, ordinal: int) -> None: ...

    def session(self, path: str, session_id: str, state: bytes | None, updated_at: Millis) -> None: ...

    def seen(self, path: str, message_id: str, at: Millis, window: Millis) -> None:
        """Records a message id for duplicate detection. Ids older than the window may be removed."""

    def describe(self, path: str, description: object) -> None:
        """Records an entity that is new or whose description has changed."""

    def forget(self, path: str) -> None:
        """Removes an entity or a rule with its messages. Subscriptions and rules are removed one by one."""

    def when_durable(self, callback: Callable[[], None], failed: Callable[[str], None] | None = None) -> None:
        """Calls `callback` when all changes so far will survive the process, or `failed` with the reason why not."""


class NoJournal:
    """The journal of an emulator in memory: it records nothing."""

    write_error = None

    def put(self, path: str, message: BrokeredMessage) -> None:
        pass

    def touch(self, path: str, message: BrokeredMessage) -> None:
        pass

    def remove(self, path: str, ordinal: int) -> None:
        pass

    def session(self, path: str, session_id: str, state: bytes | None, updated_at: Millis) -> None:
        pass

    def seen(self, path: str, message_id: str, at: Millis, window: Millis) -> None:
        pass

    def describe(self, path: str, description: object) -> None:
        pass

    def forget(self, path: str) -> None:
        pass

    def when_durable(
        self,
        callback: Callable[[], None],
        failed: Callable[[str], None] | None = None,  # noqa: ARG002  it never fails
    ) -> None:
        callback()
