"""The HTTP front of the emulator: administration API, Azure Resource Manager, and the emulator's own routes."""

from .app import HttpServer, build_app

__all__ = ["HttpServer", "build_app"]
