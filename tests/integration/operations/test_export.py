"""Dead letters to a file and back: nothing is lost on the way, and what happened is reported."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syphon import time_budget
from syphon.amqp import Decimal128, Map, Section, section_bytes
from syphon.backlog import fingerprint
from syphon.backlog.dead_letters import read_dead_letters
from syphon.cli import main
from syphon.cli.dead_letters.import_ import line_ranges
from syphon.emulator import Action, Fault, Operation
from syphon.servicebus import Arrival, Connection, LinkState, wait_for_traffic
from syphon.servicebus.queue_peek import peek
from syphon.transfer import letter_import, settlement
from syphon.transfer.dead_letter_replay import Removal
from syphon.transfer.queue_transfer import QueueTransfer
from tests.integration.operations.conftest import DEAD, FIRST, SECOND, Bench, Run, aliased, answer


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def payloads(bench: Bench, queue: str = FIRST) -> list[bytes]:
    with bench.connection() as connection:
        return [message.payload for message in peek(connection, queue)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "letters.jsonl"


def test_an_export_changes_nothing(bench: Bench, tmp_path: Path, file: Path, syphon: Run) -> None:  # X4
    bench.bury(aliased("one", "orders", "m1"), aliased("two", None, "m2"), reason="r", description="d")
    bench.bury(aliased("three", "orders", "m3"), reason="other", queue=SECOND)
    before = payloads(bench, f"{FIRST}/{DEAD}")
    done = syphon("dead-letters", "export", "-c", bench.config(tmp_path), "--reason", "r", file)
    assert (done.returncode, done.stdout) == (
        0,
        f"Exported 2 dead letters to {file}, {done.stdout.rpartition(', ')[2]}",
    )
    assert "Nothing was removed." in done.stdout
    assert [record["message_id"] for record in records(file)] == ["m1", "m2"]
    assert payloads(bench, f"{FIRST}/{DEAD}") == before
    assert (bench.counts(FIRST), bench.counts(SECOND)) == ((0, 2), (0, 1))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "bodies are in it"


def test_removed_and_imported_a_message_is_what_it_was_byte_for_byte(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:  # M2, X4
    sent = aliased("price", "orders", "m1", price=Decimal128(bytes(range(16)))) + section_bytes(Section.FOOTER, Map())
    bench.bury(sent, aliased("two", "orders", "m2"), reason="r")
    config = bench.config(tmp_path)
    removed = answer(syphon("dead-letters", "export", "-c", config, "--remove", "--yes", "--json", file))
    assert (removed["written"], removed["removed"], removed["why_left"]) == (2, 2, [])
    assert bench.counts() == (0, 0)
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "backlog", "--yes")
    assert (done.returncode, "Sent 2 of 2 lines." in done.stdout) == (0, True), done
    assert any(payload.endswith(sent) for payload in payloads(bench))
    assert bench.counts() == (2, 0)


def test_to_its_destination_a_message_arrives_restored_and_edited(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:  # X4, M2
    bench.queue("orders")
    bench.bury(aliased("hello", None, "m1", x_ms_timetolive="soon", colour="red"), reason="BadAlias")
    config = bench.config(tmp_path)
    assert syphon("dead-letters", "export", "-c", config, file).returncode == 0
    arguments = ("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes", "--json")
    refused = syphon(*arguments)
    assert (refused.returncode, answer(refused)["left_lines"]) == (1, "1")
    assert "NoDestination" in answer(refused)["why_left"][0]["why"]
    edits = ("--set-path", "orders", "--edit", "x-ms-timetolive=PT1H", "--unset", "colour")
    done = answer(syphon(*arguments, *edits))
    assert (done["sent"], done["sent_lines"]) == (1, "1")
    (arrived,) = bench.take("orders", 1)
    assert (str(arrived), arrived.message_id, arrived.application_properties) == ("hello", "m1", None)
    assert arrived.time_to_live.total_seconds() == 3600
    assert bench.counts() == (0, 1), "an import does not touch the dead letters"


def test_a_replay_can_be_edited(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # X4, M4
    bench.queue("orders")
    bench.bury(aliased("hello", "orders", "m1", x_ms_timetolive="soon"), reason="BadAlias")
    arguments = ("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "destination", "--json")
    assert answer(syphon(*arguments, "--dry-run"))["left"] == 1
    edits = ("--edit", "x-ms-timetolive:timespan=00:30:00", "--edit", "tries:int=2", "--edit", "properties.subject=new")
    assert answer(syphon(*arguments, *edits, "--dry-run"))["left"] == 0
    assert syphon(*arguments, *edits, "--yes").returncode == 0
    (arrived,) = bench.take("orders", 1)
    assert (arrived.subject, arrived.application_properties, arrived.message_id) == ("new", {b"tries": 2}, "m1")
    assert arrived.time_to_live.total_seconds() == 1800


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        (("--edit", "x-ms-path=secret"), "'secret'"),
        (("--edit", "properties.message-id=1"), "cannot be edited"),
        (("--edit", "colour"), "NAME=VALUE"),
    ],
)
def test_an_edit_that_is_refused_changes_nothing(
    bench: Bench, tmp_path: Path, syphon: Run, edits: tuple[str, ...], why: str
) -> None:  # D13
    bench.bury(aliased("x", None, "m1"), reason="NoDestination")
    config = bench.config(tmp_path, "orders")
    done = syphon("dead-letters", "replay", "-c", config, "--to", "backlog", "--yes", *edits)
    assert done.returncode == 2
    assert why in done.stderr
    assert bench.counts() == (0, 1)


# --- what can go wrong -----------------------------------------------------------------------------------------------


def test_a_file_is_never_overwritten(bench: Bench, tmp_path: Path, file: Path, syphon: Run) -> None:
    file.write_text("precious")
    bench.bury(aliased("x", "orders"), reason="r")
    done = syphon("dead-letters", "export", "-c", bench.config(tmp_path), "--remove", "--yes", file)
    assert (done.returncode, file.read_text(), bench.counts()) == (2, "precious", (0, 1))


def test_a_file_that_cannot_be_written_removes_nothing(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    bench.bury(aliased("x", "orders"), reason="r")
    config = bench.config(tmp_path)
    done = syphon("dead-letters", "export", "-c", config, "--remove", "--yes", tmp_path / "missing" / "f")
    assert (done.returncode, bench.counts()) == (2, (0, 1))
    assert "cannot be written: No such file or directory. Nothing was removed." in " ".join(done.stderr.split())


def test_a_disk_that_fills_up_removes_nothing(bench: Bench, tmp_path: Path, file: Path) -> None:
    bench.bury(*(aliased("x" * 4000, "orders") for _ in range(50)), reason="r")
    command = ["dead-letters", "export", "-c", str(bench.config(tmp_path)), "--remove", "--yes", str(file)]
    limited = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); from syphon.cli import main; main({command!r})"
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "cannot be written: File too large. Nothing was removed." in " ".join(done.stderr.split())
    assert bench.counts() == (0, 50)


def test_only_the_message_that_is_in_the_file_is_removed(bench: Bench) -> None:
    """A queue that was deleted and made again counts from 1 again: the number alone does not identify a message."""
    bench.bury(aliased("kept", "orders", "m1"), aliased("in the file", "orders", "m2"), reason="r")
    with bench.connection() as source:
        one, two = read_dead_letters(source, FIRST)
        right = fingerprint(two.payload)
        assert right is not None
        wrong = {one.sequence_number: b"another message", two.sequence_number: right}
        result = Removal(FIRST, wrong, source, quiet=1.0).carry_out()
    assert (result.chosen, result.completed, result.left) == (2, 1, 1)
    assert list(result.why_left) == ["It is not the message in the file."]
    (kept,) = bench.take(FIRST, 1, "contoso-dr", dead=True)
    assert kept.message_id == "m1"


class LinkLostOnArrival(Removal):
    """A removal whose link the service detaches when a message has arrived, just before it is completed."""

    def __init__(self, bench: Bench, chosen: dict[int, bytes], source: Connection) -> None:
        super().__init__(FIRST, chosen, source, quiet=1.0)
        self.bench, self.source = bench, source

    def _route(self, queue: QueueTransfer, arrival: Arrival, wall: int) -> None:
        def detach() -> None:
            for link in list(self.bench.secondary.entity(FIRST).links):
                link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]

        self.bench.emulator.call(detach)
        while arrival.link.state is LinkState.OPEN:
            wait_for_traffic([self.source.wire], 0.2)
            self.source.read()
        super()._route(queue, arrival, wall)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_removal_counts_only_what_the_service_has_confirmed(bench: Bench, is_refused: bool) -> None:  # X4
    """The link is lost before the completion, which then goes to the management node. That may refuse it."""
    bench.bury(aliased("one", "orders", "m1"), reason="r")
    if is_refused:
        lost = Fault(Action.ERROR, Operation.MANAGE, f"{FIRST}/{DEAD}", condition="com.microsoft:message-lock-lost")
    with bench.connection() as source:
        (letter,) = read_dead_letters(source, FIRST)
        if is_refused:
            bench.emulator.call(lambda: bench.secondary.faults.add(lost))
        removal = LinkLostOnArrival(bench, {letter.sequence_number: fingerprint(letter.payload) or b""}, source)
        for _ in removal.turns():
            pass
    result, still_there = removal.result, bench.counts()[1]
    assert (result.left, result.uncertain, still_there) == ((1, 1, 1) if is_refused else (0, 0, 0))
    assert all(why.startswith("Removal not confirmed; it may still be a dead letter: ") for why in result.why_left)


def test_a_removal_without_an_answer_says_that_the_message_may_be_gone(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:  # X4
    bench.bury(aliased("one", "orders", "m1"), reason="r")
    cut = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SETTLE, f"{FIRST}/{DEAD}", times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(cut))
    done = syphon("dead-letters", "export", "-c", bench.config(tmp_path), "--remove", "--yes", file)
    assert (cut.struck, bench.counts(), done.returncode) == (1, (0, 0), 1)
    assert "0 removed from the dead letters, 1 not removed (1 of them unconfirmed" in done.stdout
    assert "1 not removed: Removal not confirmed; it may still be a dead letter: " in done.stdout


def test_nothing_is_removed_before_the_name_of_the_file_is_on_the_disk(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # X4
    bench.bury(aliased("one", "orders", "m1"), reason="r")
    at_sync: list[tuple[int, int]] = []
    sync = os.fsync

    def noted(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            assert os.path.samestat(os.fstat(number), file.parent.stat())
            at_sync.append(bench.counts())
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    done = syphon("dead-letters", "export", "-c", bench.config(tmp_path), "--remove", "--yes", file)
    assert (done.returncode, at_sync, bench.counts()) == (0, [(0, 1)], (0, 0))


def test_a_disk_that_may_not_keep_the_name_of_the_file_removes_nothing(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # X4
    bench.bury(aliased("one", "orders", "m1"), reason="r")
    sync = os.fsync

    def failing(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(number)

    monkeypatch.setattr(os, "fsync", failing)
    config = bench.config(tmp_path)
    done = syphon("dead-letters", "export", "-c", config, "--remove", "--yes", file)
    assert (done.returncode, bench.counts()) == (2, (0, 1))
    assert "Input/output error. Nothing was removed." in " ".join(done.stderr.split())
    assert syphon("dead-letters", "export", "-c", config, tmp_path / "second.jsonl").returncode == 0


def test_standard_output_has_the_lines_alone_and_removes_nothing(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    bench.bury(aliased("hello", "orders", "m1", colour="red"), reason="r")
    config = bench.config(tmp_path)
    done = syphon("dead-letters", "export", "-c", config, "--decoded", "-")
    record = json.loads(done.stdout)
    assert record["application_properties"][0] == {"name": "colour", "type": "string", "value": "red"}
    assert record["body"]["content"] == [{"text": "hello"}]
    assert "1 dead letter to -" in done.stderr
    assert syphon("dead-letters", "export", "-c", config, "--remove", "--yes", "-").returncode == 2
    assert bench.counts() == (0, 1)


def test_without_a_terminal_nothing_is_removed_or_sent_unless_yes_is_given(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:
    bench.bury(aliased("x", "orders"), reason="r")
    config = bench.config(tmp_path)
    done = syphon("dead-letters", "export", "-c", config, "--remove", file)
    assert (done.returncode, file.exists(), bench.counts()) == (2, False, (0, 1))
    assert syphon("dead-letters", "export", "-c", config, file).returncode == 0
    assert syphon("dead-letters", "import", "-c", config, file, "--to", "backlog").returncode == 2
    dry = answer(syphon("dead-letters", "import", "-c", config, file, "--to", "backlog", "--dry-run", "--json"))
    assert (dry["chosen"], dry["sent"], dry["sent_lines"], dry["left"]) == (1, 1, "1", 0)
    assert bench.counts() == (0, 1)


def test_a_file_with_a_damaged_line_sends_nothing(bench: Bench, tmp_path: Path, file: Path, syphon: Run) -> None:
    bench.bury(aliased("one", "orders"), aliased("two", "orders"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{second[:-20]}\n")
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "backlog", "--yes")
    assert (done.returncode, bench.counts()) == (2, (0, 2))
    assert f"{file.name}:2: it is damaged" in "".join(done.stderr.split("\n"))
    assert (
        syphon("dead-letters", "import", "-c", config, file, "--to", "backlog", "--yes", "--lines", "1").returncode == 0
    )
    assert bench.counts() == (1, 2)


def test_a_line_of_a_pair_that_the_settings_do_not_have_can_be_sent_to_another(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:
    bench.bury(aliased("one", "orders"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    record = records(file)[0] | {"pair": "elsewhere", "queue": "elsewhere/x-servicebus-transfer/7"}
    file.write_text(json.dumps(record) + "\n")
    arguments = ("dead-letters", "import", "-c", config, file, "--to", "backlog", "--yes")
    assert syphon(*arguments).returncode == 2
    assert syphon(*arguments, "--pair", "contoso").returncode == 2
    assert syphon(*arguments, "--pair", "contoso", "--queue", "1").returncode == 0
    assert (bench.counts(FIRST), bench.counts(SECOND)) == ((0, 1), (1, 0))


def test_an_import_that_fails_midway_says_what_was_sent(bench: Bench, tmp_path: Path, file: Path, syphon: Run) -> None:
    """The connection is cut in the middle. What was not sent can be sent by the lines that the summary names."""
    bench.queue("orders", max_size_in_megabytes=5120)
    bench.bury(*(aliased(f"{i}", "orders", f"m{i}") for i in range(1200)), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    cut = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", message_id="m700", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(cut))
    arguments = ("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes", "--json")
    done = syphon(*arguments)
    assert done.returncode == 1
    result = answer(done)
    assert result["chosen"] == result["sent"] + result["left"] == 1200
    assert 0 < result["sent"] < 1200
    arrived = bench.emulator.call(lambda: bench.primary.runtime("orders").active)
    lines = set(_numbers(result["sent_lines"]))
    uncertain = set(_numbers(result["uncertain_lines"]))
    assert len(lines) == result["sent"] <= arrived <= len(lines | uncertain)
    assert uncertain, "the batch that was accepted without an answer"
    again = answer(syphon(*arguments, "--lines", result["left_lines"]))
    assert (again["sent"], again["left"]) == (result["left"], 0)
    found = bench.take("orders", arrived + again["sent"])
    assert {str(message.message_id) for message in found} == {f"m{i}" for i in range(1200)}
    assert len(found) - 1200 <= len(uncertain)


def test_a_message_whose_life_ends_before_it_is_sent_is_left_and_the_others_are_sent(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # M4
    """The look beforehand still finds it alive; then an hour passes."""
    bench.queue("orders")
    mortal = aliased("two", "orders", "m2", x_ms_timetolive="PT30M")
    bench.bury(aliased("one", "orders", "m1"), mortal, aliased("three", "orders", "m3"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    clock, asked = settlement.wall_clock, iter(range(1000))
    later = lambda: clock() + (0 if next(asked) < 3 else 3_600_000)  # noqa: E731
    monkeypatch.setattr("syphon.transfer.wall_clock", later)
    done = syphon(
        "dead-letters", "import", "-c", config, file, "--to", "destination", "--ttl", "remaining", "--yes", "--json"
    )
    result = answer(done)
    assert (done.returncode, result["sent_lines"], result["left_lines"]) == (1, "1,3", "2")
    assert "Expired" in result["why_left"][0]["why"]
    assert len(bench.take("orders", 2)) == 2


def test_an_import_that_fails_unexpectedly_still_says_what_was_sent(
    bench: Bench, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # X4
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders", f"m{i}") for i in range(5)), reason="r")
    config = str(bench.config(tmp_path))
    with pytest.raises(SystemExit):
        main(["dead-letters", "export", "-c", config, str(file)])
    capsys.readouterr()
    monkeypatch.setattr(letter_import, "WINDOW", 2)
    take = letter_import.LetterImport._fill

    def fail(letters: letter_import.LetterImport) -> None:
        if letters.result.sent:
            raise MemoryError("for a test")
        take(letters)

    monkeypatch.setattr(letter_import.LetterImport, "_fill", fail)
    with pytest.raises(MemoryError):
        main(["dead-letters", "import", "-c", config, str(file), "--to", "destination", "--yes", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["sent"] >= 1
    assert result["sent"] + result["left"] == 5
    arrived = bench.emulator.call(lambda: bench.primary.runtime("orders").active)
    assert result["sent"] <= arrived <= len({*_numbers(result["sent_lines"]), *_numbers(result["uncertain_lines"])})


def test_a_message_that_was_sent_again_because_no_answer_came_is_a_possible_duplicate(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # D10
    """The destination has a minute to answer; the import's clock jumps over it as soon as the answer is lost."""
    bench.queue("orders")
    bench.bury(aliased("one", "orders", "m1"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    arguments = ("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes")
    assert answer(syphon(*arguments, "--json"))["possible_duplicates"] == 0

    lost = Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(lost))
    later = lambda: time.monotonic() + (time_budget.SEND_ANSWER_WITHIN if lost.struck else 0)  # noqa: E731
    monkeypatch.setattr("syphon.transfer.LetterImport", partial(letter_import.LetterImport, now=later))
    done = syphon(*arguments)
    assert lost.struck == 1
    assert (done.returncode, "Sent 1 of 1 line." in done.stdout) == (0, True)
    assert "1 of those sent may have arrived twice, with the same message id." in done.stdout
    assert len(bench.take("orders", 3)) == 3


def test_a_line_whose_partition_key_timed_out_is_sent_again(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:  # S8
    bench.queue("orders")
    bench.bury(aliased("one", "orders", "m1", x_ms_sessionid="a session"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    fault = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:timeout", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(fault))
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes")
    assert fault.struck == 1
    assert (done.returncode, "Sent 1 of 1 line." in done.stdout) == (0, True)


def _numbers(ranges: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_one_message_that_is_refused_is_named_by_its_line_and_the_others_arrive(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:
    bench.queue("orders")
    letters = [aliased("one", "orders"), aliased("two", "gone"), aliased("three", "orders")]
    bench.bury(*letters, reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes")
    assert done.returncode == 1
    assert "Sent 2 of 3 lines." in done.stdout
    assert "sent: 1,3" in done.stdout
    assert "not sent: 2; retry with --lines 2" in done.stdout
    assert len(bench.take("orders", 2)) == 2


def test_an_unreachable_namespace_is_an_exit_code_and_nothing_is_sent(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run
) -> None:
    bench.bury(aliased("one", "orders"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    text = config.read_text().replace(bench.string("contoso").partition(";")[0], "Endpoint=sb://127.0.0.1:9")
    config.write_text(text)
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "destination", "--yes", "--json")
    assert (done.returncode, answer(done)["sent"], answer(done)["left_lines"]) == (69, 0, "1")


@pytest.mark.parametrize(("lines", "text"), [([], ""), ([3], "3"), ([5, 1, 2, 3, 7], "1-3,5,7")])
def test_lines_are_named_as_the_option_takes_them(lines: list[int], text: str) -> None:
    assert line_ranges(lines) == text
    assert _numbers(text) == sorted(lines)


@pytest.mark.parametrize("lines", ["0", "a", "3-b", "3,,4", "34-"])
def test_lines_that_make_no_sense_or_do_not_exist_send_nothing(
    bench: Bench, tmp_path: Path, file: Path, syphon: Run, lines: str
) -> None:
    bench.bury(aliased("one", "orders"), reason="r")
    config = bench.config(tmp_path)
    syphon("dead-letters", "export", "-c", config, file)
    done = syphon("dead-letters", "import", "-c", config, file, "--to", "backlog", "--yes", "--lines", lines)
    assert (done.returncode, bench.counts()) == (0 if lines == "34-" else 2, (0, 1))
