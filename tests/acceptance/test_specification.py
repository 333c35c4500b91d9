"""Every rule and decision that is cited is defined once, each rule has tests, and what the documents name exists."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPECIFICATION = ROOT / "docs/specification.md"
DESIGN = ROOT / "docs/design.md"
DECISIONS = ROOT / "docs/decisions.md"
SECURITY = ROOT / "docs/security.md"
EMULATOR = ROOT / "tests/integration/emulator/RECORD.md"
LETTERS = "PMSCFXDT"
CITED = re.compile(
    rf"""(?<![\w.\-])           # no part of a word or of another number
    ([{LETTERS}]\d{{1,2}})      # linters' codes (S101, F401) have three digits
    (?:\ to\ ([{LETTERS}]\d{{1,2}}))?   # "C1 to C3" cites C2 as well
    (?![\w\-])(?!\ controls\b)  # C1 controls are characters""",
    re.VERBOSE,
)
DEFINED = re.compile(rf"^(?:\|\s*|#+\s*|- )\**([{LETTERS}]\d{{1,2}})\b\**", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
READ = (".py", ".md", ".yaml", ".yml", ".json")


def files() -> Iterator[Path]:
    for folder in ("syphon", "tests", "bench", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in READ and path != Path(__file__) and "node_modules" not in path.parts:
                yield path


def cited(text: str) -> Iterator[str]:
    for first, last in CITED.findall(text):
        yield first
        if last and last[0] == first[0]:
            yield from (f"{first[0]}{number}" for number in range(int(first[1:]) + 1, int(last[1:]) + 1))


def defined() -> Counter[str]:
    return Counter(
        number for path in (SPECIFICATION, DECISIONS, SECURITY) for number in DEFINED.findall(path.read_text())
    )


def shown_by(modules: Iterable[str]) -> Iterator[str]:
    """The rules that tests cite: in the comment at their name, in their docstring or in that of their module."""
    for text in modules:
        tree, lines = ast.parse(text), text.splitlines()
        yield from cited(ast.get_docstring(tree) or "")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from cited("\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))


def missing(texts: Iterable[tuple[str, str]], known: Iterable[str]) -> list[str]:
    """Where a number is cited that is defined nowhere."""
    there = set(known)
    return [
        f"{name}:{number}: {rule}"
        for name, text in texts
        for number, line in enumerate(text.splitlines(), 1)
        for rule in cited(line)
        if rule not in there
    ]


@cache
def names_in(path: Path) -> frozenset[str]:
    """The functions, classes and methods of a file, as `function` and `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            own = (each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {node.name, *(f"{node.name}.{name}" for name in own)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return frozenset(found)


def not_there(text: str) -> list[str]:
    """The tests and functions that a text names (`path.py::name`, also relative to syphon/) and that do not exist."""
    problems = []
    for path, name in dict.fromkeys(NAMED.findall(text)):
        places = [place / path for place in (ROOT, ROOT / "syphon") if (place / path).is_file()]
        if not places or name not in names_in(places[0]):
            problems.append(f"{path}::{name} does not exist{_elsewhere(path, name)}")
    return problems


def _elsewhere(path: str, name: str) -> str:
    top = ROOT / ("tests" if path.startswith("tests/") else "syphon")
    found = [file.relative_to(ROOT).as_posix() for file in sorted(top.rglob("*.py")) if name in names_in(file)]
    return f"; it is in {', '.join(found)}" if found else ""


def test_every_number_that_is_cited_is_defined() -> None:
    problems = missing(((path.relative_to(ROOT).as_posix(), path.read_text()) for path in files()), defined())
    assert not problems, "define these in docs/specification.md, decisions.md or security.md:\n" + "\n".join(problems)


def test_no_number_is_defined_twice() -> None:
    assert [number for number, times in defined().items() if times > 1] == []


def test_every_letter_is_numbered_without_a_gap() -> None:
    planned = {"D22", "D23"}  # not built yet
    for letter in LETTERS:
        numbers = {int(each[1:]) for each in (*defined(), *planned) if each[0] == letter}
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), letter


def test_every_rule_is_cited_by_a_test_or_says_why_there_is_none() -> None:
    lines = [line for path in (SPECIFICATION, SECURITY) for line in path.read_text().splitlines()]
    rules = {found[1] for line in lines if (found := DEFINED.match(line)) and "No test:" not in line}
    assert len(rules) > 30
    tests = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert rules - set(shown_by(tests)) == set()


def test_the_tests_and_functions_that_are_named_exist() -> None:
    documents = (SPECIFICATION, DESIGN, DECISIONS, SECURITY, EMULATOR)
    problems = [each for path in documents for each in not_there(path.read_text())]
    assert not problems, "\n".join(problems)


def test_the_way_of_a_message_has_at_most_twenty_stations() -> None:
    way = DESIGN.read_text().partition("## The way of a message")[2].partition("\n## ")[0]
    stations = re.findall(r"^\d+\. .+(?:\n {2,}.+)*", way, re.MULTILINE)
    assert 10 <= len(stations) <= 20
    assert [station for station in stations if not NAMED.search(station)] == []


def test_these_checks_can_fail() -> None:
    found = missing([("a.py", "# (S2, D13)\n# C1 to C3: an exit\n# noqa: S101\n# F401, U+00S2, C1 controls")], ["S2"])
    assert found == ["a.py:1: D13", "a.py:2: C1", "a.py:2: C2", "a.py:2: C3"]
    here = "tests/acceptance/test_specification.py"
    assert not_there(f"`{here}::test_these_checks_can_fail`, `transfer/pump.py::Pump.run`") == []
    assert not_there(f"`{here}::test_of_nothing`") == [f"{here}::test_of_nothing does not exist"]
    assert not_there("`tests/test_x.py::test_these_checks_can_fail`") == [
        f"tests/test_x.py::test_these_checks_can_fail does not exist; it is in {here}"
    ]
    module = '"""M1"""\ndef test_it() -> None:  # S2\n    """D3"""\n    wait()  # S4\ndef help() -> None: ...  # S5\n'
    assert list(shown_by([module])) == ["M1", "S2", "D3"]
    assert DEFINED.findall("| S2 | text, S4 |\n### D1 Bytes\n- D15 later\nand S7 in a line") == ["S2", "D1", "D15"]
