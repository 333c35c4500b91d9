"""The options of the data source: how to reach the namespace, which entities, and how to read and write.

Options are checked with the classes that check a settings file. All mistakes are reported at once, and no error, repr
or log ever shows a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from syphon.backlog import queue_names
from syphon.config import PairSettings, Side, SideSettings, load_config
from syphon.model import EntityPath, SyphonError
from syphon.yaml_settings import Document, Problem, Settings, SettingsError, validate

SOURCE, ENTITY = "servicebus", "entity"
_REACH = ("connection_string", "namespace", "credential", "ca_file", "transport")
_PROXY = {"proxy": "url", "proxy_username": "username", "proxy_password": "password"}
_FROM_FILE = ("config", "pair", "side")
_SECRET = ("connection_string", "proxy_password")
_OF_SPARK = ("checkpointlocation",)
"""Options that Spark passes on, and reads itself."""


class BadSourceOptions(SyphonError):
    """The options of the data source are wrong."""


class BadRows(StrEnum):
    """What a write does with a row that cannot be a message, or that the entity never takes."""

    FAIL = "fail"
    SKIP = "skip"


class Start(StrEnum):
    """Where a stream begins that has no checkpoint."""

    EARLIEST = "earliest"
    """With the existing messages."""
    LATEST = "latest"
    """With the messages that come after its start."""


class Behaviour(Settings):
    """The options that say how to read and write."""

    entity: str = ""
    bodies: bool = False
    first: Annotated[int, Field(ge=1)] = 1
    last: Annotated[int, Field(ge=1)] | None = None
    """The sequence numbers that a read begins and ends with, both included."""
    pushdown: bool = False
    """Whether filters of Spark's are applied here: see `batch_reader`."""
    partition_size: Annotated[int, Field(ge=1)] = 50_000
    """Sequence numbers in one partition of a read, at most."""
    start: Start = Start.EARLIEST
    max_rows: Annotated[int, Field(ge=1)] | None = None
    """Rows of one micro-batch of a stream, shared by its entities. Each that has messages gets at least one."""
    bad_rows: BadRows = BadRows.FAIL
    patience: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for which a write continues while the entity is unavailable."""


class SourceOptions(Settings):
    """All options, checked. It travels inside pickled tasks; its secrets are in none of its texts."""

    side: SideSettings
    entities: tuple[str, ...]
    behaviour: Behaviour

    @property
    def entity(self) -> str:
        """The one entity of a write."""
        if len(self.entities) != 1:
            raise BadSourceOptions(f"{SOURCE}: a write has one entity, not {len(self.entities)}.")
        return self.entities[0]


class _Reach(Settings):
    option: Side


class _Behaves(Settings):
    option: Behaviour


def refuse_written_secrets(names: Iterable[str]) -> None:
    """Raises BadSourceOptions if a query of Spark Connect names a secret: the server has written it down by now."""
    found = [name for name in _SECRET if name in {name.lower() for name in names}]
    if found:
        raise BadSourceOptions(
            f"{SOURCE}: a server of Spark Connect writes the options of a query into its event log, and shows them on "
            f"its pages. Give {' and '.join(found)} to syphon.datasource.register_source(spark, …) instead, and "
            "replace the secret that was in this query."
        )


def parse_options(options: Mapping[str, str], settings: Sequence[PairSettings] = ()) -> SourceOptions:
    """The options of a read or write. Raises BadSourceOptions with all mistakes.

    `settings` are the pairs that the source was registered with: they count unless an option names a namespace.
    """
    given = {key.lower(): value for key, value in options.items() if key.lower() not in _OF_SPARK}
    if misplaced := _misplaced(given):  # other errors would show these values
        raise BadSourceOptions("\n".join(str(problem) for problem in misplaced))
    problems = _unknown(given)
    side: SideSettings | None = None
    entities: tuple[str, ...] = ()
    behaves: _Behaves | None = None
    try:
        behaves = validate(_document({key: given[key] for key in Behaviour.model_fields if key in given}), _Behaves)
        entities = tuple(name for part in behaves.option.entity.split(",") if (name := part.strip().strip("/")))
    except SettingsError as error:
        problems += error.problems
    is_from_file = any(key in given for key in _FROM_FILE) or (bool(settings) and not names_a_namespace(given))
    backlog: tuple[str, ...] = ()
    try:
        side, backlog = _from_file(given, settings) if is_from_file else (_reach(given), ())
    except SettingsError as error:
        problems += error.problems
    entities = entities or backlog
    if not entities and behaves is not None and not (is_from_file and side is None):
        problems.append(_problem("entity", "is missing", "name a queue, topic or subscription"))
    if problems or side is None or behaves is None:
        raise BadSourceOptions("\n".join(str(problem) for problem in problems)) from None
    return SourceOptions(side=side, entities=_once(entities), behaviour=behaves.option)


def names_a_namespace(given: Mapping[str, str]) -> bool:
    return "connection_string" in given or "namespace" in given


def _once(entities: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[EntityPath, str] = {}
    for entity in entities:
        found.setdefault(EntityPath.of(entity), entity)
    return tuple(found.values())


def _reach(given: Mapping[str, str]) -> SideSettings:
    data: dict[str, Any] = {key: given[key] for key in _REACH if key in given}
    proxy = {_PROXY[key]: given[key] for key in _PROXY if key in given}
    if proxy:
        data["proxy"] = proxy
    return validate(_document(data), _Reach).option


def _from_file(given: Mapping[str, str], settings: Sequence[PairSettings]) -> tuple[SideSettings, tuple[str, ...]]:
    """The side that settings describe, and the backlog queues if it is the secondary."""
    beside = [key for key in (*_REACH, *_PROXY) if key in given]
    if beside:
        raise SettingsError([_problem(key, "is given together with config", "keep one of them") for key in beside])
    if "config" in given:
        settings = load_config(Path(given["config"])).pairs
    elif not settings:
        raise SettingsError([_problem("config", "is missing", "name the settings file that has the pair")])
    pair = _pair(settings, given.get("pair"))
    side = given.get("side", "secondary").lower()
    if side == "primary":
        return pair.primary, ()
    if side == "secondary":
        return pair.secondary, tuple(queue_names(pair))
    raise SettingsError([_problem("side", "is unknown", "write primary or secondary")])


def _pair(pairs: Sequence[PairSettings], name: str | None) -> PairSettings:
    names = ", ".join(pair.name for pair in pairs)
    if name is None and len(pairs) > 1:
        raise SettingsError([_problem("pair", "is missing", f"write one of {names}")])
    for pair in pairs:
        if name is None or pair.name.lower() == name.lower():
            return pair
    raise SettingsError([_problem("pair", "is not in the settings", f"write one of {names}")])


def _unknown(given: Mapping[str, str]) -> list[Problem]:
    """Options that do not exist. Their values are not shown: one may be a secret under a misspelt name."""
    known = [*_REACH, *_PROXY, *_FROM_FILE, *Behaviour.model_fields]
    problems = []
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            remedy = f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}"
            problems.append(_problem(key, "is not a known option", remedy))
    return problems


def _misplaced(given: Mapping[str, str]) -> list[Problem]:
    """Connection strings where a name is expected. Errors show names, and a service answers with them."""
    return [
        _problem(key, "is a connection string", "give it as connection_string")
        for key in (ENTITY, "config", "pair", "proxy_username")
        if "sharedaccess" in given.get(key, "").lower()
    ]


def _document(data: dict[str, Any]) -> Document:
    return Document(SOURCE, {"option": data})


def _problem(option: str, text: str, remedy: str) -> Problem:
    return Problem(SOURCE, None, f"option.{option}", None, text, remedy)
