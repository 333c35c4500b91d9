"""The namespaces that an operator names: those of the settings, and connection strings in a variable or a file.

A connection string has no place on a command line, which every user of the machine can read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from syphon.model import BadConnectionString, ConnectionString, InvalidOption, refuse_secret

from .load import Config
from .pairs import SideSettings


def named_namespace(config: Config | None, name: str, environ: Mapping[str, str] = os.environ) -> SideSettings:
    """The namespace of a name of the settings, of `env:VARIABLE` or of `file:PATH`. Raises InvalidOption."""
    refuse_secret(name)
    kind, _, place = name.partition(":")
    if kind == "env" and place:
        if not environ.get(place):
            raise InvalidOption(f"the variable {place} is not set.")
        return _side(environ[place], f"the variable {place}")
    if kind == "file" and place:
        try:
            return _side(Path(place).read_text().strip(), f"the file {place}")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(f"{place} cannot be read: {error}") from None
    known = _known(config)
    found = {each.lower(): side for each, side in known.items()}.get(name.lower())
    if found is None:
        names = ", ".join(known) or "none, because there is no settings file"
        raise InvalidOption(
            f"the settings have no namespace '{name}'. They have: {names}. "
            "env:VARIABLE and file:PATH name one by its connection string."
        )
    return found


def _known(config: Config | None) -> dict[str, SideSettings]:
    """The namespaces that the settings name: their own, and both sides of each pair."""
    if config is None:
        return {}
    of_pairs = {
        f"{pair.name}.{side}": getattr(pair, side) for pair in config.pairs for side in ("primary", "secondary")
    }
    return {**config.namespaces, **of_pairs}


def _side(text: str, place: str) -> SideSettings:
    try:
        ConnectionString.parse(text)
    except BadConnectionString as error:
        flaws = "; ".join(f"{flaw.text}: {flaw.remedy}" for flaw in error.flaws)
        raise InvalidOption(f"the connection string in {place} {flaws}.") from None
    return SideSettings(connection_string=SecretStr(text))
