"""The AMQP side of the emulator: connections, sessions and links on a socket, turned into calls on a namespace."""

from .connection import AmqpConnection, FrontSettings

__all__ = ["AmqpConnection", "FrontSettings"]
