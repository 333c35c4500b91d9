"""The namespaces behind one port. A client names the one it means by its key name or by its host name."""

from __future__ import annotations

import re
from collections.abc import Callable

from .namespace import BrokerNamespace
from .refusals import EntityNotFound, QuotaExceeded, Unauthorized

MOST_NAMESPACES = 1000
"""The most namespaces of one port besides its first. A test suite that needs more deletes some."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?").fullmatch


class VirtualHosts:
    """One namespace, or many that are made like it when a client first names them."""

    def __init__(self, first: BrokerNamespace, make: Callable[[str], BrokerNamespace] | None = None) -> None:
        self.first = first
        self._make = make
        self._named: dict[str, BrokerNamespace] = {}

    def find(self, key_name: str | None = None, host: str | None = None) -> BrokerNamespace:
        """The namespace that a client means. A new one exists from `keep` on: its client has to show a key first."""
        name = self._name(key_name, host)
        if name is None or self._make is None:
            return self.first
        if name not in self._named and len(self._named) >= MOST_NAMESPACES:
            raise QuotaExceeded(f"This port has {MOST_NAMESPACES} namespaces, and cannot have more: delete some.")
        return self._named.get(name) or self._make(name)

    def _name(self, key_name: str | None, host: str | None) -> str | None:
        if self._make is None:
            return None
        if key_name and key_name not in self.first.access.policies:
            if _NAME(key_name) is None:
                raise Unauthorized(
                    f"'{key_name:.100}' is neither a policy nor the name of a namespace: write up to 50 lower-case "
                    "letters, digits and hyphens between them."
                )
            return key_name
        label, _, rest = (host or "").lower().partition(".")
        return label if rest == "localhost" and _NAME(label) and label != self.first.name else None

    def keep(self, namespace: BrokerNamespace) -> None:
        if namespace is not self.first:
            self._named.setdefault(namespace.name, namespace)

    def exists(self, namespace: BrokerNamespace) -> bool:
        return namespace is self.first or self._named.get(namespace.name) is namespace

    def names(self) -> list[str]:
        return [self.first.name, *sorted(self._named)]

    def delete(self, name: str) -> None:
        """Deletes a namespace with its entities. Its clients are detached."""
        namespace = self._named.pop(name, None)
        if namespace is None:
            raise EntityNotFound(f"There is no namespace '{name:.100}' that was created for a key name.")
        for path in [queue.path for queue in namespace.queues()] + [topic.path for topic in namespace.topics()]:
            namespace.delete(path)
