"""The settings of the worker itself: Spark, ledger, status server, log and telemetry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, SecretStr, WithJsonSchema

from syphon.model import is_host
from syphon.yaml_settings import Between, Duration, InvalidSetting, Mistake, Settings, given, together

Text = Annotated[str, Field(min_length=1)]


def _written(value: Any) -> Any:
    """Text for Spark, which accepts text only, while people write 4 and true without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _spark_keys(settings: Any) -> Iterator[Mistake]:
    for key in settings if isinstance(settings, dict) else ():
        if not str(key).startswith("spark."):
            yield Mistake("is not a setting of Spark", "their names begin with spark.", (key,))


SparkValue = Annotated[
    SecretStr,
    BeforeValidator(_written),
    WithJsonSchema({"type": ["string", "number", "boolean"], "writeOnly": True}),
]


def _master(text: str) -> str:
    """A master is printed and logged, so the token of a Spark Connect server has no place in it."""
    if re.match(r"sc://.*[;/]\s*token\s*=", text, re.IGNORECASE):
        raise InvalidSetting(
            Mistake("contains a token", "remove it, and write spark.connect.authenticate.token under spark")
        )
    return text


class SlotReports(StrEnum):
    """How slots report to the driver."""

    LIVE = "live"
    """About once per second, to a port of the driver. Its answers are orders."""
    AT_END = "at_end"
    """With the result of their task, for a network that lets executors reach no port of the driver."""


class PipelineSettings(Settings):
    """How the transfer runs on Spark, and where its ledger is."""

    master: Annotated[Text, AfterValidator(_master)] = "local[*]"
    ledger: Text = "./ledger"
    """Any path or URL that Spark can write to."""
    long_poll: Annotated[Duration, Between("1s", "1d")] = 900_000
    lease: Annotated[Duration, Between("5s", "1h")] = 60_000
    slot_reports: SlotReports = SlotReports.LIVE
    idle_shutdown: Annotated[Duration, Between("0s", "30d")] = 900_000
    """The time without a job after which a worker stops Spark. 0s: never, and Spark starts with the worker."""
    spark: Annotated[dict[str, SparkValue], together(_spark_keys)] = Field(default_factory=dict)
    """Secrets, because the key of the ledger's storage account may be among them."""


class ListenAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _listen(value: Any) -> ListenAddress:
    if isinstance(value, ListenAddress):
        return value
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not is_host(found[1] or found[2]) or int(found[3]) > 65_535:
        raise InvalidSetting(
            Mistake("is not an address to listen on", "write HOST:PORT, as in 127.0.0.1:8080; 0 is any free port")
        )
    return ListenAddress(found[1] or found[2], int(found[3]))


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\s\[\]]+)):([0-9]{1,5})")


def _token(secret: SecretStr) -> SecretStr:
    if not secret.get_secret_value().strip():  # the server would take it for no token, and be open
        raise InvalidSetting(Mistake("is empty", "write a token, or remove the setting"))
    return secret


class StatusSettings(Settings):
    """The status server."""

    listen: Annotated[
        ListenAddress, PlainValidator(_listen), PlainSerializer(str), WithJsonSchema({"type": "string"})
    ] = ListenAddress("127.0.0.1", 8080)
    token: Annotated[SecretStr, AfterValidator(_token)] | None = None
    """The token that a caller must send to see more than health. Without one, a server that other machines can reach
    answers health requests only."""
    state: Text | None = None
    """The file that remembers what is paused. Default: syphon-state.json beside a local ledger, or in this folder."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class LogSettings(Settings):
    """The worker's log, on stderr."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.CONSOLE


def _collector(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", text):
        raise InvalidSetting(
            Mistake("is not the address of a collector", "write it as in http://collector.example:4318")
        )
    return text


class TelemetrySettings(Settings):
    """Where metrics are sent in addition to /metrics, and where traces are sent."""

    otlp_endpoint: Annotated[str, AfterValidator(_collector)] | None = None
    """A collector that accepts OTLP over HTTP: a host, or the whole address for metrics."""
    traces: bool = False
    """Whether to trace batches that contain messages whose sender records traces."""


def _check_traces(telemetry: Any) -> Iterator[Mistake]:
    endpoint = given(telemetry, "otlp_endpoint")
    if not given(telemetry, "traces"):
        return
    if endpoint is None:
        yield Mistake("needs a collector", "add otlp_endpoint, or write false", ("traces",))
    elif isinstance(endpoint, str) and not re.search(r"^https?://[^/]+/?$|/v1/metrics/?$", endpoint):
        remedy = "name the collector's host alone, or an address that ends in /v1/metrics"
        yield Mistake("does not show where to send traces", remedy, ("otlp_endpoint",))


Telemetry = Annotated[TelemetrySettings, together(_check_traces)]
