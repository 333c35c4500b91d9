"""`--give-up missing,disabled` as an option of click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from syphon.model import InvalidOption

if TYPE_CHECKING:

    class WordsType(click.ParamType[frozenset[str]]): ...

else:
    WordsType = click.ParamType  # in older releases of click the type has no parameter


class GiveUp(WordsType):
    """One or more of the words, with commas between them."""

    name = "WORDS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        from syphon.api import read_words

        if isinstance(value, frozenset):
            return value
        try:
            return read_words(str(value))
        except InvalidOption as error:
            self.fail(str(error), param, ctx)
