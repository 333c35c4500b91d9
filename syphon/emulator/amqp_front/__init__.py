"""The AMQP front of the emulator: connections, sessions and links on a socket become calls on a namespace."""

from .connection import AmqpConnection, AmqpTimeouts

__all__ = ["AmqpConnection", "AmqpTimeouts"]
