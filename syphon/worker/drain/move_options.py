"""The options of a move, which are those of its dry run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from syphon.model import EntityPath, InvalidOption, refuse_secret
from syphon.option_declarations import FLAG, NAMES, Names, Option, OptionKind

from .drain_options import TransferOptions

if TYPE_CHECKING:
    from syphon.backlog import LetterEdit


class MoveEnd(NamedTuple):
    """An entity of a namespace, as the operator names both."""

    namespace: str
    """A name of the settings, `env:VARIABLE` or `file:PATH`."""
    entity: EntityPath

    @classmethod
    def of(cls, text: str | MoveEnd) -> MoveEnd:
        """The endpoint that a text means. No error repeats a text that may be a secret."""
        if isinstance(text, MoveEnd):
            return text
        refuse_secret(text)
        namespace, _, entity = text.rpartition(":")
        path = EntityPath.of(entity)
        if path.name and entity.endswith("/"):
            raise InvalidOption(
                f"'{text}' ends in a slash. If it was $deadletterqueue, quote it: the shell has replaced it."
            )
        if not namespace or not path.name:
            raise InvalidOption(f"'{text}' is not NAMESPACE:ENTITY, as in contoso:orders/$deadletterqueue.")
        return cls(namespace, path)

    @property
    def short_name(self) -> str:
        """The namespace as a part of a pair's name, which has letters, digits and hyphens."""
        found = re.sub(r"[^A-Za-z0-9]+", "-", self.namespace.rpartition("/")[2])[-20:].strip("-")
        return found or "namespace"

    def __str__(self) -> str:
        return f"{self.namespace}:{self.entity}"


MOVE_END: OptionKind[str | MoveEnd, MoveEnd] = OptionKind("NAMESPACE:ENTITY", MoveEnd.of)


@dataclass(kw_only=True)
class MoveEnds:
    """Both ends of a move."""

    source: Option[str | MoveEnd | None, MoveEnd | None] = Option(
        "--from",
        MOVE_END,
        "The queue, subscription (topic/subscriptions/name) or dead-letter queue (…/$deadletterqueue) to move from.",
    )
    target: Option[str | MoveEnd | None, MoveEnd | None] = Option(
        "--to", MOVE_END, "The queue or topic to move to, of any namespace."
    )


@dataclass(kw_only=True)
class MoveOptions(TransferOptions, MoveEnds):
    """What a move takes from where to where. Commands, functions and their reference are made from this."""

    edits: Option[Names, tuple[str, ...]] = Option(
        "--edit",
        NAMES,
        "Set a property of each message; NAME:TYPE=VALUE for other types than string. Repeatable.",
        metavar="NAME=VALUE",
        default=(),
    )
    unset: Option[Names, tuple[str, ...]] = Option(
        "--unset", NAMES, "Remove a property from each message. Repeatable.", default=()
    )
    new_ids: Option[bool, bool] = Option(
        "--new-ids", FLAG, "Give each message a new id, so that duplicate detection does not drop it.", default=False
    )
    keep_ids: Option[bool, bool] = Option(
        "--keep-ids",
        FLAG,
        "Keep the ids although the target detects duplicates: it drops messages whose ids it knows.",
        default=False,
    )
    edit: LetterEdit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.new_ids and self.keep_ids:
            raise InvalidOption("--new-ids and --keep-ids exclude each other.")
        from syphon.backlog import BadEdit, LetterEdit  # loads the SDK, which --help does not need

        try:
            self.edit = LetterEdit.of(self.edits, self.unset)
        except BadEdit as error:
            raise InvalidOption(f"--edit, --unset: {error}") from None

    @property
    def ends(self) -> tuple[MoveEnd, MoveEnd]:
        """Source and target. Raises InvalidOption if one is missing."""
        if self.source is None or self.target is None:
            raise InvalidOption(f"{'--from' if self.source is None else '--to'} is missing: write NAMESPACE:ENTITY.")
        return self.source, self.target
