"""Reads the settings file of a worker. `config.example.yaml` shows all settings.

All mistakes in a file are reported at once, each with its line and a remedy. No error and no repr ever shows a secret.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from syphon.model import BadConnectionString, ConnectionString, InvalidSettings
from syphon.yaml_settings import (
    Document,
    Loc,
    Problem,
    Settings,
    SettingsError,
    looks_secret,
    make_renewable,
    read,
    resolve,
    validate,
)

from .pairs import CheckedSide, Name, Pairs, is_proxy_url
from .worker import LogSettings, PipelineSettings, StatusSettings, Telemetry, TelemetrySettings


class Config(Settings):
    """All settings of a worker."""

    pairs: Pairs
    namespaces: dict[Name, CheckedSide] = Field(default_factory=dict)
    """Namespaces beside those of the pairs, by the names that `syphon move` has for them."""
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    status: StatusSettings = Field(default_factory=StatusSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    telemetry: Telemetry = Field(default_factory=TelemetrySettings)

    @property
    def state_file(self) -> Path:
        """The file that remembers which pairs, queues and destinations are paused."""
        if self.status.state is not None:
            return Path(self.status.state)
        ledger = self.pipeline.ledger
        folder = Path() if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", ledger) else Path(ledger).parent
        return folder / "syphon-state.json"


ConfigLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Config
"""A settings file, its content as a dict, or loaded settings."""


def settings_of(config: ConfigLike) -> Config:
    """The settings that a program passes. Raises InvalidSettings with all problems."""
    if isinstance(config, Config):
        return config
    try:
        return config_from(config) if isinstance(config, Mapping) else load_config(Path(config))
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None


def load_config(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Reads a settings file. Raises SettingsError with all problems. File names in it are relative to its folder."""
    return _checked(read(path), path.parent, environ)


def config_from(values: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Config:
    """The settings from values as a file has them. File names in them are relative to the current folder."""
    return _checked(Document("settings", dict(values)), Path(), environ)


def _checked(document: Document, folder: Path, environ: Mapping[str, str] | None) -> Config:
    resolve(document, folder, os.environ if environ is None else environ)
    problems: list[Problem] = []
    try:
        config = validate(document, Config)
    except SettingsError as error:
        problems = error.problems
    reported = {problem.path for problem in problems}
    problems += [problem for problem in _misplaced_secrets(document) if problem.path not in reported]
    if problems:
        raise SettingsError(problems)
    make_renewable(config, document, folder, _may_follow)
    return config


def exposes_keys(path: Path) -> bool:
    """Whether a settings file contains keys and every user of this machine can read it."""
    return bool(path.stat().st_mode & stat.S_IROTH) and any(
        _is_key(place, text) for place, text in _texts(read(path).data, ())
    )


def _is_key(place: Loc, text: str) -> bool:
    if "${" in text or "usedevelopmentemulator=true" in text.lower():  # the key of an emulator protects nothing
        return False
    return looks_secret(text) or (place[-1] in ("password", "token") and bool(text))


def _may_follow(new: str, before: str) -> bool:
    """Whether a reloaded value may replace a secret: another key, but for the same namespace."""
    if is_proxy_url(before):
        return is_proxy_url(new)
    try:
        known = ConnectionString.parse(before)
    except BadConnectionString:
        return bool(new.strip())  # it is a token or a password
    try:
        found = ConnectionString.parse(new)
    except BadConnectionString:
        return False
    return (found.host, found.port, found.emulator) == (known.host, known.port, known.emulator)


def _misplaced_secrets(document: Document) -> Iterator[Problem]:
    """Finds secret keys in settings that are printed, logged and stored."""
    for path, text in _texts(document.data, ()):
        if looks_secret(text) and not {"connection_string", "spark", "password"}.intersection(path):
            remedy = "remove it; a connection string belongs under connection_string"
            yield document.problem(path, "contains a secret key, which does not belong here", remedy)


def _texts(data: Any, path: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(data, str):
        yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from _texts(item, (*path, key))
