"""The settings of the emulator: its namespaces, their ports and keys, and the entities they start with.

A test that starts an emulator in its own process uses the same classes as the command line, which fills them from a
YAML file, from Microsoft's `Config.json`, or from `--namespace` options.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, ValidationError, model_validator

from syphon.yaml_settings import Between, Duration, InvalidSetting, Mistake, Settings, read, unique, validate

from .broker import Claim, Tier
from .entity_settings import AutoCreateSettings, NamespaceName, QueueSettings, TopicSettings, namespace_faults

FIRST_AMQP_PORT = 5672
FIRST_HTTP_PORT = 5300

ROOT_POLICY = "RootManageSharedAccessKey"
ROOT_KEY = "SAS_KEY_VALUE"
"""The key of Microsoft's emulator, so that connection strings for it work here. It protects nothing."""

Port = Annotated[int, Field(ge=0, le=65_535)]
"""A TCP port. 0 is any free port."""


class PolicySettings(Settings):
    """A shared access policy: a key and its claims."""

    name: Annotated[str, Field(min_length=1)]
    key: Annotated[SecretStr, Field(min_length=1)]
    claims: frozenset[Claim] = frozenset(Claim)

    @model_validator(mode="after")
    def _manage_includes_the_others(self) -> Self:
        if Claim.MANAGE in self.claims and self.claims != frozenset(Claim):
            raise InvalidSetting(
                Mistake("has Manage alone", "add Send and Listen, as Service Bus demands", ("claims",))
            )
        return self


class NamespaceSettings(Settings):
    """One namespace with its own two ports."""

    name: NamespaceName
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    amqp_port: Port = 0
    http_port: Port = 0
    tier: Tier = Tier.STANDARD
    policies: Annotated[list[PolicySettings], unique("name", "policy"), Field(min_length=1)] = Field(
        default_factory=lambda: [PolicySettings(name=ROOT_POLICY, key=SecretStr(ROOT_KEY))]
    )
    accept_any_jwt: bool = False
    """Accept any bearer token: clients that sign in with azure-identity work, and nothing is protected."""
    namespace_per_key: bool = False
    """Serve a namespace of its own, like this one, for each key name that is no policy, and host NAME.localhost."""
    auto_create: AutoCreateSettings | None = None
    link_idle_timeout: Annotated[Duration, Between("1s", "never")] = 600_000
    queues: Annotated[list[QueueSettings], unique("name", "queue")] = Field(default_factory=list)
    topics: Annotated[list[TopicSettings], unique("name", "topic")] = Field(default_factory=list)

    @property
    def listens_everywhere(self) -> bool:
        """Whether it listens on all addresses of its machine, as in a container: clients have their names for it."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104  compared, not bound

    @property
    def reachable_as(self) -> str:
        """The host to name in connection strings and texts."""
        return "localhost" if self.listens_everywhere else self.host

    @model_validator(mode="after")
    def _entities_fit(self) -> Self:
        if faults := list(namespace_faults(self.queues, self.topics, self.tier)):
            raise InvalidSetting(*faults)
        return self


def _default_namespaces() -> list[NamespaceSettings]:
    return with_default_ports([NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])


class EmulatorSettings(Settings):
    """The settings of the whole emulator."""

    namespaces: Annotated[list[NamespaceSettings], unique("name", "namespace"), Field(min_length=1)] = Field(
        default_factory=_default_namespaces
    )
    state: Path | None = None
    """The directory in which acknowledged messages survive a crash. Without it they are in memory only."""
    tls: bool = False
    page_changes: bool = False
    """Whether the page of a namespace can clear faults and move the clock. Without it, it only shows things."""
    seed: int = 0
    """Faults with a `share` happen at the same operations in every run with the same seed."""

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        faults: list[Mistake] = []
        taken: dict[tuple[str, int], str] = {}
        for index, namespace in enumerate(self.namespaces):
            for key in ("amqp_port", "http_port"):
                port: int = getattr(namespace, key)
                owner = taken.setdefault((namespace.host, port), f"{namespace.name} ({key})")
                if port and owner != f"{namespace.name} ({key})":
                    faults.append(Mistake(f"is the port of {owner}", "choose another", ("namespaces", index, key)))
        if faults:
            raise InvalidSetting(*faults)
        return self


def default_settings() -> EmulatorSettings:
    """A primary and a secondary: contoso on 5672 and 5300, contoso-dr on 5673 and 5301."""
    return EmulatorSettings()


def load_settings(path: Path) -> EmulatorSettings:
    """Reads our YAML (see docs/emulator.md) or Microsoft's `Config.json`. Raises SettingsError with all problems.

    A namespace without ports gets those of its place in the file: 5672 and 5300 for the first, and so on.
    """
    # Imported here: a start without such a file must not wait until its models are built.
    from .microsoft_config import is_microsoft_config, read_microsoft_config

    document = read(path)
    if is_microsoft_config(document):
        found = read_microsoft_config(document)
        namespaces = [NamespaceSettings(name=name, queues=queues, topics=topics) for name, queues, topics in found]
        return EmulatorSettings(namespaces=with_default_ports(namespaces))
    settings = validate(document, EmulatorSettings)
    return settings.model_copy(update={"namespaces": with_default_ports(settings.namespaces)})


def parse_namespace_option(text: str) -> NamespaceSettings:
    """Parses `NAME[:AMQP_PORT[:HTTP_PORT]]`. `with_default_ports` fills missing ports. Raises ValueError."""
    name, *ports = text.split(":")
    if len(ports) > 2:
        raise ValueError(f"{text!r} has more than two ports: write NAME:AMQP_PORT:HTTP_PORT, as in contoso:5672:5300")
    for port in ports:
        if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise ValueError(f"{port!r} in {text!r} is not a port: write 1 to 65535, or 0 for any free one")
    try:
        return NamespaceSettings.model_validate({"name": name, **dict(zip(_PORTS, ports, strict=False))})
    except ValidationError:
        raise ValueError(
            f"{name!r} is not a name for a namespace: write up to 50 letters, digits and hyphens, as in contoso-dr"
        ) from None


_PORTS = ("amqp_port", "http_port")


def with_default_ports(namespaces: Iterable[NamespaceSettings]) -> list[NamespaceSettings]:
    """Fills each missing port: 5672 or 5300 plus the place of the namespace, or the next port that no setting names."""
    namespaces = list(namespaces)
    taken = {getattr(namespace, key) for namespace in namespaces for key in _PORTS if key in namespace.model_fields_set}
    complete = []
    for place, namespace in enumerate(namespaces):
        chosen = {}
        for key, first in zip(_PORTS, (FIRST_AMQP_PORT, FIRST_HTTP_PORT), strict=True):
            if key not in namespace.model_fields_set:
                port = first + place
                while port in taken:
                    port += 1
                taken.add(port)
                chosen[key] = port
        complete.append(namespace.model_copy(update=chosen))
    return complete
