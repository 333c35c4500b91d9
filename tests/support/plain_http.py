"""Azure's clients without TLS.

The administration client always says https, and the one for Resource Manager keeps its token back from anything else.
So they go on believing it, and the scheme is changed on the last step to the wire.
"""

from __future__ import annotations

from typing import Any

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport


def _plain(request: Any) -> Any:
    if request.url.startswith("https://"):
        request.url = request.url.replace("https://", "http://", 1)
        # As a proxy that ends TLS would: links in the answers then keep the scheme the client knows.
        request.headers["X-Forwarded-Proto"] = "https"
    return request


class PlainHttp(RequestsTransport):  # type: ignore[misc]  # azure.core loads its transports too late for mypy
    """For the clients that block."""

    def send(self, request: Any, **kwargs: Any) -> Any:
        return super().send(_plain(request), **kwargs)


class AioPlainHttp(AioHttpTransport):  # type: ignore[misc]  # the same
    """For the asynchronous ones."""

    async def send(self, request: Any, **kwargs: Any) -> Any:
        return await super().send(_plain(request), **kwargs)


class AnyToken:
    """A credential whose tokens are worth nothing."""

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken("not-a-token", 4_102_444_800)


class AioAnyToken:
    """The same for asynchronous clients."""

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken("not-a-token", 4_102_444_800)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> AioAnyToken:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass
