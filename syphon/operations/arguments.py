"""The settings that a Python function was given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from syphon.config import Config, config_from, load_config
from syphon.model import InvalidSettings
from syphon.yaml_settings import SettingsError

ConfigLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Config
"""A settings file, its content as a dict, or loaded settings."""


def settings_of(config: ConfigLike) -> Config:
    """The settings. Raises InvalidSettings with all problems."""
    if isinstance(config, Config):
        return config
    try:
        return config_from(config) if isinstance(config, Mapping) else load_config(Path(config))
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None
