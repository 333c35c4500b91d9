"""`syphon move`: from any queue to any entity, with the engine of a drain, on real Spark (X12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage

import syphon as python
from syphon.emulator import SubscriptionDescription, TopicDescription
from syphon.model import ExitCode, InvalidOption
from tests.integration.operations.conftest import DEAD, FIRST, Bench, Run, aliased, answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE, THERE = "contoso.secondary", "contoso.primary"


@pytest.mark.usefixtures("spark")
def test_dead_letters_are_moved_to_a_queue_of_another_namespace(bench: Bench, syphon: Run, tmp_path: Path) -> None:
    bench.queue("orders")
    bench.bury(*(aliased(f"n{n}", None, f"m{n}", n=str(n % 2)) for n in range(20)), reason="Timeout")
    where = ("--where", "sys.DeadLetterReason = 'Timeout' AND n = '0'")
    command = (
        "move",
        "-c",
        bench.config(tmp_path),
        "--from",
        f"{HERE}:{FIRST}/{DEAD}",
        "--to",
        f"{THERE}:orders",
        *where,
    )
    dry = answer(syphon(*command, "--dry-run", "--json"))
    assert (dry["messages"], dry["others"], dry["stay"], dry["exit_code"]) == (10, 10, {}, 0)
    assert bench.counts() == (0, 20)

    done = syphon(*command, "--yes", "--json")
    result = answer(done)
    assert (done.returncode, result["account"]["forwarded"], result["remaining"]) == (0, 10, 0), done.stderr
    ends = f"{HERE}:{FIRST}/{DEAD} to {THERE}:orders"
    assert result["verdict"] == (
        f"No matching message is left in {HERE}:{FIRST}/{DEAD}: 10 moved from {ends}; 10 messages there do not match "
        "the filter."
    )
    assert {message.message_id for message in bench.take("orders", 10)} == {f"m{n}" for n in range(0, 20, 2)}
    assert bench.counts() == (0, 10)


def test_a_move_in_python_returns_a_summary_and_the_ledger_knows_it(
    bench: Bench, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OLD", bench.string("contoso-dr"))
    (tmp_path / "new").write_text(bench.string("contoso") + "\n")
    bench.queue("orders")
    bench.queue("old", "contoso-dr")
    bench.put(*(aliased("x", None, f"m{n}") for n in range(5)), queue="old")
    summary = python.move(source="env:OLD:old", target="file:new:orders", spark=spark)
    assert (summary.exit_code, summary.verdict) == (
        ExitCode.OK,
        "env:OLD:old is empty: 5 moved from env:OLD:old to file:new:orders.",
    )
    assert "left in env:OLD:old" in summary._repr_html_()
    report = python.report(ledger=str(tmp_path / "ledger"), spark=spark)
    assert report.as_json()["transfers"]["forwarded"] == 5


def test_scheduled_messages_stay_and_the_move_says_so(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUS", bench.string("contoso"))
    bench.queue("orders")
    bench.queue("old")
    with bench.client("contoso").get_queue_sender("old") as sender:
        sender.schedule_messages(ServiceBusMessage("x"), datetime.now(UTC) + timedelta(days=1))
    summary = python.move(source="env:BUS:old", target="env:BUS:orders")
    assert (summary.exit_code, summary.as_json()["scheduled"]) == (ExitCode.LEFT, 1)
    assert summary.verdict == (
        "Only scheduled messages that match are left in env:BUS:old: 0 moved from env:BUS:old to env:BUS:orders; "
        "1 scheduled message stays until its time."
    )


def refused(source: str, target: str, bench: Bench, folder: Path) -> str:
    with pytest.raises(InvalidOption) as error:
        python.move(bench.config(folder), source=source, target=target)
    return str(error.value)


def test_what_is_wrong_with_a_move_is_said_before_its_first_message_moves(bench: Bench, tmp_path: Path) -> None:
    bench.queue("orders")
    bench.queue("grouped", "contoso-dr", requires_session=True)
    bench.queue("unique", requires_duplicate_detection=True)
    bench.emulator.call(lambda: bench.primary.create_topic(TopicDescription("news")))
    bench.emulator.call(lambda: bench.primary.create_subscription(SubscriptionDescription("news", "audit")))
    source, target = f"{HERE}:{FIRST}", f"{THERE}:orders"
    for found, text in (
        (refused(target, f"{THERE}:/Orders", bench, tmp_path), "are the same entity"),
        (refused(source, f"{THERE}:news/subscriptions/audit", bench, tmp_path), "only its topic accepts messages"),
        (
            refused(f"{THERE}:news/subscriptions/audit", f"{THERE}:News", bench, tmp_path),
            "every message would come back",
        ),
        (refused(source, f"{THERE}:gone", bench, tmp_path), "there is no such queue or topic in"),
        (refused(f"{HERE}:gone", target, bench, tmp_path), "there is no such entity in"),
        (refused(f"{HERE}:grouped", target, bench, tmp_path), "it requires sessions"),
        (refused("elsewhere:orders", target, bench, tmp_path), "They have: contoso.primary, contoso.secondary."),
        (refused("env:NOT_SET:orders", target, bench, tmp_path), "the variable NOT_SET is not set"),
        (refused("orders", target, bench, tmp_path), "is not NAMESPACE:ENTITY"),
        (refused(source, f"{THERE}:unique", bench, tmp_path), "--new-ids sends every message under a new id"),
    ):
        assert text in found


def test_a_connection_string_on_the_command_line_is_refused_and_not_repeated(bench: Bench, syphon: Run) -> None:
    done = syphon("move", "--from", f"{bench.string('contoso')}:orders", "--to", "env:NEW:orders")
    assert done.returncode == ExitCode.USAGE
    assert "other users see the command line" in done.stderr


def test_dead_letters_of_any_queue_or_subscription_are_listed_shown_and_exported(
    bench: Bench, syphon: Run, tmp_path: Path
) -> None:
    bench.queue("old", "contoso-dr")
    bench.bury(aliased("x", None, "m1"), aliased("y", None, "m2"), reason="Timeout", queue="old")
    config, entity = bench.config(tmp_path), ("--entity", f"{HERE}:old")
    (group,) = answer(syphon("dead-letters", "list", "-c", config, *entity, "--json"))["groups"]
    assert (group["reason"], group["messages"], group["example"]["queue"]) == ("Timeout", 2, "old")
    number = group["example"]["sequence_number"]
    shown = answer(syphon("dead-letters", "show", "-c", config, *entity, "--sequence-number", number, "--json"))
    assert shown["message_id"] == "m1"
    where = ("--where", "sys.MessageId = 'm2'", "--remove", "--yes", tmp_path / "letters.jsonl")
    assert syphon("dead-letters", "export", "-c", config, *entity, *where).returncode == 0
    assert bench.counts("old") == (0, 1)
    refusal = syphon("dead-letters", "list", "-c", config, *entity, "--queue", "0")
    assert refusal.returncode == ExitCode.USAGE


def test_the_entities_of_a_namespace_with_dead_letters_are_ranked(bench: Bench, syphon: Run, tmp_path: Path) -> None:
    for name, count in (("few", 1), ("many", 3), ("none", 0)):
        bench.queue(name, "contoso-dr")
        bench.bury(*(aliased("x", None) for _ in range(count)), reason="Timeout", queue=name)
    command = ("dead-letters", "list", "-c", bench.config(tmp_path), "--all")
    found = answer(syphon(*command, HERE, "--json"))["entities"]
    assert [(each["entity"], each["messages"]) for each in found] == [("many", 3), ("few", 1)]
    assert all(each["first_enqueued"] for each in found)
    assert "many" in syphon(*command, HERE).stdout
    assert "They have: contoso.primary" in syphon(*command, "elsewhere").stderr
    assert syphon(*command, HERE, "--each").returncode == ExitCode.USAGE
    secret = syphon(*command, bench.string("contoso"))
    assert (secret.returncode, "SharedAccessKey" in secret.stderr) == (ExitCode.USAGE, False)
