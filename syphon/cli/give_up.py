"""`--give-up missing,disabled`: a drain that dead-letters the messages for destinations that are missing or disabled.

Without it they stay in the backlog (S4): the sender failed over for exactly these errors, and the entity may come back.
Only a person knows that it will not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from syphon.model import DestinationDisabled, DestinationMissing

if TYPE_CHECKING:
    from syphon.config import Config

    class WordsType(click.ParamType[frozenset[str]]): ...

else:
    WordsType = click.ParamType  # in older releases of click the type has no parameter

GIVE_UP = {"missing": "entity-not-found", "disabled": "entity-disabled"}
"""The words of the option, and the permanent error of the settings that each stands for."""
_WORDS = {DestinationMissing.__name__: "missing", DestinationDisabled.__name__: "disabled"}


class GiveUp(WordsType):
    """One or more of the words, with commas between them."""

    name = "WORDS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        words = [word.strip().lower() for word in str(value).split(",")]
        for word in words:
            if word not in GIVE_UP:
                self.fail(f"'{word}' cannot be given up: write missing, disabled, or missing,disabled.", param, ctx)
        return frozenset(words)


def with_given_up(config: Config, words: Iterable[str]) -> Config:
    """The settings for one drain: these errors are permanent for every pair, beside those that are so anyway."""
    from syphon.config import PermanentError

    errors = [PermanentError(GIVE_UP[word]) for word in words]
    pairs = [
        pair.model_copy(update={"destinations": pair.destinations.giving_up(errors)}) if errors else pair
        for pair in config.pairs
    ]
    return config.model_copy(update={"pairs": pairs})


def word_for(error: str) -> str | None:
    """The word that gives up messages which wait because of this error; None if they cannot be given up."""
    return _WORDS.get(error)


def words_for(errors: Iterable[str]) -> str:
    """What to write after --give-up for these errors; empty if none of them can be given up."""
    found = {word_for(error) for error in errors}
    return ",".join(word for word in GIVE_UP if word in found)
