"""Azure's clients without TLS.

The administration client always uses https, and the client of Resource Manager sends its token over https only. So
these transports change the scheme to http in the last step, when they send a request.
"""

from __future__ import annotations

from typing import Any

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport


def _plain(request: Any) -> Any:
    if request.url.startswith("https://"):
        request.url = request.url.replace("https://", "http://", 1)
        # Like a proxy that ends TLS: links in the answers then keep the scheme that the client uses.
        request.headers["X-Forwarded-Proto"] = "https"
    return request


class PlainHttp(RequestsTransport):  # type: ignore[misc]  # azure.core loads its transports too late for mypy
    """The transport of synchronous clients."""

    def send(self, request: Any, **kwargs: Any) -> Any:
        return super().send(_plain(request), **kwargs)


class AioPlainHttp(AioHttpTransport):  # type: ignore[misc]  # the same
    """The transport of asynchronous clients."""

    async def send(self, request: Any, **kwargs: Any) -> Any:
        return await super().send(_plain(request), **kwargs)


class AnyToken:
    """A credential with invalid tokens."""

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
