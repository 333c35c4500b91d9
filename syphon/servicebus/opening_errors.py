"""Why a connection could not be opened, in the operator's words."""

from __future__ import annotations

from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from syphon.model import DestinationMissing, DestinationUnreachable, NamespaceGone, NotAuthorized, SyphonError

from .proxy import HttpProxy

REFUSED = (401, 403)
MISSING = 404
NO_SUCH_HOST = ("Name or service not known", "nodename nor servname provided")
NO_CONNECTION = "Failed to initiate the connection due to exception: "
NO_ADDRESS = "Failed to authenticate the connection due to exception: "
"""What the SDK says if a host name cannot be looked up, with WebSockets."""


def explain(error: Exception, namespace: str, entity: str, proxy: HttpProxy | None = None) -> SyphonError:
    """Our error for one of the SDK's, in the operator's words. Only the first line of the SDK's text is kept."""
    # Errors of the SDK's lower layer begin with a condition that says little. Their description says what happened.
    text = str(getattr(error, "description", None) or error).partition("\n")[0]
    where = f"{namespace}, entity '{entity}'" if entity else namespace
    status: object = getattr(error, "status_code", None)  # a refused token has one; the SDK's other errors have none
    kind = type(error).__name__
    if kind == "WebSocketBadStatusException":
        return DestinationUnreachable(f"{where}: no connection: the WebSocket was refused with HTTP status {status}")
    if kind == "WebSocketProxyException":
        return _explain_proxy(text, where, proxy)
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError) or status in REFUSED:
        return NotAuthorized(f"{where}: the credentials were refused ({text}). Check the key or role, and its claims.")
    if status == MISSING:
        return DestinationMissing(f"{where}: no queue or topic of that name.")
    # Only for a name that is known not to exist: if the name service itself is down, that is an outage (C3).
    if any(words in text for words in NO_SUCH_HOST):
        if proxy is not None:  # which looks up all other names
            return DestinationUnreachable(f"{where}: no connection: the host of the proxy {proxy} is not known")
        return NamespaceGone(f"{where}: no such host. Check the namespace's name.")
    is_plain = isinstance(error, TimeoutError) or NO_CONNECTION in text or NO_ADDRESS in text
    what = text.removeprefix(NO_CONNECTION).removeprefix(NO_ADDRESS) if is_plain else f"{kind}: {text}"
    via = f" (through the proxy {proxy})" if proxy is not None else ""
    return DestinationUnreachable(f"{where}: no connection{via}: {what}")


def _explain_proxy(text: str, where: str, proxy: HttpProxy | None) -> SyphonError:
    # Without settings of a proxy, websocket-client takes one from the environment.
    name = "the proxy of the environment" if proxy is None else f"the proxy {proxy}"
    if text.endswith(" 407"):
        return NotAuthorized(f"{where}: {name} refused our credentials (407). Check the proxy's username and password.")
    return DestinationUnreachable(f"{where}: no connection: {name} opened no tunnel: {text}")
