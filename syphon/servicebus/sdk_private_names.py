"""The private names of azure-servicebus that we use, and the check that the installed SDK has them.

Only `sdk_sockets` and `sdk_clients` use them. A test compares this list with the SDK that is installed, and another
one with what the two modules use.
"""

from __future__ import annotations

import importlib
from inspect import isfunction

from azure.servicebus import __version__

from syphon.model import SyphonError

SUPPORTED = "7.15."

CONTRACT: dict[str, tuple[str, ...]] = {
    "azure.servicebus:ServiceBusClient": (
        "_create_session_browser",
        "_config",
        "_credential",
        "_custom_endpoint_address",
        "_handlers",
    ),
    "azure.servicebus._session_browser:_SessionBrowser": ("_open", "_create_handler", "_handler"),
    "azure.servicebus._pyamqp.client:AMQPClient": (
        "_connection",
        "_shutdown",
        "_idle_timeout",
        "_ssl_opts",
        "_socket_timeout",
        "open",
    ),
    "azure.servicebus._pyamqp._connection:Connection": (
        "_transport",
        "state",
        "_remote_max_frame_size",
        "_remote_idle_timeout",
    ),
    "azure.servicebus._pyamqp._transport:_AbstractTransport": ("sock", "connected", "_read_buffer"),
    "azure.servicebus._pyamqp._transport:WebSocketTransport": ("sock",),
    "azure.servicebus._base_handler:ServiceBusSharedKeyCredential": ("policy", "key", "token_type"),
    "azure.servicebus._base_handler:ServiceBusSASTokenCredential": ("token", "token_type"),
    "azure.servicebus._base_handler:BaseHandler": ("_check_live", "_config", "_shutdown"),
    "azure.servicebus._common._configuration:Configuration": (
        "retry_mode",
        "retry_total",
        "retry_backoff_factor",
        "retry_backoff_max",
        "use_tls",
        "connection_verify",
        "transport_type",
        "http_proxy",
    ),
    "azure.servicebus:ServiceBusSender": ("_max_message_size_on_link", "_create_handler", "_handler"),
    "azure.servicebus:ServiceBusMessageBatch": ("_message", "_count"),
    "azure.servicebus.exceptions:ServiceBusError": ("_condition",),
    "azure.servicebus.aio:ServiceBusClient": ("_config", "_credential", "_custom_endpoint_address", "_handlers"),
    "azure.servicebus.aio:ServiceBusSender": ("_max_message_size_on_link", "_create_handler", "_handler"),
    "azure.servicebus._pyamqp.aio._client_async:AMQPClientAsync": ("close_async", "_connection"),
    "azure.servicebus.aio._base_handler_async:BaseHandler": ("_check_live", "_config", "_shutdown"),
}
"""The private names in use, by module and class."""


class SdkMismatch(SyphonError):
    """The installed azure-servicebus does not have the private names that we use."""


def check_contract(version: str = __version__) -> None:
    """Raises `SdkMismatch` with all that is missing, unless the SDK is one that we know."""
    problems = []
    if not version.startswith(SUPPORTED):
        problems.append(f"its version is {version}, and {SUPPORTED}* is needed")
    for place, names in CONTRACT.items():
        module, _, cls = place.partition(":")
        try:
            found = getattr(importlib.import_module(module), cls)
        except (ImportError, AttributeError):
            problems.append(f"{place} does not exist")
            continue
        problems += [f"{place}.{name} does not exist" for name in names if not _has(found, name)]
    if problems:
        raise SdkMismatch(
            f"azure-servicebus does not fit: {'; '.join(problems)}. Install azure-servicebus=={SUPPORTED}*, "
            "or adapt syphon/servicebus/sdk_sockets.py, sdk_clients.py and their contract."
        )


def _has(owner: type, name: str) -> bool:
    """Whether a class has the name, or one of its methods uses it: instance attributes are declared nowhere else."""
    own = vars(owner)
    return name in own or any(name in method.__code__.co_names for method in own.values() if isfunction(method))
