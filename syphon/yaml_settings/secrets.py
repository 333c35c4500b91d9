"""Secrets that change while a process runs: each use of one reloads the files that its setting names.

Keys are rotated. A worker that has read its key once, at its start, would have to be restarted for each rotation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from .problems import Loc
from .reader import Document, resolve
from .validator import Settings

CHANGES = re.compile(r"(?<!\$)\$\{(?:file|credential):")
"""A reference to something that may change. An environment does not."""

Accepts = Callable[[str, str], bool]
"""Whether a new value may take the place of the one before."""


def is_there(new: str, before: str) -> bool:  # noqa: ARG001
    return bool(new)


class RenewableSecret(SecretStr):
    """A secret that is as its files are now. While they cannot be read, it is as they were."""

    def __init__(self, value: str, text: str, folder: Path, accepts: Accepts = is_there) -> None:
        """`text` is the setting with its references. A file that is being written may have no valid value."""
        super().__init__(value)
        self._text, self._folder, self._accepts = text, folder.absolute(), accepts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and self.get_secret_value() == other.get_secret_value()

    __hash__ = SecretStr.__hash__

    def get_secret_value(self) -> str:
        document = Document("", data=self._text)
        resolve(document, self._folder, os.environ)
        if (
            not document.problems
            and document.data != self._secret_value
            and self._accepts(document.data, self._secret_value)
        ):
            self._secret_value = document.data
        return self._secret_value

    def __getstate__(self) -> object:
        """A task gets the value as it is now: its machine may not have the files."""
        self.get_secret_value()
        return super().__getstate__()


def make_renewable(settings: Any, document: Document, folder: Path, accepts: Accepts = is_there) -> None:
    """Replaces the secrets of settings that name files. Secrets in dictionaries are used once, and stay."""
    for path, shown in document.shown_as.items():
        text = json.loads(shown)
        holder, key = _holder(settings, path)
        if not isinstance(holder, Settings) or not CHANGES.search(text):
            continue
        if isinstance(secret := vars(holder)[key], SecretStr):
            vars(holder)[key] = RenewableSecret(secret.get_secret_value(), text, folder, accepts)


def _holder(settings: Any, path: Loc) -> tuple[Any, str]:
    """The settings that a path leads into, and the name of the value there."""
    for step in path[:-1]:
        settings = getattr(settings, str(step)) if isinstance(settings, Settings) else settings[step]
    return settings, str(path[-1])
