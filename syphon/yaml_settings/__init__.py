"""Settings from a file, with every mistake in it reported at once.

A settings file is a person's work, and whoever wrote it should not have to mend one line, start again and be told of
the next. So the file is read into plain data that remembers its lines (`read`), a pydantic model judges the data
(`validate`), and each complaint becomes a `Problem`: file, line, path, value, what is wrong and what to do about it.
"""

from .durations import LONGEST, Between, Duration, parse_duration, write_duration
from .judging import Settings, given, looks_secret, together, unique, validate
from .problems import InvalidSetting, Loc, Mistake, Problem, SettingsError
from .reading import Document, parse, read
from .references import resolve

__all__ = [
    "Between",
    "Document",
    "Duration",
    "Mistake",
    "LONGEST",
    "Loc",
    "Problem",
    "Settings",
    "SettingsError",
    "InvalidSetting",
    "given",
    "looks_secret",
    "parse",
    "parse_duration",
    "read",
    "resolve",
    "together",
    "unique",
    "validate",
    "write_duration",
]
