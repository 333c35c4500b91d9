"""Problems with settings, in words for the person who wrote the file."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

Loc = tuple[str | int, ...]
"""The path to a value: keys and indices."""


def written(path: Loc) -> str:
    """A path as people write it: namespaces[0].queues[2].name."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


@dataclass(frozen=True)
class Problem:
    """One mistake in a settings file, and its remedy."""

    file: str
    line: int | None
    path: str
    value: str | None
    """The value as it is shown; None if there is no value, or if it may be a secret."""
    text: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = self.path or "the file"
        if self.value is not None:
            subject = f"{subject} = {self.value}"
        return f"{where}: {subject} {self.text}; {self.remedy}"


class SettingsError(Exception):
    """The settings cannot be used."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line or 0)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Mistake:
    """What a validator found. `text` follows the value in a sentence; `at` is its path below the validated value."""

    text: str
    remedy: str
    at: Loc = ()


class InvalidSetting(ValueError):
    """Raised by a validator that knows a remedy, or has found several mistakes at once."""

    def __init__(self, *mistakes: Mistake, beneath: ValidationError | None = None) -> None:
        super().__init__(
            "; ".join(f"{written(mistake.at)} {mistake.text}: {mistake.remedy}".lstrip() for mistake in mistakes)
        )
        self.mistakes = mistakes
        self.beneath = beneath
        """Errors that pydantic found below the same path, if the validator wraps it: both are reported."""
