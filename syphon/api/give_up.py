"""Giving up destinations: a drain that dead-letters the messages for destinations that are missing or disabled.

Without it they stay in the backlog (S4): the sender failed over for exactly these errors, and the entity may come back.
Only a person knows that it will not.
"""

from __future__ import annotations

from collections.abc import Iterable

from syphon.config import Config, PermanentError
from syphon.model import DestinationDisabled, DestinationMissing, InvalidOption

GIVE_UP = {"missing": "entity-not-found", "disabled": "entity-disabled"}
"""The words of the option, and the permanent error of the settings that each stands for."""
_WORDS = {DestinationMissing.__name__: "missing", DestinationDisabled.__name__: "disabled"}


def read_words(value: str | Iterable[str]) -> frozenset[str]:
    """One or more of the words: a text with commas between them, or several texts."""
    texts = value.split(",") if isinstance(value, str) else list(value)
    words = [word.strip().lower() for word in texts]
    for word in words:
        if word not in GIVE_UP:
            raise InvalidOption(f"'{word}' cannot be given up: write missing, disabled, or missing,disabled.")
    return frozenset(words)


def with_given_up(config: Config, words: Iterable[str]) -> Config:
    """The settings for one drain: these errors are permanent for every pair, beside those that are so anyway."""
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
