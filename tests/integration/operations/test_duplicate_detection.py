"""Nothing is lost where an entity detects duplicates: it accepts a message whose id it knows, and drops it silently."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.emulator import QueueDescription, SubscriptionDescription, TopicDescription
from syphon.emulator.broker import BrokerNamespace
from syphon.emulator.clock import SystemClock
from tests.integration.operations.conftest import FIRST, Bench, Run, aliased, answer, running
from tests.support.cli_process import run_syphon

COUNT = 40
BODIES = Counter(f"{number}" for number in range(COUNT))
HOUR = 3_600_000


class ShiftedClock(SystemClock):
    """The clock of a service that differs from ours."""

    ahead = 0
    """Milliseconds."""

    def now(self) -> int:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def bench(clock: ShiftedClock) -> Iterator[Bench]:
    """A pair whose first backlog queue detects duplicates: its owner has changed it (P3)."""
    with running(clock) as bench:

        def replace() -> None:
            bench.secondary.delete(FIRST)
            bench.secondary.create_queue(QueueDescription(FIRST, requires_duplicate_detection=True))

        bench.emulator.call(replace)
        yield bench


def dead_letter(bench: Bench, *messages: tuple[str, str], path: str = "orders") -> None:
    """Sends messages, bodies and their ids, into the first backlog queue, and dead-letters them there."""
    with bench.client("contoso-dr") as client, client.get_queue_sender(FIRST) as sender:
        sender.send_messages(
            [
                ServiceBusMessage(body, message_id=identity, application_properties={"x-ms-path": path})
                for body, identity in messages
            ]
        )
    bench.reject(len(messages), "DestinationMissing")


def forty(bench: Bench) -> None:
    dead_letter(bench, *((f"{number}", f"m{number}") for number in range(COUNT)))


def known(bench: Bench, queue: str = "orders", count: int = COUNT) -> None:
    """A destination that detects duplicates and has seen all ids: its consumer has received the messages."""
    bench.queue(queue, requires_duplicate_detection=True)
    with bench.client("contoso") as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("seen", message_id=f"m{number}") for number in range(count)])
    assert len(bench.take(queue, count)) == count


def run(bench: Bench, folder: Path, *arguments: str, policy: str = "owner") -> tuple[int, Any, str]:
    """Runs the command as a process: its exit code, its JSON, and what it says on stderr."""
    config = bench.config(folder)
    config.write_text(config.read_text().replace("SharedAccessKeyName=owner", f"SharedAccessKeyName={policy}"))
    done = run_syphon("dead-letters", arguments[0], "-c", str(config), *arguments[1:], "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def replay(bench: Bench, folder: Path, target: str, *more: str, **options: str) -> tuple[int, Any, str]:
    return run(bench, folder, "replay", "--to", target, "--yes", *more, **options)


def exported(bench: Bench, folder: Path, *more: str) -> str:
    file = folder / "letters.jsonl"
    assert run(bench, folder, "export", str(file), *more)[0] == 0
    return str(file)


def bodies(messages: list[Any]) -> Counter[str]:
    return Counter(str(message) for message in messages)


# --- back into the backlog queue --------------------------------------------------------------------------------------


def test_what_a_backlog_queue_would_drop_stays_a_dead_letter(bench: Bench, tmp_path: Path) -> None:  # S2, X4
    forty(bench)
    code, result, _ = replay(bench, tmp_path, "backlog")
    assert (code, result["chosen"], result["replayed"], result["left"]) == (1, COUNT, 0, COUNT)
    (why,) = result["why_left"]
    assert why["messages"] == COUNT
    assert f"'{FIRST}' detects duplicates" in why["why"]
    assert "--new-ids" in why["why"]
    assert bodies(bench.take(FIRST, COUNT, "contoso-dr", dead=True)) == BODIES
    assert bench.counts() == (0, 0)


def test_new_ids_put_it_back_and_both_ids_are_reported(bench: Bench, tmp_path: Path) -> None:  # S2, X4
    forty(bench)
    code, result, _ = replay(bench, tmp_path, "backlog", "--new-ids")
    assert (code, result["replayed"], result["left"]) == (0, COUNT, 0)
    assert sorted(new["message_id"] for new in result["new_ids"]) == sorted(f"m{i}" for i in range(COUNT))
    back = bench.take(FIRST, COUNT, "contoso-dr")
    assert bodies(back) == BODIES
    assert {str(one.message_id) for one in back} == {new["new_message_id"] for new in result["new_ids"]}
    assert {(new["queue"], new["sequence_number"]) for new in result["new_ids"]} == {
        (FIRST, number) for number in range(1, COUNT + 1)
    }
    assert bench.counts() == (0, 0)


def test_an_old_dead_letter_stays_because_another_message_may_have_brought_its_id(
    bench: Bench, clock: ShiftedClock, tmp_path: Path
) -> None:  # S2
    """It came an hour ago, and the window is ten minutes. A message with its id came just now, and was forwarded."""
    clock.ahead = -HOUR
    dead_letter(bench, ("one", "same"))
    clock.ahead = 0
    with bench.client("contoso-dr") as client, client.get_queue_sender(FIRST) as sender:
        sender.send_messages(ServiceBusMessage("two", message_id="same"))
    assert bodies(bench.take(FIRST, 1, "contoso-dr")) == Counter(["two"])
    code, result, _ = replay(bench, tmp_path, "backlog")
    assert (code, result["replayed"], result["left"]) == (1, 0, 1)
    assert replay(bench, tmp_path, "backlog", "--new-ids")[0] == 0
    assert bodies(bench.take(FIRST, 1, "contoso-dr")) == Counter(["one"])


def test_dead_letters_with_one_id_are_all_put_back_under_new_ids(
    bench: Bench, clock: ShiftedClock, tmp_path: Path
) -> None:  # S2
    for hours, body in ((-2, "one"), (-1, "two")):
        clock.ahead = hours * HOUR
        dead_letter(bench, (body, "same"))
    clock.ahead = 0
    assert replay(bench, tmp_path, "backlog")[1]["left"] == 2
    assert replay(bench, tmp_path, "backlog", "--new-ids")[0] == 0
    assert bodies(bench.take(FIRST, 2, "contoso-dr")) == Counter(["one", "two"])


def test_a_message_without_an_id_is_never_a_duplicate(bench: Bench, tmp_path: Path) -> None:
    bench.bury(aliased("anonymous", "orders"), reason="DestinationMissing")
    code, result, _ = replay(bench, tmp_path, "backlog")
    assert (code, result["replayed"]) == (0, 1)
    assert bodies(bench.take(FIRST, 1, "contoso-dr")) == Counter(["anonymous"])


def test_a_dry_run_tells_the_same(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    forty(bench)
    arguments = ("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "backlog", "--dry-run")
    done = syphon(*arguments, "--json")
    assert done.returncode == 1, "that of the replay"
    result = json.loads(done.stdout)
    assert (result["replayed"], result["left"], result["new_ids"]) == (0, COUNT, [])
    result = answer(syphon(*arguments, "--new-ids", "--json"))
    assert (result["replayed"], result["left"], len(result["new_ids"])) == (COUNT, 0, COUNT)
    assert result["new_ids"][0]["new_message_id"] is None
    assert "40 would get a new message id." in syphon(*arguments, "--new-ids").stdout
    assert bench.counts() == (0, COUNT)


def test_the_summary_has_both_ids_of_each(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    dead_letter(bench, ("hello", "m1"))
    done = syphon("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "backlog", "--new-ids", "--yes")
    (message,) = bench.take(FIRST, 1, "contoso-dr")
    assert f"m1 -> {message.message_id}" in done.stdout


# --- to destinations --------------------------------------------------------------------------------------------------


def test_what_a_destination_would_drop_stays_a_dead_letter(bench: Bench, tmp_path: Path) -> None:  # S2, X4
    known(bench)
    forty(bench)
    code, result, _ = replay(bench, tmp_path, "destination")
    assert (code, result["replayed"], result["left"]) == (1, 0, COUNT)
    assert "'orders' detects duplicates" in result["why_left"][0]["why"]
    code, result, _ = replay(bench, tmp_path, "destination", "--new-ids")
    assert (code, result["replayed"], len(result["new_ids"])) == (0, COUNT, COUNT)
    assert bodies(bench.take("orders", COUNT)) == BODIES
    assert bench.counts() == (0, 0)


def test_a_renamed_destination_is_the_one_that_counts(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # D13
    bench.queue("orders")
    bench.queue("once", requires_duplicate_detection=True)
    dead_letter(bench, ("hello", "m1"))
    config = bench.config(tmp_path)
    config.write_text(config.read_text().replace("{allow: ['*']}", "{allow: ['*'], rename: {orders: once}}"))
    result = answer(syphon("dead-letters", "replay", "-c", config, "--to", "destination", "--yes", "--json"))
    assert (result["replayed"], result["left"]) == (0, 1)
    assert "'once' detects duplicates" in result["why_left"][0]["why"]


def forwarding_topic(namespace: BrokerNamespace) -> None:
    namespace.create_topic(TopicDescription("orders"))
    namespace.create_subscription(SubscriptionDescription("orders", "all", forward_to="once"))


def forwarding_queues(namespace: BrokerNamespace) -> None:
    namespace.create_queue(QueueDescription("between", forward_to="once"))
    namespace.create_queue(QueueDescription("orders", forward_to="between"))


def detecting_topic(namespace: BrokerNamespace) -> None:
    namespace.create_topic(TopicDescription("orders", requires_duplicate_detection=True))
    namespace.create_subscription(SubscriptionDescription("orders", "all"))


@pytest.mark.parametrize("create", [forwarding_topic, forwarding_queues, detecting_topic])
def test_topics_and_what_a_destination_forwards_to_count_too(
    bench: Bench, tmp_path: Path, syphon: Run, create: Callable[[BrokerNamespace], None]
) -> None:  # S2
    bench.queue("once", requires_duplicate_detection=True)
    bench.emulator.call(lambda: create(bench.primary))
    dead_letter(bench, ("hello", "m1"))
    arguments = ("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "destination", "--yes", "--json")
    assert answer(syphon(*arguments))["left"] == 1
    assert bench.counts() == (0, 1)


def test_where_no_duplicates_are_detected_nothing_changes(bench: Bench, tmp_path: Path) -> None:  # X4
    bench.queue("orders")
    forty(bench)
    code, result, err = replay(bench, tmp_path, "destination", "--new-ids")
    assert (code, result["replayed"], result["new_ids"], "not known" in err) == (0, COUNT, [], False)
    assert {message.message_id for message in bench.take("orders", COUNT)} == {f"m{i}" for i in range(COUNT)}


# --- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["backlog", "destination"])
def test_an_import_sends_nothing_that_would_be_dropped(bench: Bench, tmp_path: Path, target: str) -> None:  # S2, X4
    known(bench)
    forty(bench)
    file = exported(bench, tmp_path, "--remove", "--yes")
    assert bench.counts() == (0, 0)
    arguments = ("import", file, "--to", target, "--yes")
    code, result, _ = run(bench, tmp_path, *arguments)
    assert (code, result["sent"], result["left_lines"]) == (1, 0, f"1-{COUNT}")
    assert "detects duplicates" in result["why_left"][0]["why"]
    code, result, _ = run(bench, tmp_path, *arguments, "--new-ids")
    assert (code, result["sent"], result["left"]) == (0, COUNT, 0)
    assert [(new["line"], new["message_id"]) for new in result["new_ids"]] == [(i + 1, f"m{i}") for i in range(COUNT)]
    arrived = bench.take(FIRST, COUNT, "contoso-dr") if target == "backlog" else bench.take("orders", COUNT)
    assert bodies(arrived) == BODIES
    assert {str(one.message_id) for one in arrived} == {new["new_message_id"] for new in result["new_ids"]}


def test_a_dry_run_of_an_import_tells_the_same(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    forty(bench)
    file = exported(bench, tmp_path)
    arguments = ("dead-letters", "import", "-c", bench.config(tmp_path), file, "--to", "backlog", "--dry-run", "--json")
    done = syphon(*arguments)
    assert (done.returncode, answer(done)["left"]) == (1, COUNT)
    result = answer(syphon(*arguments, "--new-ids"))
    assert (result["left"], len(result["new_ids"]), result["new_ids"][0]["new_message_id"]) == (0, COUNT, None)


# --- without the Manage claim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["backlog", "destination"])
def test_where_it_is_not_known_the_operator_decides(bench: Bench, tmp_path: Path, target: str) -> None:  # S2, P5
    bench.queue("orders")
    forty(bench)
    code, result, err = replay(bench, tmp_path, target, policy="worker")
    assert (code, result["replayed"], result["left"]) == (1, 0, COUNT)
    (line,) = err.splitlines()
    assert line.startswith("Could not check for duplicate detection: ")
    assert "Manage" in line
    assert "--assume-no-duplicate-detection" in result["why_left"][0]["why"]
    code, result, _ = replay(bench, tmp_path, target, "--new-ids", policy="worker")
    assert (code, len(result["new_ids"])) == (0, COUNT)
    arrived = bench.take(FIRST, COUNT, "contoso-dr") if target == "backlog" else bench.take("orders", COUNT)
    assert bodies(arrived) == BODIES


def test_the_operator_can_say_that_there_is_none(bench: Bench, tmp_path: Path) -> None:
    bench.queue("orders")
    forty(bench)
    code, result, _ = replay(bench, tmp_path, "destination", "--assume-no-duplicate-detection", policy="worker")
    assert (code, result["replayed"], result["new_ids"]) == (0, COUNT, [])
    assert {message.message_id for message in bench.take("orders", COUNT)} == {f"m{i}" for i in range(COUNT)}


def test_what_is_known_is_not_overruled_by_an_assumption(bench: Bench, tmp_path: Path) -> None:  # S2
    forty(bench)
    assert replay(bench, tmp_path, "backlog", "--assume-no-duplicate-detection")[0] == 1
    assert bodies(bench.take(FIRST, COUNT, "contoso-dr", dead=True)) == BODIES
