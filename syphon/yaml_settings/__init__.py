"""Settings from a file, with every mistake in it reported at once.

People write settings files. They should not have to correct one line, start again and then learn of the next. So the
file is read into plain data that remembers its lines (`read`), a pydantic model checks the data (`validate`), and each
error becomes a `Problem`: file, line, path, value, what is wrong and what to do about it.
"""

from .durations import LONGEST, Between, Duration, parse_duration, write_duration
from .problems import InvalidSetting, Loc, Mistake, Problem, SettingsError
from .reader import Document, parse, read, resolve
from .secrets import RenewableSecret, make_renewable
from .validator import Settings, given, looks_secret, together, unique, validate

__all__ = [
    "Between",
    "Document",
    "Duration",
    "Mistake",
    "LONGEST",
    "Loc",
    "Problem",
    "RenewableSecret",
    "Settings",
    "SettingsError",
    "InvalidSetting",
    "given",
    "looks_secret",
    "make_renewable",
    "parse",
    "parse_duration",
    "read",
    "resolve",
    "together",
    "unique",
    "validate",
    "write_duration",
]
