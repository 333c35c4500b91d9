"""What the emulator is told to be: its namespaces, their doors and keys, and what is in them from the start.

The same classes serve a test that starts an emulator in its own process and the command line, which fills them from a
YAML file, from Microsoft's `Config.json`, or from `--namespace` options.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, ValidationError, model_validator

from syphon.yaml_settings import Between, Duration, InvalidSetting, Mistake, Settings, read, unique, validate

from .broker.descriptions import Claim, Tier
from .entity_settings import NamespaceName, QueueSettings, TopicSettings, misfits

FIRST_AMQP_PORT = 5672
FIRST_HTTP_PORT = 5300

ROOT_POLICY = "RootManageSharedAccessKey"
ROOT_KEY = "SAS_KEY_VALUE"
"""What Microsoft's emulator has, so that connection strings written for it work here. It protects nothing."""

Port = Annotated[int, Field(ge=0, le=65_535)]
"""A TCP port; 0 takes any that is free."""


class PolicySettings(Settings):
    """A shared access policy: who knows the key may do what the claims say."""

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
    """One namespace, on two ports of its own."""

    name: NamespaceName
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    amqp_port: Port = 0
    http_port: Port = 0
    tier: Tier = Tier.STANDARD
    policies: Annotated[list[PolicySettings], unique("name", "policy"), Field(min_length=1)] = Field(
        default_factory=lambda: [PolicySettings(name=ROOT_POLICY, key=SecretStr(ROOT_KEY))]
    )
    accept_any_jwt: bool = False
    """Take bearer tokens unread: clients that sign in with azure-identity work, and nothing is protected."""
    link_idle_timeout: Annotated[Duration, Between("1s", "never")] = 600_000
    queues: Annotated[list[QueueSettings], unique("name", "queue")] = Field(default_factory=list)
    topics: Annotated[list[TopicSettings], unique("name", "topic")] = Field(default_factory=list)

    @model_validator(mode="after")
    def _entities_fit(self) -> Self:
        if faults := list(misfits(self.queues, self.topics, self.tier)):
            raise InvalidSetting(*faults)
        return self


def _default_namespaces() -> list[NamespaceSettings]:
    return with_default_ports([NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])


class EmulatorSettings(Settings):
    """A whole emulator."""

    namespaces: Annotated[list[NamespaceSettings], unique("name", "namespace"), Field(min_length=1)] = Field(
        default_factory=_default_namespaces
    )
    state: Path | None = None
    """Where acknowledged messages survive a crash; in memory only if there is none."""
    tls: bool = False
    seed: int = 0
    """Faults that happen "a share of times" happen at the same times in every run with the same seed."""

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
    """Read our YAML (docs/emulator.md shows it) or Microsoft's `Config.json`; raises SettingsError with all problems.

    A namespace that names no port gets the one of its place in the file: 5672 and 5300 for the first, and so on.
    """
    # Here and not above: who has no such file should not wait for its models to be made.
    from .microsoft_config import is_microsoft_config, read_microsoft_config

    document = read(path)
    if is_microsoft_config(document):
        found = read_microsoft_config(document)
        namespaces = [NamespaceSettings(name=name, queues=queues, topics=topics) for name, queues, topics in found]
        return EmulatorSettings(namespaces=with_default_ports(namespaces))
    settings = validate(document, EmulatorSettings)
    return settings.model_copy(update={"namespaces": with_default_ports(settings.namespaces)})


def parse_namespace_option(text: str) -> NamespaceSettings:
    """`NAME[:AMQP_PORT[:HTTP_PORT]]`; a port that is not named is left to `with_default_ports`. Raises ValueError."""
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
    """Give each door without a port 5672 or 5300 plus the namespace's place, or the next one nobody named."""
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
