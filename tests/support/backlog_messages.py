"""Messages as senders make them, with every AMQP type and body kind, for hypothesis to draw."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from syphon.amqp import (
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    Value,
    data_section,
    encode,
    properties_bytes,
    section_bytes,
)
from tests.support import amqp_strategies as amqp

NOW = 1_700_000_000_000
SCHEDULED = "x-opt-scheduled-enqueue-time"
SIMPLE = (
    properties_bytes(Properties(message_id="m1", subject="s"))
    + section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"colour": "blue"}))
    + data_section(b"hello")
)
"""A message as any sender might make it."""


@dataclass(frozen=True)
class Sent:
    """A message, section by section, and the values that become aliases."""

    header: list[Value] | None
    delivery_annotations: bytes
    annotations: list[tuple[bytes, bytes]]
    """Encoded pairs, without the scheduled time."""
    scheduled: int | None
    properties: bytes
    application: bytes
    tail: bytes
    """The body and the footer."""

    @property
    def payload(self) -> bytes:
        pairs = [key + value for key, value in self.annotations]
        if self.scheduled is not None:
            pairs.insert(len(pairs) // 2, encode(Symbol(SCHEDULED)) + encode(Timestamp(self.scheduled)))
        annotations = compound(0xD1, 2 * len(pairs), b"".join(pairs))
        return b"".join(
            (
                b"" if self.header is None else b"\x00\x53\x70" + encode(self.header),
                self.delivery_annotations,
                b"\x00\x53\x72" + annotations if pairs else b"",
                self.properties,
                self.application,
                self.tail,
            )
        )

    @property
    def ttl(self) -> Value:
        return self.header[2] if self.header is not None and len(self.header) > 2 else None


def compound(code: int, count: int, body: bytes) -> bytes:
    """A list or map in exactly this form: some senders write even a small one in the long form."""
    if code & 0x10:
        return bytes((code,)) + struct.pack(">II", len(body) + 4, count) + body
    return bytes((code, len(body) + 1, count)) + body


def long_string(text: str) -> bytes:
    raw = text.encode()
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


_texts = st.text(max_size=12)
_strings = st.one_of(_texts.map(encode), _texts.map(long_string))
"""Encoded strings, some of them in the long form without need."""
_times = st.integers(0, 2**41).map(Timestamp)
_ids = st.one_of(_strings, amqp.ulongs.map(encode), amqp.uuids.map(encode), amqp.binaries.map(encode))

_property_fields: list[SearchStrategy[bytes]] = [
    _ids,
    amqp.binaries.map(encode),
    _strings,
    _strings,
    _strings,
    _ids,
    amqp.ascii_text.map(Symbol).map(encode),
    amqp.ascii_text.map(Symbol).map(encode),
    _times.map(encode),
    _times.map(encode),
    _strings,
    amqp.uints.map(encode),
    _strings,
]


@st.composite
def _properties(draw: st.DrawFn) -> bytes:
    raw = [draw(st.one_of(st.just(b"\x40"), field)) for field in _property_fields[: draw(st.integers(0, 13))]]
    body = b"".join(raw)
    forms = [0xC0, 0xD0] if len(body) < 255 else [0xD0]
    content = compound(draw(st.sampled_from(forms)), len(raw), body) if raw else b"\x45"
    return draw(st.sampled_from(amqp.descriptors(Section.PROPERTIES))) + content


@st.composite
def _application(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(_texts.filter(lambda text: not text.startswith("x-ms-")), min_size=1, max_size=5))
    body = b"".join(encode(name) + encode(draw(amqp.values)) for name in names)
    forms = [0xC1, 0xD1] if len(body) < 255 else [0xD1]
    content = compound(draw(st.sampled_from(forms)), 2 * len(names), body)
    return draw(st.sampled_from(amqp.descriptors(Section.APPLICATION_PROPERTIES))) + content


def _maybe(source: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    return st.one_of(st.just(b""), source)


_headers: SearchStrategy[list[Value]] = st.tuples(
    st.one_of(st.none(), amqp.booleans),
    st.one_of(st.none(), amqp.ubytes),
    st.one_of(st.none(), amqp.uints.filter(bool)),  # zero is refused (M4)
    st.one_of(st.none(), amqp.booleans),
    st.one_of(st.none(), amqp.uints),
    st.integers(0, 5),
).map(lambda parts: list(parts[: parts[5]]))
_user_keys = amqp.ascii_text.filter(lambda text: not text.startswith("x-opt-")).map(Symbol).map(encode)
_user_annotations = st.lists(st.tuples(_user_keys, amqp.values.map(encode)), max_size=3)
_partition_keys = _texts.map(lambda key: [(encode(Symbol("x-opt-partition-key")), encode(key))])
_via_keys = _texts.map(lambda key: [(encode(Symbol("x-opt-via-partition-key")), encode(key))])
_nothing: SearchStrategy[list[tuple[bytes, bytes]]] = st.just([])
_annotations = st.tuples(_user_annotations, st.one_of(_nothing, _partition_keys), st.one_of(_nothing, _via_keys)).map(
    lambda parts: parts[0] + parts[1] + parts[2]
)
_delivery_annotations = st.just(b"\x00\x53\x71" + bytes.fromhex("c1 06 02 a3 01 61 54 07"))
_tails = amqp.messages.map(
    lambda parts: amqp.joined([part for part in parts if part[0] > Section.APPLICATION_PROPERTIES])
)

sent: SearchStrategy[Sent] = st.builds(
    Sent,
    st.one_of(st.none(), _headers),
    _maybe(_delivery_annotations),
    _annotations,
    st.one_of(st.none(), st.integers(NOW - 10_000, NOW + 10_000)),
    _maybe(_properties()),
    _maybe(_application()),
    _tails,
)

paths = st.text(min_size=1, max_size=260).filter(lambda text: bool(text.strip()))
