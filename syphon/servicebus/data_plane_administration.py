"""Administration by the namespace itself, with a connection string or a token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from azure.core.credentials import TokenCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient, TopicProperties

from syphon.model import DestinationMissing, SyphonError
from syphon.time_budget import ADMINISTRATION_TIMEOUT

from .administration import (
    Administration,
    AllowedUse,
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
    cause_of,
    duplicate_detection,
    failure,
    is_unauthenticated,
    queue_info,
    sdk_options,
)
from .proxy_settings import HttpProxy
from .sdk_sockets import EMULATOR_PORT

T = TypeVar("T")

_LACKS_CLAIM = re.compile(r"\bclaim|\bspecified action: Manage")
"""The service's words for valid credentials that lack a claim."""


class DataPlaneAdministration(Administration):
    """The administration API of a namespace. Use it for one task, not for days: the SDK renews its signatures late.

    >>> with DataPlaneAdministration.from_connection_string("Endpoint=sb://…") as administration: ...
    """

    def __init__(
        self, client: ServiceBusAdministrationClient, transport: ManagementTransport, namespace: str, identity: str
    ) -> None:
        self._client = client
        self._transport = transport
        self._namespace = namespace
        self._identity = identity

    @classmethod
    def from_connection_string(
        cls,
        connection_string: str,
        *,
        timeout: float = ADMINISTRATION_TIMEOUT,
        ca_file: str | None = None,
        proxy: HttpProxy | None = None,
    ) -> Self:
        """With a policy's key, or a shared access signature. Raises ValueError if the string is malformed.

        `UseDevelopmentEmulator=true` means no TLS, as it does for the messaging client.
        """
        settings = _settings(connection_string)
        plain = settings.get("usedevelopmentemulator") == "true"
        endpoint = urlsplit(settings.get("endpoint", ""))
        host = endpoint.netloc
        if plain and endpoint.port is None:
            host = f"{host}:{EMULATOR_PORT}"
        transport = ManagementTransport(timeout=timeout, plain=plain, ca_file=ca_file, proxy=proxy)
        client = ServiceBusAdministrationClient.from_connection_string(
            ";".join(f"{key}={value}" for key, value in (settings | {"endpoint": f"sb://{host}"}).items()),
            transport=transport,
            retry_total=0,
        )
        policy = settings.get("sharedaccesskeyname")
        return cls(client, transport, host, f"the policy '{policy}'" if policy else "the shared access signature")

    @classmethod
    def from_credential(
        cls,
        host: str,
        credential: TokenCredential,
        *,
        timeout: float = ADMINISTRATION_TIMEOUT,
        ca_file: str | None = None,
        proxy: HttpProxy | None = None,
    ) -> Self:
        """With a credential of azure-identity, or one like it, for `contoso.servicebus.windows.net`."""
        transport = ManagementTransport(timeout=timeout, ca_file=ca_file, proxy=proxy)
        client = ServiceBusAdministrationClient(host, credential, transport=transport, retry_total=0)
        return cls(client, transport, host, f"the identity of {type(credential).__name__}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        return self._namespace

    def get_queue(self, name: str) -> QueueInfo | None:
        entity = self._find(name, f"look for the queue '{name}'")
        return queue_info(entity) if isinstance(entity, QueueProperties) else None

    def create_queue(self, name: str, options: NewQueue) -> None:
        # Durations are passed as timedelta: the SDK rounds a text of TimeSpan.MaxValue up, and Azure refuses that.
        settings: dict[str, Any] = sdk_options(options)
        self._ask(f"make the queue '{name}'", lambda: self._client.create_queue(name, **settings))

    def queue_names(self, prefix: str) -> list[str]:
        names = self._ask("list its queues", lambda: [queue.name for queue in self._client.list_queues()])
        return [name for name in names if name.lower().startswith(prefix.lower())]

    def entity_names(self) -> list[str]:
        def names() -> list[str]:
            queues = [queue.name for queue in self._client.list_queues()]
            return queues + [topic.name for topic in self._client.list_topics()]

        return self._ask("list its queues and topics", names)

    def exists(self, entity: str) -> bool:
        return self._find(entity, f"look for '{entity}'") is not None

    def is_partitioned(self, entity: str) -> bool | None:
        """Whether a queue or topic is partitioned; None if there is none of that name."""
        found = self._find(entity, f"look for '{entity}'")
        return None if found is None else bool(found.enable_partitioning)

    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each queue and subscription has, by its path."""

        def count() -> dict[str, int]:
            found = {
                queue.name: queue.dead_letter_message_count or 0
                for queue in self._client.list_queues_runtime_properties()
            }
            for topic in self._client.list_topics():
                for each in self._client.list_subscriptions_runtime_properties(topic.name):
                    found[f"{topic.name}/subscriptions/{each.name}"] = each.dead_letter_message_count or 0
            return found

        return self._ask("count its dead letters", count)

    def duplicate_window(self, entity: str) -> int:
        def look(name: str) -> DuplicateDetection | None:
            task = f"look whether '{name}' detects duplicates"
            found = self._find(name, task)
            if not isinstance(found, TopicProperties):
                return None if found is None else duplicate_detection(found, [found])
            return duplicate_detection(found, self._ask(task, lambda: list(self._client.list_subscriptions(name))))

        return longest_window(entity, look)

    def entity_state(self, entity: str) -> AllowedUse | None:
        """What a queue or topic allows; None if there is none of that name."""
        found = self._find(entity, f"look for '{entity}'")
        return None if found is None else AllowedUse(str(getattr(found.status, "value", found.status)))

    def set_entity_state(self, entity: str, state: AllowedUse) -> None:
        """Changes what a queue or topic allows, and nothing else."""
        task = f"set '{entity}' to {state}"
        found = self._find(entity, task)
        if found is None:
            raise DestinationMissing(f"{self._namespace}: there is no '{entity}'.")
        found.status = state.value
        if isinstance(found, QueueProperties):
            queue = found
            self._ask(task, lambda: self._client.update_queue(queue))
        else:
            topic = found
            self._ask(task, lambda: self._client.update_topic(topic))

    def tier(self) -> NamespaceTier:
        found = self._ask("look for the tier of the namespace", self._client.get_namespace_properties)
        return NamespaceTier(str(found.messaging_sku or ""), found.messaging_units or 1)

    def queue_counts(self, queue: str) -> QueueCounts | None:
        def count() -> QueueCounts | None:
            try:
                found = self._client.get_queue_runtime_properties(queue)
                active, dead_letters = found.active_message_count, found.dead_letter_message_count
            except (ResourceNotFoundError, AttributeError):
                return None
            return None if active is None else QueueCounts(active, dead_letters or 0, found.size_in_bytes)

        return self._ask(f"count the messages of '{queue}'", count)

    @property
    def clock_skew(self) -> float | None:
        """How many seconds this machine's clock is ahead of the namespace's, by its last answer; None without one."""
        return self._transport.clock_skew

    def close(self) -> None:
        self._client.__exit__()

    def _find(self, name: str, task: str) -> QueueProperties | TopicProperties | None:
        looks: tuple[Callable[[str], QueueProperties | TopicProperties], ...] = (
            self._client.get_queue,
            self._client.get_topic,
        )

        def find() -> QueueProperties | TopicProperties | None:
            for look in looks:
                try:
                    return look(name)
                except ResourceNotFoundError:
                    return None
                except AttributeError:
                    # The service answered with an entity of another kind, and the SDK fails on it in this way.
                    continue
            return None

        return self._ask(task, find)

    def _ask(self, task: str, call: Callable[[], T]) -> T:
        return answer(call, lambda error: self._explain(error, task))

    def _explain(self, error: Exception, task: str) -> SyphonError:
        if _LACKS_CLAIM.search(cause_of(error)):
            lack = f"The Manage claim is missing: {self._identity} does not have it."
        else:
            lack = f"The credentials are refused, or lack the Manage claim: we used {self._identity}."
        remedy = (
            f"{lack} Use a connection string whose policy has Manage, or an identity with the role "
            "Azure Service Bus Data Owner."
        )
        return failure(error, self._namespace, task, is_unauthenticated(error), remedy)


def _settings(connection_string: str) -> dict[str, str]:
    """The parts of a connection string by their names in lower case, as the SDK reads them."""
    parts = [part.partition("=") for part in connection_string.strip().rstrip(";").split(";")]
    if not all(separator for _, separator, _ in parts):
        raise ValueError("The connection string is blank or malformed: write Endpoint=sb://…;SharedAccessKeyName=…;…")
    return {name.lower(): value for name, _, value in parts}
