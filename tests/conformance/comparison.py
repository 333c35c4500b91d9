"""What a target does, compared with what the emulator does: differences, answers to open questions, and the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.conformance.target import Target


@dataclass(frozen=True)
class Difference:
    """One detail in which the target is not like the emulator."""

    test: str
    what: str
    found: object
    emulator: object


@dataclass(frozen=True)
class Answer:
    """What the target does where no documentation says it."""

    test: str
    question: str
    found: str
    emulator: str


@dataclass
class Comparison:
    """Collects the details of one test: a difference does not hide those that follow."""

    test: str
    differences: list[Difference] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def same(self, what: str, found: object, emulator: object) -> None:
        if found != emulator:
            self.differences.append(Difference(self.test, what, found, emulator))

    def answer(self, question: str, found: str, emulator: str) -> None:
        self.answers.append(Answer(self.test, question, found, emulator))

    def failure(self, *, answers_count: bool) -> str | None:
        """What to fail the test with. On other targets than the emulator an answer is a find and no failure."""
        lines = [f"{each.what}: {each.found!r}, and in the emulator {each.emulator!r}" for each in self.differences]
        if answers_count:
            lines += [f"{each.question} {each.found}" for each in self.answers if each.found != each.emulator]
        return "\n".join(lines) or None


@dataclass
class Report:
    """The whole run."""

    target: Target
    comparisons: list[Comparison] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    """Tests that ended with another error, and its text."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    passed: int = 0

    def lines(self) -> Iterable[str]:
        here, differences = self.target.label, [d for each in self.comparisons for d in each.differences]
        answers = [answer for each in self.comparisons for answer in each.answers]
        yield f"{here} ({self.target.primary.tier}) beside the emulator"
        tests = len({each.test for each in differences}) + len(self.broken)
        yield f"{self.passed} tests found the same, {tests} found differences, {len(self.skipped)} were skipped"
        yield from (f"  skipped: {test}: {why}" for test, why in self.skipped)
        yield ""
        yield f"What differs: {len(differences) + len(self.broken)}" if tests else "What differs: nothing"
        for found in differences:
            yield f"  {found.test}: {found.what}"
            yield f"    {here}: {found.found}"
            yield f"    emulator: {found.emulator}"
        for test, error in self.broken:
            yield f"  {test}: {error}"
        yield ""
        yield f"What was not known: {len(answers)} answers"
        for each in answers:
            yield f"  {each.question}"
            yield f"    {here}: {each.found}"
            yield f"    emulator: {'the same' if each.found == each.emulator else each.emulator}"
