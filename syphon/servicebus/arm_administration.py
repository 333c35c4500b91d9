"""Administration through Azure Resource Manager: for operators who may manage the resource but have no key of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from azure.core.credentials import TokenCredential
from azure.core.exceptions import HttpResponseError
from azure.mgmt.servicebus import ServiceBusManagementClient

from syphon.model import NamespaceGone, NotAuthorized, SyphonError, is_this_machine
from syphon.time_budget import ADMINISTRATION_TIMEOUT

from .administration import (
    Administration,
    DuplicateDetection,
    NamespaceTier,
    NewQueue,
    QueueCounts,
    QueueInfo,
    longest_window,
)
from .management_http import (
    ManagementTransport,
    answer,
    duplicate_detection,
    failure,
    found,
    is_unauthenticated,
    iso8601,
    queue_info,
    sdk_options,
)
from .proxy_settings import HttpProxy

T = TypeVar("T")


class ArmAdministration(Administration):
    """A namespace as a resource of an Azure subscription.

    Resource Manager cannot create without updating: if somebody else makes the queue between our check and
    `create_queue`, it gets our settings. The gap is one round trip, and the service offers nothing better.
    """

    def __init__(
        self,
        subscription: str,
        resource_group: str,
        namespace: str,
        credential: TokenCredential,
        *,
        base_url: str | None = None,
        timeout: float = ADMINISTRATION_TIMEOUT,
        ca_file: str | None = None,
        proxy: HttpProxy | None = None,
    ) -> None:
        """`base_url` is for clouds other than the public one, and for an emulator: http:// on this machine only."""
        plain = base_url is not None and _is_plain(base_url)
        more: dict[str, Any] = {}
        if base_url is not None:
            secure = base_url.replace("http://", "https://", 1).rstrip("/")
            more = {"base_url": secure, "credential_scopes": [f"{secure}/.default"]}
        self._client = ServiceBusManagementClient(
            credential,
            subscription,
            transport=ManagementTransport(timeout=timeout, plain=plain, ca_file=ca_file, proxy=proxy),
            retry_total=0,
            **more,
        )
        self._subscription = subscription
        self._place = (resource_group, namespace)
        self._exists = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        group, name = self._place
        return f"{name} (resource group {group})"

    def get_queue(self, name: str) -> QueueInfo | None:
        queue = self._find(self._client.queues.get, name, f"look for the queue '{name}'")
        return None if queue is None else queue_info(queue)

    def create_queue(self, name: str, options: NewQueue) -> None:
        # The SDK's model writes TimeSpan.MaxValue without its last digit, so we write the document ourselves.
        body = json.dumps({"properties": _properties(options)}).encode()
        self._ask(
            f"make the queue '{name}'",
            "queues/write",
            lambda: self._client.queues.create_or_update(*self._place, _arm_name(name), BytesIO(body)),
        )

    def queue_names(self, prefix: str) -> list[str]:
        names = self._list("list its queues", self._client.queues)
        return [name for name in names if name.lower().startswith(prefix.lower())]

    def entity_names(self) -> list[str]:
        return self._list("list its queues and topics", self._client.queues, self._client.topics)

    def _list(self, task: str, *kinds: Any) -> list[str]:
        def names() -> list[str]:
            return [str(entity.name) for kind in kinds for entity in kind.list_by_namespace(*self._place)]

        listed = self._ask(task, "queues/read", lambda: found(names))
        if listed is None:
            raise self._gone()
        return [name.replace("~", "/") for name in listed]

    def exists(self, entity: str) -> bool:
        task = f"look for '{entity}'"
        return any(
            self._find(get, entity, task) is not None for get in (self._client.queues.get, self._client.topics.get)
        )

    def duplicate_window(self, entity: str) -> int:
        def look(name: str) -> DuplicateDetection | None:
            task = f"look whether '{name}' detects duplicates"
            queue = self._find(self._client.queues.get, name, task)
            if queue is not None:
                return duplicate_detection(queue, [queue])
            # Without its subscriptions: Resource Manager is asked about backlog queues, and never about destinations.
            topic = self._find(self._client.topics.get, name, task)
            return None if topic is None else duplicate_detection(topic)

        return longest_window(entity, look)

    def tier(self) -> NamespaceTier:
        found = self._ask("look for the tier", "namespaces/read", lambda: self._client.namespaces.get(*self._place))
        sku = found.sku
        return NamespaceTier("" if sku is None else str(sku.name), 1 if sku is None else sku.capacity or 1)

    def queue_counts(self, queue: str) -> QueueCounts | None:
        entity = self._find(self._client.queues.get, queue, f"count the messages of '{queue}'")
        details = None if entity is None or entity.properties is None else entity.properties.count_details
        if details is None or details.active_message_count is None:
            return None
        return QueueCounts(details.active_message_count, details.dead_letter_message_count or 0)

    def close(self) -> None:
        self._client.close()

    def _find(self, get: Callable[[str, str, str], T], name: str, task: str) -> T | None:
        entity = self._ask(task, "queues/read", lambda: found(lambda: get(*self._place, _arm_name(name))))
        if entity is None and not self._exists:
            self._look_for_namespace(task)
        self._exists = True
        return entity

    def _look_for_namespace(self, task: str) -> None:
        """Raises if the namespace is missing: a missing entity and a missing namespace give the same answer."""
        try:
            namespace = self._ask(task, "read", lambda: found(lambda: self._client.namespaces.get(*self._place)))
        except NotAuthorized:
            return  # an identity that may see only the queues has seen that there is none
        if namespace is None:
            raise self._gone()

    def _gone(self) -> NamespaceGone:
        return NamespaceGone(
            f"Azure Resource Manager finds no namespace {self.namespace} in the subscription {self._subscription}. "
            "Check the three names, and that the identity can see them."
        )

    def _ask(self, task: str, action: str, call: Callable[[], T]) -> T:
        return answer(call, lambda error: self._explain(error, task, action))

    def _explain(self, error: Exception, task: str, action: str) -> SyphonError:
        remedy = (
            f"The identity is refused, or lacks Microsoft.ServiceBus/namespaces/{action} (like Manage for a policy): "
            "give it the role Azure Service Bus Data Owner or Contributor on the namespace."
        )
        where = f"Azure Resource Manager, for {self.namespace},"
        return failure(error, where, task, is_unauthenticated(error) or _is_forbidden(error), remedy)


def _is_forbidden(error: Exception) -> bool:
    """Whether a role is missing. The status 403 also means that a policy of the organisation disallows it."""
    return (
        isinstance(error, HttpResponseError)
        and error.status_code == 403
        and error.error is not None
        and str(error.error.code).endswith("AuthorizationFailed")
    )


def _is_plain(base_url: str) -> bool:
    address = urlsplit(base_url)
    if address.scheme != "http":
        return False
    if not is_this_machine(address.hostname or ""):
        raise ValueError(f"{base_url} would send our token unencrypted: write https://.")
    return True


def _arm_name(name: str) -> str:
    return name.replace("/", "~")


def _properties(options: NewQueue) -> dict[str, object]:
    return {
        _camel(name): iso8601(value) if isinstance(value, timedelta) else value
        for name, value in sdk_options(options).items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
