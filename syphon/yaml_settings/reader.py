"""Reads a YAML or JSON file as plain data that remembers its lines, and replaces the references in it.

A reference is `${env:NAME}`, `${file:PATH}` or `${credential:NAME}`. A value may contain several; `$${` is a plain
`${`. A credential is a file that systemd has put where only its unit can read it (`LoadCredential=`). Values from
outside are often secrets, so a problem with such a value shows the reference and never its content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .problems import Loc, Problem, SettingsError, written

LARGEST = 1 << 20
"""Bytes of a file, and values of a document. Settings are small: a larger file, or a device, is the wrong one."""


@dataclass
class Document:
    """A file's data, the line of each path in it, and the problems with its form."""

    file: str
    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    shown_as: dict[Loc, str] = field(default_factory=dict)
    """The text in the file, where a reference was replaced. It is shown in place of the data, which may be a secret."""
    settled: set[Loc] = field(default_factory=set)
    """Paths that have a problem already. The model need not check their placeholders."""

    def line_of(self, path: Loc) -> int | None:
        """The line of a path, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(self, path: Loc, text: str, remedy: str, value: str | None = None) -> Problem:
        return Problem(self.file, self.line_of(path), written(path), value, text, remedy)


def read(path: Path) -> Document:
    """Reads a settings file: JSON (comments are allowed) if its name ends in .json, YAML otherwise."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            problem = Problem(str(path), None, "", None, "is larger than 1 MB", "name a file of settings")
            raise SettingsError([problem])
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError([Problem(str(path), None, "", None, "does not exist", "check its name")]) from None
    except OSError as error:
        text = f"cannot be read ({error.strerror})"
        raise SettingsError([Problem(str(path), None, "", None, text, "name a file that you may read")]) from None
    except UnicodeDecodeError:
        raise SettingsError([Problem(str(path), None, "", None, "is not text in UTF-8", "save it as UTF-8")]) from None
    return parse(without_comments(text) if path.suffix.lower() == ".json" else text, str(path))


def parse(text: str, file: str) -> Document:
    """Reads YAML text. Raises if it is not YAML at all; smaller mistakes are collected in `problems`."""
    document = Document(file)
    try:
        node = yaml.compose(text, _Loader)
        if node is not None:
            _Builder(document).build(node, ())
    except yaml.MarkedYAMLError as error:
        raise SettingsError([_not_yaml(error, text, file)]) from None
    except yaml.YAMLError:
        remedy = "remove the control characters"
        raise SettingsError(
            [Problem(file, None, "", None, "has characters that YAML does not allow", remedy)]
        ) from None
    except RecursionError:
        raise SettingsError([Problem(file, None, "", None, "is nested too deeply", "write it flatter")]) from None
    return document


def _not_yaml(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    mark = error.problem_mark
    line = mark.line + 1 if mark else None
    what, remedy = (
        error.problem or error.context,
        "correct the line, or put quotes around values with special characters",
    )
    written_there = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if isinstance(error, yaml.composer.ComposerError):
        # PyYAML quotes the name of an unknown alias, which may be a secret key that starts with *.
        what = "it names an alias (*) that is not defined"
    elif "'\\t'" in str(what):
        what, remedy = "there is a tab where a value or key must be", "write spaces instead of tabs"
    elif "${" in written_there:
        remedy = 'inside {…} put quotes around a reference: "${env:NAME}"'
    elif mark and error.context_mark and error.context_mark.line < mark.line:
        what = f"{what}, in the value that begins on line {error.context_mark.line + 1}"
    return Problem(file, line, "", None, f"is not YAML: {what}", remedy)


def without_comments(text: str) -> str:
    """Blanks out the comments and tabs of JSON, so that YAML accepts it and every line keeps its number."""
    out: list[str] = []
    position, in_string = 0, False
    while position < len(text):
        char, length = text[position], 1
        if in_string:
            length = 2 if char == "\\" else 1
            out.append(text[position : position + length])
            in_string = char != '"'
        elif text.startswith("//", position):
            length = _until(text, "\n", position)
        elif text.startswith("/*", position):
            length = _until(text, "*/", position + 2) + 4
            out.append("\n" * text.count("\n", position, position + length))
        else:
            out.append(" " if char == "\t" else char)
            in_string = char == '"'
        position += length
    return "".join(out)


def _until(text: str, what: str, start: int) -> int:
    end = text.find(what, start)
    return (end if end >= 0 else len(text)) - start


class _Loader(yaml.SafeLoader):
    """Reads plain values as YAML 1.2 and JSON do: a queue called `no` is not False, and 12:30 is not 750."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's way to drop the old ones


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


class _Builder:
    """Turns YAML nodes, which know their lines, into data and a table of lines."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._ancestors: set[int] = set()
        self._values = 0

    def build(self, node: yaml.Node, path: Loc) -> None:
        self._document.data = self._value(node, path)

    def _value(self, node: yaml.Node, path: Loc) -> Any:
        self._values += 1
        if self._values > LARGEST:
            text = "has more than a million values when its aliases (*) are expanded"
            raise SettingsError([Problem(self._document.file, None, "", None, text, "remove the aliases")])
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._ancestors:
            self._add_problem(path, "contains itself", "remove the alias (*)")
            return None
        self._ancestors.add(id(node))
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._ancestors.discard(id(node))
        return value

    def _scalar(self, node: yaml.ScalarNode, path: Loc) -> Any:
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "str":
                # JSON writes characters beyond U+FFFF as two escapes; they are one again here.
                return node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            case "int":
                return int(node.value) if len(node.value) < 100 else float("inf")
            case "float":
                return float(node.value)
            case "bool":
                return node.value.lower() == "true"
            case "null":
                return None
        # The problem does not show the tag: a secret key that starts with ! and has no quotes looks like one.
        self._add_problem(path, "starts with a YAML tag (!)", "put quotes around the value")
        return None

    def _sequence(self, node: yaml.Node, path: Loc) -> list[Any]:
        return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: Loc) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem(path, "has a key that is not a plain word", "write `key: value`")
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in seen:
                remedy = f"keep one of them (the other is on line {seen[key]})"
                file = self._document.file
                self._document.problems.append(Problem(file, line, written((*path, key)), None, "occurs twice", remedy))
                continue
            seen[key] = line
            self._document.lines[(*path, key)] = line
            value = self._value(value_node, (*path, key))
            if value is not None:  # a key without a value counts as not given
                mapping[key] = value
        return mapping

    def _add_problem(self, path: Loc, text: str, remedy: str) -> None:
        self._document.problems.append(self._document.problem(path, text, remedy))


# --- references -------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(env|file|credential):([^}]*)\})?")
_HOW = "write ${env:NAME}, ${file:PATH} or ${credential:NAME}, or $${ for a plain ${"


def resolve(document: Document, folder: Path, environ: Mapping[str, str]) -> None:
    """Replaces all references in a document. File names are relative to `folder`. Failures become problems of it."""
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
            return self._add_problem(path, "has a reference of an unknown form", _HOW)
        if kind == "env":
            if name not in self._environ:
                return self._add_problem(path, f"names the environment variable {name}, which is not set", "set it")
            return self._environ[name]
        if kind == "credential":
            return self._credential(name, path)
        return self._file(self._folder / name, path)

    def _credential(self, name: str, path: Loc) -> str:
        if not (given := self._environ.get("CREDENTIALS_DIRECTORY")):
            remedy = "start it as a unit with LoadCredential=, or use ${file:PATH}"
            return self._add_problem(path, f"names the credential {name}, but systemd passes none", remedy)
        return self._file(Path(given) / name, path)

    def _file(self, place: Path, path: Loc) -> str:
        try:
            with place.open("rb") as file:
                raw = file.read(LARGEST + 1)
            if len(raw) > LARGEST:
                return self._add_problem(path, f"names the file {place}, which is too large", "name a small one")
            text = raw.decode("utf-8-sig")
        except FileNotFoundError:
            return self._add_problem(
                path, f"names the file {place}, which does not exist", "make it, or correct its name"
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            return self._add_problem(path, f"names the file {place}, which cannot be read ({why})", "correct that")
        # Editors and `echo` end a file with a line break that is not part of the value.
        return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text

    def _add_problem(self, path: Loc, text: str, remedy: str) -> str:
        self._document.problems.append(self._document.problem(path, text, remedy))
        self._document.settled.add(path)
        return ""
