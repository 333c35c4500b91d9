"""A namespace over HTTP. `build_app` is the way in."""

from .app import build_app

__all__ = ["build_app"]
