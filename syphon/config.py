"""The worker's settings: which namespaces form a pair, and how messages are carried home.

`config.example.yaml` shows all of them. Every mistake in a file is told at once, with its line and a remedy, and no
secret is ever shown: not in an error, not in a repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, SecretStr

from syphon.connection_string import BadConnectionString, ConnectionString, is_host
from syphon.errors import DestinationDisabled, DestinationMissing, MessageTooLarge, NotAllowedByEntity, SyphonError
from syphon.yaml_settings import (
    Between,
    Document,
    Duration,
    Fault,
    Loc,
    Problem,
    Settings,
    SettingsError,
    Wrong,
    looks_secret,
    read,
    resolve,
    together,
    unique,
    validate,
)

# --- the parts of a pair ---------------------------------------------------------------------------------------------


def _name(text: str) -> str:
    # It becomes a part of a queue's name, a label in metrics and a folder of the ledger.
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?", text):
        raise Wrong(Fault("is no name", "write up to 50 letters, digits and hyphens between them"))
    return text


def _connection_string(secret: SecretStr) -> SecretStr:
    try:
        ConnectionString.parse(secret.get_secret_value())
    except BadConnectionString as error:
        raise Wrong(*(Fault(flaw.text, flaw.remedy) for flaw in error.flaws)) from None
    return secret


def _host(text: str) -> str:
    if looks_secret(text) or "endpoint=" in text.lower():
        raise Wrong(Fault("is a connection string", "write it under connection_string"))
    if not is_host(text):
        raise Wrong(Fault("is not the host name of a namespace", _FULL_NAME))
    if "." not in text and ":" not in text and text.lower() != "localhost":
        raise Wrong(Fault("is not a full host name", _FULL_NAME))
    return text.lower().rstrip(".")


_FULL_NAME = "write it whole and alone, as in contoso.servicebus.windows.net"

Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, Field(min_length=1)]


class Credential(StrEnum):
    """Who we are, by azure-identity."""

    DEFAULT = "default"
    MANAGED_IDENTITY = "managed_identity"
    WORKLOAD_IDENTITY = "workload_identity"
    ENVIRONMENT = "environment"
    CLI = "cli"


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/?", text):
        raise Wrong(Fault("is not the address of a Resource Manager", "write it as in https://management.azure.com"))
    return text


class ArmSettings(Settings):
    """Where a namespace is found as a resource of Azure (P6)."""

    subscription_id: Text
    resource_group: Text
    credential: Credential = Credential.DEFAULT
    endpoint: Annotated[str, AfterValidator(_url)] | None = None
    """Of another cloud than the public one, or of an emulator."""


class NamespaceSettings(Settings):
    """One side of a pair: a connection string, or a host name and a credential."""

    connection_string: Annotated[SecretStr, AfterValidator(_connection_string)] | None = None
    namespace: Annotated[str, AfterValidator(_host)] | None = None
    credential: Credential | None = None
    """`default` where a namespace is given and nothing else is said."""
    name: Name | None = None
    """What stands for it in the names of backlog queues and in Resource Manager, if not the first label of its host."""
    arm: ArmSettings | None = None

    @property
    def host(self) -> str:
        """The host name, with the port where one is given."""
        if self.connection_string is None:
            return self.namespace or ""
        parsed = ConnectionString.parse(self.connection_string.get_secret_value())
        host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
        return host if parsed.port is None else f"{host}:{parsed.port}"


def _one_way_in(side: Any) -> Iterator[Fault]:
    string, namespace, credential = (_raw(side, key) for key in ("connection_string", "namespace", "credential"))
    if not isinstance(side, dict | NamespaceSettings):
        return
    if string is None and namespace is None:
        yield Fault("has neither connection_string nor namespace", "add one of them")
    if string is not None and namespace is not None:
        yield Fault("stands beside a connection_string", "keep one of them", ("namespace",))
    elif string is not None and credential is not None:
        yield Fault("stands beside a connection_string, which has a key of its own", "remove it", ("credential",))


Side = Annotated[NamespaceSettings, together(_one_way_in)]


class PermanentError(StrEnum):
    """What a destination can say that may mean "never" for a message (S4)."""

    ENTITY_NOT_FOUND = "entity-not-found"
    ENTITY_DISABLED = "entity-disabled"
    MESSAGE_TOO_LARGE = "message-too-large"
    NOT_ALLOWED = "not-allowed"

    @property
    def error(self) -> type[SyphonError]:
        return _ERRORS[self]


_ERRORS: dict[PermanentError, type[SyphonError]] = {
    PermanentError.ENTITY_NOT_FOUND: DestinationMissing,
    PermanentError.ENTITY_DISABLED: DestinationDisabled,
    PermanentError.MESSAGE_TOO_LARGE: MessageTooLarge,
    PermanentError.NOT_ALLOWED: NotAllowedByEntity,
}


class DestinationSettings(Settings):
    """Where messages may go (D13), and what counts as a refusal for good (S4)."""

    allow: Annotated[list[Text], Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Patterns: `*` is any text, slashes included, and capitals make no difference, as in Service Bus."""
    permanent_errors: frozenset[PermanentError] = frozenset(PermanentError)
    """A message that gets one of these goes to the dead letters; with any other it stays and is tried again."""

    def allows(self, path: str) -> bool:
        return any(fnmatchcase(path.lower(), pattern.lower()) for pattern in self.allow)

    def permanent(self) -> frozenset[type[SyphonError]]:
        return frozenset(kind.error for kind in self.permanent_errors)


class Via(StrEnum):
    """How backlog queues are looked at and made (P6)."""

    ADMIN = "admin"
    ARM = "arm"


class ProvisionSettings(Settings):
    via: Via = Via.ADMIN


class TimeToLive(StrEnum):
    """What becomes of a message's time to live (M5)."""

    RESTORE = "restore"
    REMAINING = "remaining"


class PairSettings(Settings):
    """A primary, and the secondary its backlog queues are in."""

    name: Name
    primary: Side
    secondary: Side
    backlog_queue_count: Annotated[int, Field(ge=1, le=10_000)] = 10
    destinations: DestinationSettings = Field(default_factory=DestinationSettings)
    time_to_live: TimeToLive = TimeToLive.RESTORE
    rate: Annotated[float, Field(gt=0)] | None = None
    """Messages a second that may be taken from all backlog queues together."""
    provision: ProvisionSettings = Field(default_factory=ProvisionSettings)


def _two_sides(pair: Any) -> Iterator[Fault]:
    primary, secondary = _address(_raw(pair, "primary")), _address(_raw(pair, "secondary"))
    if primary is not None and primary == secondary:
        yield Fault("is the same namespace as primary", "name one that is up when the primary is not", ("secondary",))
    if _raw(_raw(pair, "provision"), "via") == Via.ARM and _raw(_raw(pair, "secondary"), "arm") is None:
        remedy = "add arm with subscription_id and resource_group there"
        yield Fault("needs to know where to find the secondary", remedy, ("provision", "via"))


def _address(side: Any) -> tuple[str, int | None] | None:
    """Which namespace a side is, as far as it can be told from raw data. Only emulators share a host."""
    string, namespace = _raw(side, "connection_string"), _raw(side, "namespace")
    text = string.get_secret_value() if isinstance(string, SecretStr) else string
    if isinstance(text, str):
        try:
            parsed = ConnectionString.parse(text)
        except BadConnectionString:
            return None
        return parsed.host.rstrip("."), parsed.port if parsed.emulator else None
    return (namespace.lower().rstrip("."), None) if isinstance(namespace, str) and namespace else None


def _raw(data: Any, key: str) -> Any:
    """A value out of raw data or out of settings; None out of anything else."""
    return data.get(key) if isinstance(data, dict) else getattr(data, key, None) if isinstance(data, Settings) else None


# --- the worker ------------------------------------------------------------------------------------------------------


def _written(value: Any) -> Any:
    """Spark takes text for everything, and people write 4 and true without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _spark_keys(settings: Any) -> Iterator[Fault]:
    for key in settings if isinstance(settings, dict) else ():
        if not str(key).startswith("spark."):
            yield Fault("is no setting of Spark", "its names begin with spark.", (key,))


class PipelineSettings(Settings):
    """How the transfer runs on Spark, and where its ledger is."""

    master: Text = "local[*]"
    ledger: Text = "./ledger"
    """Any path or URL that Spark can write to."""
    long_poll: Annotated[Duration, Between("1s", "1d")] = 900_000
    lease: Annotated[Duration, Between("5s", "1h")] = 60_000
    spark: Annotated[dict[str, Annotated[SecretStr, BeforeValidator(_written)]], together(_spark_keys)] = Field(
        default_factory=dict
    )
    """Secrets, because the key of the ledger's storage account may be among them."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _listen(value: Any) -> Address:
    if isinstance(value, Address):
        return value
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not is_host(found[1] or found[2]) or int(found[3]) > 65_535:
        raise Wrong(Fault("is no address to listen on", "write HOST:PORT, as in 127.0.0.1:8080; 0 is any free port"))
    return Address(found[1] or found[2], int(found[3]))


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\s\[\]]+)):([0-9]{1,5})")


class StatusSettings(Settings):
    """The status server."""

    listen: Annotated[Address, PlainValidator(_listen), PlainSerializer(str)] = Address("127.0.0.1", 8080)
    token: SecretStr | None = None
    """What a caller shows to see more than health. Without one, an address that others reach answers health alone."""
    state: Text | None = None
    """The file that remembers what is paused. If not said: syphon-state.json, beside a local ledger or right here."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class LogSettings(Settings):
    """What the worker says of itself, on stderr."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.CONSOLE


def _collector(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", text):
        raise Wrong(Fault("is not the address of a collector", "write it as in http://collector.example:4318"))
    return text


class TelemetrySettings(Settings):
    """Where metrics go beside /metrics, and where traces go."""

    otlp_endpoint: Annotated[str, AfterValidator(_collector)] | None = None
    """A collector that takes OTLP over HTTP: a host, or the whole address for metrics."""
    traces: bool = False
    """Whether batches are traced whose messages have a sender that records traces."""


def _traces_go_somewhere(telemetry: Any) -> Iterator[Fault]:
    endpoint = _raw(telemetry, "otlp_endpoint")
    if not _raw(telemetry, "traces"):
        return
    if endpoint is None:
        yield Fault("have nowhere to go", "add otlp_endpoint, or leave them off", ("traces",))
    elif isinstance(endpoint, str) and not re.search(r"^https?://[^/]+/?$|/v1/metrics/?$", endpoint):
        remedy = "name the collector's host alone, or an address that ends in /v1/metrics"
        yield Fault("does not tell where traces go", remedy, ("otlp_endpoint",))


Telemetry = Annotated[TelemetrySettings, together(_traces_go_somewhere)]
Pair = Annotated[PairSettings, together(_two_sides)]


class Config(Settings):
    """All settings of a worker."""

    pairs: Annotated[list[Pair], unique("name", "pair"), Field(min_length=1)]
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    status: StatusSettings = Field(default_factory=StatusSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    telemetry: Telemetry = Field(default_factory=TelemetrySettings)

    @property
    def state_file(self) -> Path:
        """Where it is remembered what is paused."""
        if self.status.state is not None:
            return Path(self.status.state)
        ledger = self.pipeline.ledger
        folder = Path() if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", ledger) else Path(ledger).parent
        return folder / "syphon-state.json"


def load_config(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Read a settings file. Raises SettingsError with all problems; files it names are relative to its own folder."""
    document = read(path)
    resolve(document, path.parent, os.environ if environ is None else environ)
    problems: list[Problem] = []
    try:
        config = validate(document, Config)
    except SettingsError as error:
        problems = error.problems
    told = {problem.path for problem in problems}
    problems += [problem for problem in _misplaced_secrets(document) if problem.path not in told]
    if problems:
        raise SettingsError(problems)
    return config


def _misplaced_secrets(document: Document) -> Iterator[Problem]:
    """A key under a name where it would be printed, logged and stored."""
    for path, text in _texts(document.data, ()):
        if looks_secret(text) and "connection_string" not in path and "spark" not in path:
            remedy = "take it out; a connection string belongs under connection_string"
            yield document.problem(path, "holds a key, and is no place for one", remedy)


def _texts(data: Any, path: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(data, str):
        yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from _texts(item, (*path, key))
