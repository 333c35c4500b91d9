"""`--give-up`: a drain dead-letters the messages for missing or disabled destinations.

By default they stay in the backlog (S4): the sender failed over because of these errors, and the entity may come back.
Only a person knows that it will not.
"""

from __future__ import annotations

from collections.abc import Iterable

from syphon.config import Config, PermanentError
from syphon.model import DestinationDisabled, DestinationMissing
from syphon.worker import GIVE_UP

_WORDS = {DestinationMissing.__name__: "missing", DestinationDisabled.__name__: "disabled"}


def with_given_up(config: Config, words: Iterable[str]) -> Config:
    """The settings for one drain: these errors are permanent for every pair, in addition to the configured ones."""
    errors = [PermanentError(GIVE_UP[word]) for word in words]
    pairs = [
        pair.model_copy(update={"destinations": pair.destinations.giving_up(errors)}) if errors else pair
        for pair in config.pairs
    ]
    return config.model_copy(update={"pairs": pairs})


def word_for(error: str) -> str | None:
    """The --give-up word for this error; None if there is none."""
    return _WORDS.get(error)


def words_for(errors: Iterable[str]) -> str:
    """The value of --give-up for these errors; empty if there is none."""
    found = {word_for(error) for error in errors}
    return ",".join(word for word in GIVE_UP if word in found)
