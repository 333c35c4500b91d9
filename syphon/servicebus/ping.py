"""A ping: an empty message that shows whether an entity takes messages, and that the service never delivers (F5)."""

from __future__ import annotations

import uuid

from syphon.amqp import Header, Properties, Symbol, UInt, data_section, header_bytes, properties_bytes

PING_TYPE = "application/vnd.ms-servicebus-ping"
"""The content type by which the service recognises a ping."""
TIME_TO_LIVE = 1000
"""Milliseconds."""


def ping_payload() -> bytes:
    """An encoded ping. It has a session id because an entity with sessions requires one."""
    return (
        header_bytes(Header(ttl=UInt(TIME_TO_LIVE)))
        + properties_bytes(
            Properties(message_id=str(uuid.uuid4()), content_type=Symbol(PING_TYPE), group_id=str(uuid.uuid4()))
        )
        + data_section(b"")
    )
