"""The worker's settings: which namespaces form a pair, and how messages are carried home.

`config.example.yaml` shows all of them. Every mistake in a file is told at once, with its line and a remedy, and no
secret is ever shown: not in an error, not in a repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from syphon.yaml_settings import Document, Loc, Problem, Settings, SettingsError, looks_secret, read, resolve, validate

from .pairs import (
    ArmSettings,
    Credential,
    DestinationSettings,
    NamespaceSettings,
    Pairs,
    PairSettings,
    PermanentError,
    ProvisionSettings,
    TimeToLive,
    Via,
)
from .worker import (
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    PipelineSettings,
    StatusSettings,
    Telemetry,
    TelemetrySettings,
)

__all__ = [
    "load_config",
    "Config",
    "PairSettings",
    "NamespaceSettings",
    "Credential",
    "ArmSettings",
    "DestinationSettings",
    "PermanentError",
    "TimeToLive",
    "ProvisionSettings",
    "Via",
    "PipelineSettings",
    "StatusSettings",
    "ListenAddress",
    "LogSettings",
    "LogLevel",
    "LogFormat",
    "TelemetrySettings",
]


class Config(Settings):
    """All settings of a worker."""

    pairs: Pairs
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
