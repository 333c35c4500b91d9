"""The options of the data source: how to reach the namespace, which entities, and how to read and write.

Options are checked with the classes that check a settings file. All mistakes are reported at once, and no error, repr
or log ever shows a secret.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from syphon.backlog import queue_names
from syphon.config import CheckedSide, PairSettings, SideSettings, load_config
from syphon.model import EntityPath, InvalidOption, SyphonError
from syphon.option_declarations import read_moment
from syphon.yaml_settings import Document, InvalidSetting, Mistake, Problem, Settings, SettingsError, validate

SOURCE, ENTITY = "servicebus", "entity"
_REACH = ("connection_string", "namespace", "credential", "ca_file", "transport")
_PROXY = {"proxy": "url", "proxy_username": "username", "proxy_password": "password"}
_FROM_FILE = ("config", "pair", "side")
_SECRET = ("connection_string", "proxy_password")
_OF_SPARK = ("checkpointlocation",)
"""Options that Spark passes on, and reads itself."""
_OF_TABLE, _OWNER = "option.", "owner"
"""How Spark marks the options of a table in its catalog, and a property that each such table has beside them."""
_OTHER_NAMES = {
    "startingoffsets": "starting_offsets",
    "endingoffsets": "ending_offsets",
    "startingtimestamp": "starting_timestamp",
    "failondataloss": "fail_on_data_loss",
    "maxrowspertrigger": "max_rows",
}
"""Names as other connectors have them, in lower case, and ours."""
_EITHER = (
    ("first", "starting_offsets"),
    ("first", "starting_timestamp"),
    ("start", "starting_offsets"),
    ("start", "starting_timestamp"),
    ("starting_offsets", "starting_timestamp"),
    ("last", "ending_offsets"),
    *(("consume", each) for each in ("first", "last", "start", "starting_offsets", "starting_timestamp")),
)
"""Options of which a read has one at most."""
_ANY = ""
"""The entity of a number that was given for all."""


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


def _offsets(value: object) -> object:
    """`earliest`, `latest`, or numbers by entity: from a JSON object, or one number for all of them."""
    if not isinstance(value, str) or (text := value.strip()).lower() in tuple(Start):
        return value.strip().lower() if isinstance(value, str) else value
    try:
        found = json.loads(text)
        numbers = found if isinstance(found, dict) else {_ANY: found}
        if all(type(number) is int and number > 0 for number in numbers.values()):
            return {EntityPath.of(entity).key: number for entity, number in numbers.items()}
    except ValueError:
        pass
    raise InvalidSetting(Mistake("is not an offset", 'write earliest, latest, a number, or {"orders": 51}'))


def _time(value: object) -> object:
    """A time as `drain --after` takes it, or milliseconds since 1970, which other connectors take."""
    if not isinstance(value, str):
        return value
    if value.strip().isdigit():
        return datetime.fromtimestamp(int(value) / 1000, UTC)
    try:
        return read_moment(value)
    except InvalidOption:
        raise InvalidSetting(Mistake("is not a time", "write 2026-11-16T14:30, 2h, or milliseconds")) from None


def _ends(value: object) -> object:
    if (found := _offsets(value)) != Start.EARLIEST:
        return found
    raise InvalidSetting(Mistake("is no end", 'write latest, a number, or {"orders": 101}'))


StartingOffsets = Annotated[Start | dict[str, int], BeforeValidator(_offsets)]
EndingOffsets = Annotated[Start | dict[str, int], BeforeValidator(_ends)]


class Behaviour(Settings):
    """The options that say how to read and write."""

    entity: str = ""
    bodies: bool = False
    first: Annotated[int, Field(ge=1)] = 1
    last: Annotated[int, Field(ge=1)] | None = None
    """The sequence numbers that a read begins and ends with, both included."""
    pushdown: bool = False
    """Whether filters of Spark's are applied here: see `read`."""
    partition_size: Annotated[int, Field(ge=1)] = 50_000
    """Sequence numbers in one partition of a read, at most."""
    start: Start = Start.EARLIEST
    starting_offsets: StartingOffsets = Start.EARLIEST
    """Where a read begins, or a stream that has no checkpoint: numbers by the lower-case names of entities."""
    ending_offsets: EndingOffsets = Start.LATEST
    """The numbers before which a read ends."""
    starting_timestamp: Annotated[datetime, BeforeValidator(_time)] | None = None
    """Messages that were enqueued before are not read."""
    fail_on_data_loss: bool = True
    """Whether a stream fails if an entity was deleted and created again. If not, it begins with its first message."""
    max_rows: Annotated[int, Field(ge=1)] | None = None
    """Rows of one micro-batch of a stream, shared by its entities. Each that has messages gets at least one."""
    consume: bool = False
    """Whether messages of a stream are completed once its checkpoint has them."""
    bad_rows: BadRows = BadRows.FAIL
    patience: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for which a write continues while the entity is unavailable."""

    @property
    def begins_latest(self) -> bool:
        """Whether a stream without a checkpoint begins with what comes after its start."""
        return Start.LATEST in (self.start, self.starting_offsets)

    def numbers(self, entity: str) -> tuple[int, int | None]:
        """The first and the last sequence number of an entity that are read; None if there is no last one."""
        key = EntityPath.of(entity).key
        first, last = self.first, self.last
        if isinstance(self.starting_offsets, dict):
            first = self.starting_offsets.get(key, self.starting_offsets.get(_ANY, 1))
        if isinstance(self.ending_offsets, dict):
            end = self.ending_offsets.get(key, self.ending_offsets.get(_ANY))
            last = None if end is None else end - 1
        return first, last


class SourceOptions(Settings):
    """All options, checked. It travels inside pickled tasks; its secrets are in none of its texts."""

    side: SideSettings
    entities: tuple[str, ...]
    behaviour: Behaviour

    @property
    def entity(self) -> str:
        """The one entity of a write."""
        if len(self.entities) != 1 or is_pattern(self.entities[0]):
            raise BadSourceOptions(f"{SOURCE}: a write has one entity, not {', '.join(self.entities)}.")
        return self.entities[0]


def is_pattern(entity: str) -> bool:
    """Whether a name of the option `entity` stands for queues: no entity has a `*` in its name."""
    return "*" in entity


class _Reach(Settings):
    option: CheckedSide


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
    given = named_as_here(options)
    if misplaced := _misplaced(given):  # other errors would show these values
        raise BadSourceOptions("\n".join(str(problem) for problem in misplaced))
    problems = [
        *_unknown(given),
        *(
            _problem(one, f"is given together with {other}", "keep one of them")
            for one, other in _EITHER
            if {one, other} <= given.keys()
        ),
    ]
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
    return SourceOptions(side=side, entities=once(entities), behaviour=behaves.option)


def named_as_here(options: Mapping[str, str]) -> dict[str, str]:
    """The options under our names. Raises BadSourceOptions for those of `CREATE TABLE … OPTIONS`: Spark drops them when
    the table is read or written.
    """
    given = {key.lower(): value for key, value in options.items()}
    if any(key.startswith(_OF_TABLE) for key in given):
        raise BadSourceOptions(
            f"{SOURCE}: Spark passes OPTIONS of a table in its catalog to no query. Give them to "
            "syphon.datasource.register_source(spark, …, name='orders_source'), and write CREATE TABLE orders USING "
            "orders_source; or name them in a query, after the table: orders WITH (entity = 'orders')."
        )
    if _OWNER in given:
        return {}  # these are properties of a table in the catalog
    named = {_OTHER_NAMES.get(key, key): value for key, value in given.items()}
    return {key: value for key, value in named.items() if key not in _OF_SPARK}


def names_a_namespace(given: Mapping[str, str]) -> bool:
    return "connection_string" in given or "namespace" in given


def once(entities: Iterable[str]) -> tuple[str, ...]:
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
