"""One message in the broker: the bytes of the sender, and what the broker knows about the message.

The bare message (properties, application properties, body, footer) is stored as it arrived. Header and annotations are
written again for each delivery, because the broker adds its own values: sequence number, enqueued time, lock, delivery
count.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import IntEnum

from syphon.amqp import (
    Malformed,
    Map,
    Message,
    Section,
    Span,
    Symbol,
    Timestamp,
    UInt,
    Value,
    compound,
    encode,
    entries,
    map_section,
    properties_bytes,
    split,
)

from ..clock import FOREVER, Millis
from .refusals import BadArgument, NotAllowed

PING = "application/vnd.ms-servicebus-ping"
"""The content type of a message that only asks whether the entity accepts messages. It is never delivered."""

ORDINAL_BITS = 48
ORDINAL_MASK = (1 << ORDINAL_BITS) - 1
NAME_LIMIT = 128
"""The most characters of a message id, a session id or a partition key."""


class StoredState(IntEnum):
    """The state of a message, with the numbers that Service Bus writes into x-opt-message-state."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


_BROKER_ANNOTATIONS = frozenset(
    {
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
    }
)


class BrokeredMessage:
    """A message in an entity."""

    __slots__ = (
        "annotation_count",
        "annotations",
        "bare",
        "dead_letter_source",
        "delivery_annotations",
        "delivery_count",
        "due",
        "enqueued_at",
        "enqueued_sequence",
        "expires_at",
        "first_acquirer",
        "fragment",
        "header_fields",
        "hops",
        "lock_token",
        "locked_until",
        "message_id",
        "ordinal",
        "partition_key",
        "ping",
        "session_id",
        "size",
        "state",
        "ttl",
    )

    def __init__(self) -> None:
        self.bare = b""
        self.header_fields = b"\x41\x40"
        self.first_acquirer = b"\x40"
        self.delivery_annotations = b""
        """The sender's section. The service hands it on to receivers, although AMQP means it for the next hop only."""
        self.annotations = b""
        self.annotation_count = 0
        self.message_id: Value = None
        self.session_id: str | None = None
        self.partition_key: str | None = None
        self.ttl: Millis = FOREVER
        self.due: Millis = 0
        self.ping = False
        self.size = 0
        self.ordinal = 0
        self.fragment = 0
        self.hops = 0
        self.enqueued_sequence = 0
        self.enqueued_at: Millis = 0
        self.expires_at: Millis = FOREVER
        self.state = StoredState.ACTIVE
        self.delivery_count = 0
        self.lock_token: bytes | None = None
        self.locked_until: Millis = 0
        self.dead_letter_source: str | None = None

    @classmethod
    def parse(cls, payload: bytes) -> BrokeredMessage:
        """Reads what a client sent. Refuses bytes that are no message, and values the service does not accept."""
        try:
            return cls._parsed(Message(payload), len(payload))
        except Malformed as error:
            raise BadArgument(f"The message is not well-formed AMQP 1.0: {error}.", "amqp:decode-error") from None

    @classmethod
    def _parsed(cls, source: Message, size: int) -> BrokeredMessage:
        message = cls()
        message.size = size
        message.bare = source.bare()
        for span in source.spans:
            section = span.section
            if section == _HEADER:
                header = source.header()
                message.header_fields = encode(header.durable) + encode(header.priority)
                if header.first_acquirer is not None:
                    message.first_acquirer = encode(header.first_acquirer)
                if isinstance(header.ttl, UInt):
                    message.ttl = int(header.ttl)
            elif section == _HOP:
                message.delivery_annotations = map_section(Section.DELIVERY_ANNOTATIONS, _hop_pairs(source.data, span))
            elif section == _ANNOTATIONS:
                message._read_annotations(source)
            elif section == _PROPERTIES:
                message._read_properties(source)
            elif section == _APPLICATION_PROPERTIES:
                if source.data.find(_DECIMAL128, span.value, span.end) >= 0:
                    message._rewrite_decimals(source.data, span)
            else:
                break  # the body
        if message.session_id and message.partition_key and message.session_id != message.partition_key:
            raise NotAllowed(
                f"PartitionKey '{message.partition_key}' and SessionId '{message.session_id}' are both set and differ. "
                "Leave the partition key out or set it to the session id."
            )
        return message

    def _rewrite_decimals(self, data: bytes, span: Span) -> None:
        """Rewrites decimal128 properties as the service does, which decodes and encodes application properties."""
        rewritten = bytearray(data)
        for entry in entries(data, span):
            if data[entry.value] == _DECIMAL128:
                rewritten[entry.value + 1 : entry.end] = dotnet_decimal(data[entry.value + 1 : entry.end])
        self.bare = bytes(rewritten[len(data) - len(self.bare) :])

    def _read_annotations(self, source: Message) -> None:
        span = source.span(Section.MESSAGE_ANNOTATIONS)
        assert span is not None  # the caller has just seen it
        kept = []
        for entry in entries(source.data, span):
            if entry.key in _BROKER_ANNOTATIONS:
                continue
            kept.append(source.data[entry.start : entry.end])
            if entry.key in ("x-opt-partition-key", "x-opt-scheduled-enqueue-time"):
                self._read_annotation(entry.key, source.annotations().get(str(entry.key)))
        self.annotations = b"".join(kept)
        self.annotation_count = len(kept)

    def _read_annotation(self, key: Value, value: Value) -> None:
        if key == "x-opt-partition-key" and value is not None:
            if isinstance(value, bytes):  # the SDK writes it so when it sends a message again that it has received
                value = value.decode(errors="replace")
            if not isinstance(value, str) or len(value) > NAME_LIMIT:
                raise BadArgument(f"PartitionKey is a string of at most {NAME_LIMIT} characters, not {value!r:.200}.")
            self.partition_key = value
        elif key == "x-opt-scheduled-enqueue-time" and value is not None:
            if not isinstance(value, Timestamp):
                raise BadArgument(f"A scheduled enqueue time is a timestamp, not {value!r:.200}.")
            self.due = int(value)

    def _read_properties(self, source: Message) -> None:
        properties = source.properties()
        self.message_id = properties.message_id
        if isinstance(self.message_id, str) and len(self.message_id) > NAME_LIMIT:
            raise BadArgument(f"MessageId has {len(self.message_id)} characters, {NAME_LIMIT} at most.")
        group = properties.group_id
        if group is not None:
            if not isinstance(group, str) or len(group) > NAME_LIMIT:
                raise BadArgument(f"SessionId is a string of at most {NAME_LIMIT} characters, not {group!r:.200}.")
            self.session_id = group
        self.ping = properties.content_type == PING

    @property
    def sequence(self) -> int:
        """The number that clients see: the fragment in the upper bits, the order of arrival in the lower ones."""
        return self.fragment << ORDINAL_BITS | self.ordinal

    def copy(self) -> BrokeredMessage:
        """A copy for another entity: as the sender made it, without lock, state and delivery count."""
        twin = BrokeredMessage()
        twin.bare = self.bare
        twin.header_fields = self.header_fields
        twin.first_acquirer = self.first_acquirer
        twin.delivery_annotations = self.delivery_annotations
        twin.annotations = self.annotations
        twin.annotation_count = self.annotation_count
        twin.message_id = self.message_id
        twin.session_id = self.session_id
        twin.partition_key = self.partition_key
        twin.ttl = self.ttl
        twin.due = self.due
        twin.size = self.size
        twin.enqueued_sequence = self.enqueued_sequence
        twin.dead_letter_source = self.dead_letter_source
        twin.fragment = self.fragment
        return twin

    def ensure_message_id(self) -> None:
        """Sets a message id if the sender set none, as the service does: JavaScript clients cannot settle without one.

        Maintainers of Azure's clients say so (azure-service-bus-java, issues 69 and 191). We have not seen it on Azure.
        """
        if self.message_id is None:
            self.set_system_properties({"message_id": uuid.uuid4().hex})

    def set_system_properties(self, changes: Mapping[str, str | None]) -> None:
        """Replaces fields of the properties section, by their names in `Properties`."""
        bare = Message(self.bare)
        properties = replace(bare.properties(), **changes)
        self.bare = bare.replace(Section.PROPERTIES, properties_bytes(properties))
        self.message_id = properties.message_id
        if "group_id" in changes:
            self.session_id = changes["group_id"]

    def set_time_to_live(self, time_to_live: timedelta | None) -> None:
        self.ttl = FOREVER if time_to_live is None else max(1, time_to_live // timedelta(milliseconds=1))

    def set_properties(self, changes: dict[str, Value]) -> None:
        """Adds or replaces application properties. All other bytes stay."""
        self._rewrite_properties(changes, [encode(key) + encode(value) for key, value in changes.items()])

    def remove_properties(self, names: Collection[str]) -> None:
        """Removes application properties. All other bytes stay."""
        self._rewrite_properties(names, [])

    def _rewrite_properties(self, gone: Collection[str], added: list[bytes]) -> None:
        bare = Message(self.bare)
        span = bare.span(Section.APPLICATION_PROPERTIES)
        pairs = []
        if span is not None:
            found = entries(self.bare, span)
            pairs = [self.bare[entry.start : entry.end] for entry in found if entry.key not in gone]
        section = map_section(Section.APPLICATION_PROPERTIES, pairs + added)
        self.bare = bare.replace(Section.APPLICATION_PROPERTIES, section)

    def application_properties(self) -> Map:
        return Message(self.bare).application_properties()

    def to_bytes(self) -> bytes:
        """The bytes that a receiver link gets, with the lock in the delivery annotations if there is one."""
        return self._header() + self._hop() + self._received()

    def _hop(self) -> bytes:
        """The delivery annotations: those of the sender, and the lock."""
        token = self.lock_token
        if not self.delivery_annotations:
            return _NO_LOCK if token is None else _LOCK_TOKEN + _uuid_bytes(token)
        if token is None:
            return self.delivery_annotations
        (span,) = split(self.delivery_annotations)
        pairs = _hop_pairs(self.delivery_annotations, span)
        return map_section(Section.DELIVERY_ANNOTATIONS, [*pairs, _LOCK_PAIR + _uuid_bytes(token)])

    def received_by_number(self) -> bytes:
        """The bytes of a deferred message that a client asks for. The reply has the lock token beside them, too: Python
        clients before 7.15 read it from the delivery annotations."""
        return self._header() + (self._hop() if self.lock_token else self.delivery_annotations) + self._received()

    def peeked(self, with_body: bool = True) -> bytes:
        """The bytes that a client sees without receiving the message: with its state, and without a lock."""
        bare = self.bare if with_body else self._bare_without_body()
        return self._header() + self.delivery_annotations + self._annotations(self.state, locked=False) + bare

    def _bare_without_body(self) -> bytes:
        spans = (span for span in Message(self.bare).spans if span.section not in _BODIES)
        return b"".join(self.bare[span.start : span.end] for span in spans)

    def _received(self) -> bytes:
        # A received message that is active does not say so. One that has waited for its time says scheduled forever,
        # unless it is deferred.
        state = self.state or None
        if state is None and self.annotations and self._has_waited:
            state = StoredState.SCHEDULED
        return self._annotations(state, locked=self.lock_token is not None) + self.bare

    @property
    def _has_waited(self) -> bool:
        """Whether the message was scheduled: `due` is cleared when its time comes, and kept if it had come before."""
        return not self.due and _SCHEDULED_TIME in self.annotations

    def _header(self) -> bytes:
        ttl = b"\x40" if self.ttl >= _UINT_LIMIT else b"\x70" + _UINT(self.ttl)
        return b"\x00\x53\x70" + compound(
            0xC0, 5, b"%b%b%b\x70%b" % (self.header_fields, ttl, self.first_acquirer, _UINT(self.delivery_count))
        )

    def _annotations(self, state: StoredState | None, locked: bool) -> bytes:
        """The message annotations: those of the sender, then those of the broker."""
        pairs = self.annotations + _STAMPS(_ENQUEUED, self.enqueued_at, _SEQUENCE, self.sequence)
        count = self.annotation_count + 2
        if state is not None:
            pairs += _STATE + _BYTE(state)
            count += 1
        if self.enqueued_sequence:
            pairs += _ENQUEUED_SEQUENCE + _LONG(self.enqueued_sequence)
            count += 1
        if locked:
            pairs += _LOCKED + _LONG(self.locked_until)
            count += 1
        if self.dead_letter_source is not None:
            pairs += _DEAD_LETTER_SOURCE + encode(self.dead_letter_source)
            count += 1
        return b"\x00\x53\x72\xd1" + _SIZES(len(pairs) + 4, 2 * count) + pairs


def _hop_pairs(data: bytes, span: Span) -> list[bytes]:
    """The pairs of delivery annotations. A lock among them is from an earlier delivery, of a message sent again."""
    return [data[entry.start : entry.end] for entry in entries(data, span) if entry.key != _LOCK_KEY]


def dotnet_decimal(value: bytes) -> bytes:
    """A decimal128 in the layout of Microsoft's AMQP library: `exponent >> 9` where IEEE 754 has `exponent >> 7`.

    The Python client writes IEEE 754 and reads that layout. A value in it stays, and so does one that .NET lacks.
    """
    if value[0] & 0x60 == 0x60 or value[1] & 1 or value[2] or value[3]:
        return value
    exponent = (value[0] & 0x7F) << 7 | value[1] >> 1
    scale = (_DECIMAL_BIAS - exponent) & 0xFF
    if exponent > _DECIMAL_BIAS or scale > _LARGEST_SCALE:
        return value
    exponent = _DECIMAL_BIAS - scale
    return bytes((value[0] & 0x80 | exponent >> 9, (exponent & 0x7F) << 1)) + value[2:]


def _uuid_bytes(token: bytes) -> bytes:
    """A lock token in the byte order of an AMQP uuid. In a delivery tag it has the order of .NET."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


_BODIES = (Section.DATA, Section.SEQUENCE, Section.VALUE)
# Plain integers: an enum's members are slow to look up, and this happens for every message.
_HEADER, _HOP, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES = map(int, list(Section)[:5])
_DECIMAL128 = 0x94
_DECIMAL_BIAS, _LARGEST_SCALE = 6176, 28
_UINT_LIMIT = 1 << 32
_UINT = struct.Struct(">I").pack
_LONG = struct.Struct(">q").pack
_BYTE = struct.Struct(">b").pack
_SIZES = struct.Struct(">II").pack
_ENQUEUED = encode(Symbol("x-opt-enqueued-time")) + b"\x83"
_SEQUENCE = encode(Symbol("x-opt-sequence-number")) + b"\x81"
_STATE = encode(Symbol("x-opt-message-state")) + b"\x54"
_ENQUEUED_SEQUENCE = encode(Symbol("x-opt-enqueue-sequence-number")) + b"\x81"
_LOCKED = encode(Symbol("x-opt-locked-until")) + b"\x83"
_STAMPS = struct.Struct(f">{len(_ENQUEUED)}sq{len(_SEQUENCE)}sq").pack
_SCHEDULED_TIME = encode(Symbol("x-opt-scheduled-enqueue-time")) + b"\x83"
_LOCK_KEY = Symbol("x-opt-lock-token")
_LOCK_PAIR = encode(_LOCK_KEY) + b"\x98"
_LOCK_TOKEN = b"\x00\x53\x71" + compound(0xC1, 2, _LOCK_PAIR + bytes(16))[:-16]
_NO_LOCK = b"\x00\x53\x71" + compound(0xC1, 0, b"")
"""The delivery annotations of a message that is received and deleted: an empty map."""
_DEAD_LETTER_SOURCE = encode(Symbol("x-opt-deadletter-source"))
