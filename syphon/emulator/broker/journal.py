"""Where the broker writes down what it has promised.

The broker keeps everything in memory and tells its journal of each change. An acknowledgement goes out through
`when_durable`: at once if nothing is kept, or after the changes are on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..clock import Millis
from .message import BrokeredMessage


class Journal(Protocol):
    """Hears of every change, in order."""

    @property
    def write_error(self) -> str | None:
        """Why nothing can be kept at present; none when all is well."""

    def put(self, path: str, message: BrokeredMessage) -> None:
        """A message is new, or its bytes have changed."""

    def touch(self, path: str, message: BrokeredMessage) -> None:
        """A message's state, lock or delivery count has changed."""

    def remove(self, path: str, ordinal: int) -> None: ...

    def session(self, path: str, session_id: str, state: bytes | None, updated_at: Millis) -> None: ...

    def seen(self, path: str, message_id: str, at: Millis, window: Millis) -> None:
        """Duplicate detection has noted a message id, and what is older than the window no longer matters."""

    def describe(self, path: str, description: object) -> None:
        """An entity is new, or its description has changed."""

    def forget(self, path: str) -> None:
        """An entity or a rule is gone, and with it the messages it had. Subscriptions and rules are told one by one."""

    def when_durable(self, callback: Callable[[], None], failed: Callable[[str], None] | None = None) -> None:
        """Calls back when all that was told so far will survive the process; or tells why it will not."""


class NoJournal:
    """Nothing is kept: an emulator in memory."""

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
        failed: Callable[[str], None] | None = None,  # noqa: ARG002  it never does
    ) -> None:
        callback()
