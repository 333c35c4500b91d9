"""A message queue with sessions: one receiver at a time holds a session and receives all its messages.

The session is locked, not the single message. Its messages are delivered under that lock and return when the lock is
lost. A receiver that closes releases the session; its messages return and the delivery does not count.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..clock import FOREVER, Millis
from .message import BrokeredMessage, StoredState
from .message_store import ReadyQueue
from .queue import Consumer, MessageQueue
from .refusals import BadArgument, MessageNotFound, NotAllowed, Refusal, SessionCannotBeLocked, SessionLockLost


@dataclass(slots=True, eq=False)
class MessageSession:
    """One session: its ready messages, its state, and the receiver that holds it."""

    id: str
    ready: ReadyQueue = field(default_factory=ReadyQueue)
    state: bytes | None = None
    updated_at: Millis = 0
    holder: Consumer | None = None
    locked_until: Millis = 0


@dataclass(slots=True, eq=False)
class SessionWaiter:
    """A receiver that waits for the next free session."""

    consumer: Consumer
    granted: Callable[[MessageSession], None]


class SessionQueue(MessageQueue):
    """Delivers messages in order within their sessions."""

    _sessions: dict[str, MessageSession]

    def _prepare(self) -> None:
        self._sessions = {}
        self._waiters: deque[SessionWaiter] = deque()
        self._by_holder: dict[Consumer, MessageSession] = {}
        self._lapsed: dict[Consumer, Refusal] = {}

    # --- session locks ---------------------------------------------------------------------------------------------

    def accept(self, session_id: str, consumer: Consumer) -> MessageSession:
        """Locks the named session. It may be empty."""
        session = self._session(session_id)
        if session.holder is not None:
            raise SessionCannotBeLocked(
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
            )
        return self._grant(session, consumer)

    def accept_next(self, waiter: SessionWaiter) -> None:
        """Locks a session with messages, now or as soon as there is one."""
        self._waiters.append(waiter)
        self._serve_waiters()

    def stop_waiting(self, waiter: SessionWaiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def leave(self, consumer: Consumer) -> None:
        super().leave(consumer)
        self._lapsed.pop(consumer, None)
        session = self._by_holder.get(consumer)
        if session is not None:
            self._give_back(session, failed=False)
            self._serve_waiters()

    def renew_session(self, session_id: str, owner: object) -> Millis:
        session = self._session_of(owner, session_id)
        session.locked_until = self._clock.now() + self.terms.lock_duration
        for message in self._locked_in(session):
            message.locked_until = session.locked_until
        return session.locked_until

    def state_of(self, session_id: str, owner: object) -> bytes | None:
        return self._session_of(owner, session_id).state

    def set_state(self, session_id: str, state: bytes | None, owner: object) -> None:
        session = self._session_of(owner, session_id)
        session.state, session.updated_at = state, self._clock.now()
        self._journal.session(self.path, session_id, state, session.updated_at)

    def restore_session(self, session_id: str, state: bytes | None, updated_at: Millis) -> None:
        session = self._session(session_id)
        session.state, session.updated_at = state, updated_at

    def session_ids(self, updated_after: Millis | None) -> list[str]:
        """The ids of sessions with messages or a state; or of those whose state was set after a time."""
        if updated_after is not None:
            return [s.id for s in self._sessions.values() if s.state is not None and s.updated_at > updated_after]
        busy = {message.session_id for message in self._messages.values() if message.state is StoredState.ACTIVE}
        return [session.id for session in self._sessions.values() if session.state is not None or session.id in busy]

    def receive_deferred_of(
        self, session_id: str | None, owner: object, sequences: list[int], deletes: bool
    ) -> list[BrokeredMessage]:
        """Receives deferred messages of a session for the owner that holds it. The Go client names no session."""
        if session_id is not None:
            self._session_of(owner, session_id)
        for sequence in sequences:
            message = self._find_message(sequence)
            if message is None or message.session_id is None or session_id not in (None, message.session_id):
                raise MessageNotFound(f"No deferred message of session '{session_id}' has the number {sequence}.")
            self._session_of(owner, message.session_id)
        return self.receive_deferred(sequences, deletes)

    def lose_session(self, session_id: str) -> None:
        """Ends the lock of a session as if it had expired now."""
        session = self._sessions.get(session_id)
        if session is not None and session.holder is not None:
            self._end_session_lock(session)

    def lose_lock(self, token: bytes) -> None:
        """Ends the lock of the message's session, which is also the lock of the message."""
        message = self._locks.get(token)
        if message is not None and message.session_id is not None:
            self.lose_session(message.session_id)

    def _session(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id)
        return session

    def _grant(self, session: MessageSession, consumer: Consumer) -> MessageSession:
        session.holder = consumer
        session.locked_until = self._clock.now() + self.terms.lock_duration
        self._by_holder[consumer] = session
        self._timers.wake(session.locked_until)
        return session

    def _serve_waiters(self) -> None:
        if not self._waiters:
            return
        for session in list(self._sessions.values()):
            if session.holder is None and self._waiters and self._has_messages(session):
                waiter = self._waiters.popleft()
                waiter.granted(self._grant(session, waiter.consumer))

    def _has_messages(self, session: MessageSession) -> bool:
        message = self._first_of(session.ready)
        if message is not None:
            session.ready.put_back(message.ordinal)
        return message is not None

    def _held_session(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None or session.holder is None or session.locked_until <= self._clock.now():
            raise SessionLockLost(
                f"The lock on session '{session_id}' of '{self.path}' was lost or never held. Request a new session."
            )
        return session

    def _session_of(self, owner: object, session_id: str) -> MessageSession:
        session = self._held_session(session_id)
        if session.holder is None or session.holder.owner is not owner:
            raise SessionLockLost(f"Session '{session_id}' of '{self.path}' is locked by another receiver.")
        return session

    def _locked_in(self, session: MessageSession) -> list[BrokeredMessage]:
        return [message for message in self._locks.values() if message.session_id == session.id]

    def _give_back(self, session: MessageSession, failed: bool) -> None:
        if session.holder is not None:
            del self._by_holder[session.holder]
            session.holder = None
        for message in self._locked_in(session):
            self._unlock(message, failed)
        if not session.ready and session.state is None:
            self._sessions.pop(session.id, None)

    def _end_session_lock(self, session: MessageSession) -> None:
        holder = session.holder
        self._give_back(session, failed=True)
        if holder is not None:
            MessageQueue.leave(self, holder)
            why = SessionLockLost(f"The lock on session '{session.id}' of '{self.path}' has expired.")
            if holder.deletes:
                self._lapsed[holder] = why  # it has no message to lose: it is told with its next receive
            else:
                holder.detach(why)
        self._serve_waiters()

    # --- the queue's own steps, by session -------------------------------------------------------------------------

    def feed(self, consumer: Consumer) -> None:
        lapsed = self._lapsed.pop(consumer, None)
        if lapsed is not None:
            consumer.detach(lapsed)
        else:
            super().feed(consumer)

    def dispatch(self) -> None:
        for consumer in list(self._waiting_consumers):
            session = self._by_holder.get(consumer)
            while session is not None and session.holder is consumer and consumer.credit > 0:
                message = self._first_of(session.ready)
                if message is None:
                    break
                if not consumer.admits():
                    self._offer(
                        message, back=True
                    )  # not to `session.ready`: the session may have been removed meanwhile
                    break
                self._hand_over(message, consumer)
            if consumer.credit <= 0 and consumer in self._waiting_consumers:
                self._waiting_consumers.remove(consumer)
        self._serve_waiters()

    def _make_ready(self, message: BrokeredMessage, back: bool) -> None:
        if message.session_id is None:
            raise BadArgument(f"The entity '{self.path}' requires sessions: the message must have a SessionId.")
        ready = self._session(message.session_id).ready
        if back:
            ready.put_back(message.ordinal)
        else:
            ready.join(message.ordinal)

    def _lock(self, message: BrokeredMessage) -> None:
        session = self._held_session(message.session_id or "")
        message.lock_token = os.urandom(16)
        message.locked_until = session.locked_until
        self._locks[message.lock_token] = message

    def held(self, token: bytes) -> BrokeredMessage:
        message = self._locks.get(token)
        if message is None or message.locked_until <= self._clock.now():
            raise SessionLockLost(f"The session lock for this message of '{self.path}' was lost.")
        return message

    def renew(self, token: bytes) -> Millis:  # noqa: ARG002  the same for every message
        raise NotAllowed(f"Messages of '{self.path}' are locked with their session: renew the session's lock.")

    def restore(self, message: BrokeredMessage) -> None:
        message.lock_token = None  # the link that held the session ended with the process
        super().restore(message)

    def _end_locks(self, now: Millis) -> None:
        for session in list(self._by_holder.values()):
            if session.locked_until <= now:
                self._end_session_lock(session)

    def _next_lock_end(self) -> Millis:
        return min((session.locked_until for session in self._by_holder.values()), default=FOREVER)

    def _trim(self) -> None:
        for session in list(self._sessions.values()):
            session.ready.trim(self._messages.__contains__)
            if not session.ready and session.state is None and session.holder is None:
                del self._sessions[session.id]

    def close(self, why: Refusal) -> None:
        for consumer in list(self._by_holder):
            consumer.detach(why)
        super().close(why)
