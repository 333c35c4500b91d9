"""The handshake: the protocol header of the peer, and its identity through SASL."""

from __future__ import annotations

from syphon.amqp import Array, Symbol
from syphon.amqp.frames import (
    AMQP_HEADER,
    FRAME_SASL,
    SASL_HEADER,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    frame,
    read_performative,
)

from ..broker import Grant, Unauthorized, VirtualHosts
from .frame_io import OutputBuffer, ProtocolError, cut

MECHANISMS = Array(0xA3, (Symbol("ANONYMOUS"), Symbol("PLAIN"), Symbol("MSSBCBS"), Symbol("EXTERNAL")))
OK, AUTH = 0, 1


class Handshake:
    """Reads from the first byte to the header after which AMQP frames follow."""

    def __init__(self, hosts: VirtualHosts, output: OutputBuffer) -> None:
        self.is_over = False
        self.grant: Grant | None = None
        """The rights of a peer that gave the name and key of a policy. Other peers put a token later."""
        self.namespace = hosts.first
        self._hosts = hosts
        self._output = output
        self._secured = False
        self._read = self._read_header

    def read(self, data: bytes, pos: int) -> int:
        """Reads the next step if all its bytes have arrived. Returns the position after it."""
        return self._read(data, pos)

    def _read_header(self, data: bytes, pos: int) -> int:
        if len(data) - pos < 8:
            if not AMQP_HEADER.startswith(data[pos : pos + 4]):
                self._output.write(AMQP_HEADER)
                raise ProtocolError("amqp:connection:framing-error", "That is not AMQP.")
            return pos
        header = data[pos : pos + 8]
        if header == SASL_HEADER and not self._secured:
            self._output.write(SASL_HEADER)
            self._output.write(frame(0, SaslMechanisms(MECHANISMS).to_bytes(), FRAME_SASL))
            self._read = self._read_sasl
        elif header == AMQP_HEADER:
            self._output.write(AMQP_HEADER)
            self.is_over = True
        else:
            self._output.write(SASL_HEADER)
            raise ProtocolError("amqp:connection:framing-error", "Only AMQP 1.0 is spoken here.")
        return pos + 8

    def _read_sasl(self, data: bytes, pos: int) -> int:
        found = cut(data, pos, FRAME_SASL)
        if found is None:
            return pos
        _, body, after = found
        performative, _ = read_performative(body)
        if not isinstance(performative, SaslInit):
            raise ProtocolError("amqp:not-allowed", f"sasl-init was expected, not {performative.NAME}")
        try:
            self._authenticate(performative)
        except Unauthorized:
            self._output.write(frame(0, SaslOutcome(AUTH).to_bytes(), FRAME_SASL))
            raise
        self._output.write(frame(0, SaslOutcome(OK).to_bytes(), FRAME_SASL))
        self._secured = True
        self._read = self._read_header
        return after

    def _authenticate(self, init: SaslInit) -> None:
        if init.mechanism == "PLAIN":
            parts = (init.initial_response or b"").split(b"\0")
            if len(parts) != 3:
                raise Unauthorized("SASL PLAIN wants an authorization id, a policy's name and its key.")
            name, key = (part.decode("utf-8", "replace") for part in parts[1:])
            namespace = self._hosts.find(name, init.hostname)
            self.grant = namespace.access.plain(name, key)
            self._hosts.keep(namespace)
            self.namespace = namespace
        elif init.mechanism not in ("ANONYMOUS", "MSSBCBS", "EXTERNAL"):
            raise Unauthorized(f"SASL {init.mechanism} is not offered.")
