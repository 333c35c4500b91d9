"""Validates a document with a pydantic model, and reports pydantic's errors in the terms of the file."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, WrapValidator
from pydantic_core import ErrorDetails

from .problems import InvalidSetting, Loc, Mistake, Problem, SettingsError
from .reader import Document

Model = TypeVar("Model", bound=BaseModel)


class Settings(BaseModel):
    """The base of all settings: unknown keys are mistakes, settings cannot change, and input is never printed."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)


def validate(document: Document, model: type[Model]) -> Model:
    """Makes the model from a document, or raises a SettingsError with all problems."""
    problems = list(document.problems)
    data = {} if document.data is None else document.data
    try:
        settings = model.model_validate(data, context={"from_file": True})
    except ValidationError as error:
        problems += _Reporter(document, model).problems(error)
    if problems:
        # Not chained: pydantic's own text would repeat the problems in other words, and perhaps a secret.
        raise SettingsError(problems) from None
    return settings


def together(check: Callable[[Any], Iterable[Mistake]]) -> WrapValidator:
    """Annotates settings with a check of values that must fit together.

    `check` gets the raw data (or settings made in Python) and must accept any input. So its mistakes are reported
    together with those of the single values, and not only when those have been corrected.
    """

    def run(data: Any, handler: Callable[[Any], Any]) -> Any:
        mistakes = list(check(data))
        try:
            checked = handler(data)
        except ValidationError as error:
            if not mistakes:
                raise
            raise InvalidSetting(*mistakes, beneath=error) from None
        if mistakes:
            raise InvalidSetting(*mistakes)
        return checked

    return WrapValidator(run)


def given(data: Any, key: str) -> Any:
    """A value of raw data or of settings; None for any other input. For the checks of `together`."""
    return data.get(key) if isinstance(data, dict) else getattr(data, key, None) if isinstance(data, Settings) else None


def unique(key: str, what: str) -> WrapValidator:
    """Annotates a list of settings in which no two may have the same `key`, in any case."""
    return together(lambda items: _repeated(items, key, what) if isinstance(items, list) else ())


def _repeated(items: list[Any], key: str, what: str) -> Iterator[Mistake]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = given(item, key)
        if isinstance(name, str) and name.lower() in seen:
            yield Mistake(f"is the name of another {what}", "give each its own", (index, key))
        elif isinstance(name, str):
            seen.add(name.lower())


class _Reporter:
    """Turns pydantic's errors into problems with lines and values. It never shows a secret."""

    def __init__(self, document: Document, model: type[BaseModel]) -> None:
        self._document = document
        self._model = model
        self._secretive, self._secret = _secretive_fields(model)

    def problems(self, error: ValidationError, below: Loc = ()) -> Iterator[Problem]:
        for details in error.errors(include_url=False):
            path = (*below, *details["loc"])
            wrong = details.get("ctx", {}).get("error")
            if isinstance(wrong, InvalidSetting):
                for mistake in wrong.mistakes:
                    if (*path, *mistake.at) not in self._document.settled:
                        yield self._problem((*path, *mistake.at), mistake.text, mistake.remedy)
                if wrong.beneath is not None:
                    yield from self.problems(wrong.beneath, path)
            elif path not in self._document.settled:
                yield self._from_pydantic(path, details)

    def _from_pydantic(self, path: Loc, details: ErrorDetails) -> Problem:
        match details["type"]:
            case "missing":
                return self._document.problem(path, "is missing", "add it")
            case "extra_forbidden":
                # The value is not shown: it may be a secret under a misspelt name.
                return self._document.problem(path, "is not a known key", self._known_keys(path))
            case "string_type":
                return self._problem(path, "is not text", "put quotes around it")
            case "model_type" | "dict_type":
                return self._problem(path, "is not a mapping", "write `key: value` lines below it")
            case "list_type" | "frozen_set_type":
                return self._problem(path, "is not a list", "write a `- ` line for each item below it")
            case "too_short":
                return self._document.problem(path, "is empty", "name at least one")
            case "path_type":
                return self._problem(path, "is not a path", "write one, as in ./state")
            case "bool_type" | "bool_parsing":
                return self._problem(path, "is neither true nor false", "write true or false")
            case "int_type" | "int_parsing" | "int_from_float":
                return self._problem(path, "is not a whole number", "write digits only")
            case "float_type" | "float_parsing" | "finite_number":
                return self._problem(path, "is not a number", "write digits only, as in 500 or 0.5")
            case "enum":
                return self._problem(path, "is unknown", f"write {details['ctx']['expected']}")
            case "greater_than_equal":
                return self._problem(path, "is too small", f"write {details['ctx']['ge']} or more")
            case "greater_than":
                return self._problem(path, "is too small", f"write more than {details['ctx']['gt']:g}")
            case "less_than_equal":
                return self._problem(path, "is too large", f"write {details['ctx']['le']} or less")
            case "string_too_short":
                return self._problem(path, "is too short", f"write {details['ctx']['min_length']} characters or more")
            case "string_too_long":
                return self._problem(path, "is too long", f"write {details['ctx']['max_length']} characters at most")
        return self._problem(path, "is not accepted", details["msg"][:1].lower() + details["msg"][1:])

    def _problem(self, path: Loc, text: str, remedy: str) -> Problem:
        return self._document.problem(path, text, remedy, self._shown(path))

    def _shown(self, path: Loc) -> str | None:
        names = [step for step in path if isinstance(step, str)]
        if names and (names[-1] in self._secretive or not self._secret.isdisjoint(names)):
            return None
        if path in self._document.shown_as:
            return self._document.shown_as[path]
        value = self._document.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        if isinstance(value, dict | list) or (isinstance(value, str) and looks_secret(value)):
            return None
        shown = json.dumps(value, ensure_ascii=False)
        return shown if len(shown) <= 80 else f"{shown[:79]}…"

    def _known_keys(self, path: Loc) -> str:
        model = _model_at(self._model, path[:-1])
        if model is None:
            return "remove it"
        known = [field.alias or name for name, field in model.model_fields.items()]
        close = difflib.get_close_matches(str(path[-1]).lower(), [key.lower() for key in known], 1)
        if close:
            return f"did you mean {next(key for key in known if key.lower() == close[0])}?"
        return f"the keys here are {', '.join(known)}"


def looks_secret(text: str) -> bool:
    """Whether a text contains a secret key, in a place where it does not belong."""
    return _SECRET.search(text) is not None


# A part of a connection string, a token in the address of a server, or a key by itself: 32 bytes in base64.
_SECRET = re.compile(
    r"(?i:shared_?access_?(key|signature)|account_?key|[;/]\s*token)\s*=|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{43}=(?![A-Za-z0-9+/=])"
)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation contains: `list[X] | None` contains X."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _model_at(model: type[BaseModel], path: Loc) -> type[BaseModel] | None:
    """The model that validates the value at a path."""
    here: type[BaseModel] | None = model
    for step in path:
        if here is None or isinstance(step, int):
            continue
        fields = here.model_fields.items()
        annotation = next((field.annotation for name, field in fields if step in (name, field.alias)), None)
        here = next(_models_in(annotation), None)
    return here


def _secretive_fields(model: type[BaseModel]) -> tuple[set[str], set[str]]:
    """The keys at or below which a secret may be, by the model's types; and the keys of secrets themselves."""
    around: set[str] = set()
    secrets: set[str] = set()

    def holds_secret(annotation: Any) -> bool:
        return annotation is SecretStr or any(holds_secret(argument) for argument in get_args(annotation))

    def visit(visited: type[BaseModel]) -> bool:
        found = False
        for name, field in visited.model_fields.items():
            keys = (name, field.alias or name)
            if holds_secret(field.annotation):
                secrets.update(keys)
            below = [visit(inner) for inner in _models_in(field.annotation)]
            if name in secrets or any(below):
                around.update(keys)
                found = True
        return found

    visit(model)
    return around, secrets
