"""What every command shows and leaves behind: no key, no body, and no text of a message that acts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from tests.support.whole_incident import BODY, KEY, STORAGE, TOKEN, WRONG, Seen, incident

pytestmark = pytest.mark.timeout(600)


class Elements(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)


def plain(text: str) -> str:
    """What a person reads of it: without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with incident(tmp_path_factory.mktemp("incident")) as seen:
        yield seen


def test_every_command_has_come_to_the_end_that_it_should(seen: Seen) -> None:
    """Else there would be nothing to see, and nothing to be found in it."""
    well = (
        "inspect",
        "check",
        "provision",
        "cost",
        "status",
        "pause",
        "resume",
        "dead-letters list",
        "dead-letters show",
        "run",
    )
    assert {name: seen.codes[name] for name in well} == dict.fromkeys(well, 0), seen.texts
    assert [seen.codes[name] for name in ("dry_run", "drain", "report")] == [1, 1, 1], "dead letters"
    assert seen.codes["status, no token"] == 77
    for name in ("wrong", "unknown", "refused"):
        codes = {seen.codes[f"{command}, {name}"] for command in ("check", "provision", "dead-letters")}
        assert codes == {77 if name == "wrong" else 69}, name
    assert seen.codes["denied"] == 77
    assert [where for where in seen.texts if "local-" in where], "Spark's event log"


def test_a_renamed_destination_is_said_before_and_after(seen: Seen) -> None:  # D13
    for command in ("inspect", "dry_run"):
        assert "Messages for returns go to orders (renamed)." in seen.texts[command], command
    assert "would wait for returns" not in seen.texts["dry_run"], "orders was asked, and takes messages"
    said = " ".join(plain(seen.texts["report"]).split())
    assert "Renamed destinations destination went to messages forwarded returns orders 2 2" in said
    assert "returns to orders" in seen.report


@pytest.mark.parametrize("command", ["inspect", "dry_run", "report", "dead-letters list", "check"])
def test_on_a_terminal_of_80_columns_tables_break_no_word(seen: Seen, command: str) -> None:
    lines = plain(seen.texts[command]).replace("\r", "").splitlines()
    known = {"dead-lettered", "NoDestination", "BadAlias", "destination", "messages", "contoso", "accepts", "reason"}
    words = {word for line in lines for word in line.split()}
    assert words & known, lines
    broken = {word[:end] for word in known for end in range(3, len(word))} - known
    assert [line for line in lines if set(line.split()) & broken and len(line) >= 80] == []
    logged, longest = (" DEBUG ", " INFO "), 60  # log lines are not wrapped, and a path has no place to break
    too_long = [line for line in lines if len(line) > 80 and not any(word in line for word in logged)]
    assert [line for line in too_long if max(map(len, line.split())) < longest] == []


@pytest.mark.parametrize("secret", [KEY, WRONG, TOKEN, STORAGE, BODY])
def test_no_key_no_token_and_no_body_is_to_be_seen_anywhere(seen: Seen, secret: str) -> None:  # T11
    assert seen.having(secret) == []


@pytest.mark.parametrize("escape", ["\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e"])
def test_no_text_of_a_message_steers_a_terminal(seen: Seen, escape: str) -> None:  # T13
    assert [found for found in seen.having(escape) if _is_shown(found)] == []


def test_no_text_of_a_message_begins_a_line(seen: Seen) -> None:
    lines = [line for where, text in seen.texts.items() if _is_shown(where) for line in re.split(r"[\r\n]+", text)]
    assert [line for line in lines if line.startswith("FAKE")] == []
    assert [line for line in lines if "FAKE" in line], "it was shown, as a part of its line"


def test_no_text_of_a_message_is_markup_in_the_report(seen: Seen) -> None:  # T13
    assert "alert(1)" in seen.report
    page = Elements()
    page.feed(seen.report)
    assert page.names.isdisjoint({"script", "img", "a", "iframe"})
    assert [name for name in page.attributes if name.startswith("on") or name in ("href", "src", "style")] == []


def _is_shown(where: str) -> bool:
    """Files of a ledger hold what there was; only what is printed can do something."""
    return not where.startswith(("afterwards", "while it works", "/proc"))
