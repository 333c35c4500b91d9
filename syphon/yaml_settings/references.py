"""`${env:NAME}`, `${file:PATH}` and `${credential:NAME}` in a settings file, replaced by what they stand for.

They may stand anywhere in a value, several of them too; `$${` is a plain `${`. A credential is a file that systemd has
put where only its unit can read it (`LoadCredential=`). What comes from outside is often a secret, so a complaint about
such a value shows the reference and never what it stood for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .problems import Loc
from .reading import Document

LARGEST = 1 << 20
"""A file with a setting in it is small; whoever names a larger one, or a device, has named the wrong one."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(env|file|credential):([^}]*)\})?")
_HOW = "write ${env:NAME}, ${file:PATH} or ${credential:NAME}, or $${ for a plain ${"


def resolve(document: Document, folder: Path, environ: Mapping[str, str]) -> None:
    """Replace all references in a document. File names are relative to `folder`. What fails waits in its problems."""
    document.data = _Resolver(document, folder, environ).value(document.data, ())


class _Resolver:
    def __init__(self, document: Document, folder: Path, environ: Mapping[str, str]) -> None:
        self._document = document
        self._folder = folder
        self._environ = environ

    def value(self, value: Any, path: Loc) -> Any:
        if isinstance(value, dict):
            return {key: self.value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return self._text(value, path)
        return value

    def _text(self, text: str, path: Loc) -> str:
        self._document.shown_as[path] = json.dumps(text, ensure_ascii=False)
        return _REFERENCE.sub(lambda found: self._replacement(found, path), text)

    def _replacement(self, found: re.Match[str], path: Loc) -> str:
        kind, name = found.group(1, 2)
        if found[0] == "$${":
            return "${"
        if not name:
            return self._complain(path, "has a reference that is not understood", _HOW)
        if kind == "env":
            if name not in self._environ:
                return self._complain(path, f"names the environment variable {name}, which is not set", "set it")
            return self._environ[name]
        if kind == "credential":
            return self._credential(name, path)
        return self._file(self._folder / name, path)

    def _credential(self, name: str, path: Loc) -> str:
        if not (given := self._environ.get("CREDENTIALS_DIRECTORY")):
            remedy = "start it as a unit with LoadCredential=, or name a ${file:PATH}"
            return self._complain(path, f"names the credential {name}, and systemd has given none", remedy)
        return self._file(Path(given) / name, path)

    def _file(self, place: Path, path: Loc) -> str:
        try:
            with place.open("rb") as file:
                raw = file.read(LARGEST + 1)
            if len(raw) > LARGEST:
                return self._complain(path, f"names the file {place}, which is too large", "name a small one")
            text = raw.decode("utf-8-sig")
        except FileNotFoundError:
            return self._complain(path, f"names the file {place}, which does not exist", "make it, or mend its name")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            return self._complain(path, f"names the file {place}, which cannot be read ({why})", "mend that")
        # Editors and `echo` end a file with a line break that nobody meant.
        return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text

    def _complain(self, path: Loc, text: str, remedy: str) -> str:
        self._document.problems.append(self._document.problem(path, text, remedy))
        self._document.settled.add(path)
        return ""
