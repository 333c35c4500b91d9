"""`inspect`, `dead-letters` and `cost` as an operator runs them: real files, real namespaces, exit codes."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.cli.dead_letters.show import body_lines
from syphon.cost import LIST_PRICES
from syphon.emulator import Action, Fault, Operation
from tests.integration.operations.conftest import FIRST, KEY, SECOND, Bench, Run, aliased, answer


def in_a_process(*arguments: object, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syphon", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, stdin=stdin)
    assert KEY not in done.stdout + done.stderr
    return done


# --- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect_shows_messages_by_destination_and_those_that_would_be_dead_lettered(
    bench: Bench, tmp_path: Path
) -> None:
    bench.put(*(aliased("x", "orders") for _ in range(7)), aliased("x", "secret"))
    bench.put(aliased("whose?", None), queue=SECOND)
    done = in_a_process("inspect", "-c", bench.config(tmp_path, "orders"))
    assert done.returncode == 0
    assert done.stderr == "Starting Spark on local[2] …\n"
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["contoso", "orders", "7"] in [row[:3] for row in rows]
    assert ["contoso", "secret", "DestinationNotAllowed", "1"] in [row[:4] for row in rows]
    assert ["contoso", "(none)", "NoDestination", "1"] in [row[:4] for row in rows]
    assert "9 messages" in done.stdout


def test_messages_in_queues_that_no_pair_listens_to_are_named(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # P4
    bench.queue("other/x-servicebus-transfer/0", "contoso-dr")
    bench.put(aliased("x", "orders"), queue="other/x-servicebus-transfer/0")
    file = bench.config(tmp_path)
    for command in (["inspect"], ["drain", "--all-found", "--dry-run"]):
        done = syphon(*command, "-c", file)
        assert done.returncode == 0
        assert ": 1 message in 1 queue other/x-servicebus-transfer/*, to which no pair" in done.stderr


def test_a_missing_queue_is_reported_before_spark_starts(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    file = bench.config(tmp_path)
    file.write_text(file.read_text().replace("backlog_queue_count: 2", "backlog_queue_count: 3"))
    done = syphon("inspect", "-c", file, "--queue", "2")
    assert done.returncode == 1
    path = "contoso/x-servicebus-transfer/2"
    assert done.stderr.startswith(f"{path}: ")
    assert f"there is no '{path}'" in done.stderr


@pytest.mark.parametrize("command", [["inspect"], ["dead-letters", "list"]])
def test_credentials_that_are_refused_have_their_own_exit_code(
    bench: Bench, tmp_path: Path, syphon: Run, command: list[str]
) -> None:
    file = bench.config(tmp_path)
    file.write_text(file.read_text().replace(KEY, "wrong"))
    done = syphon(*command, "-c", file)
    assert done.returncode == 77
    claimed = "" if command == ["inspect"] else "No dead letters found; 2 queues could not be read.\n"
    assert done.stdout == claimed


def test_sums_say_that_a_queue_could_not_be_looked_into(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # X4
    file = bench.config(tmp_path)
    file.write_text(file.read_text().replace("backlog_queue_count: 2", "backlog_queue_count: 3"))
    nothing = syphon("dead-letters", "list", "-c", file)
    assert (nothing.returncode, nothing.stdout) == (1, "No dead letters found; 1 queue could not be read.\n")
    bench.bury(aliased("one", "orders"), reason="r")
    for command in (["list"], ["replay", "--to", "backlog", "--dry-run"]):
        said = syphon("dead-letters", *command, "-c", file).stdout
        assert "1 dead letter; 1 queue could not be read.\n" in said


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--queue", "7", "No backlog queue matches '7'"),
        ("--pair", "fabrikam", "no pair 'fabrikam'"),
        ("--before", "soon", "is not a time"),
    ],
)
def test_options_that_select_nothing_are_an_error_of_usage(
    bench: Bench, tmp_path: Path, syphon: Run, option: str, value: str, words: str
) -> None:
    done = syphon("dead-letters", "list", "-c", bench.config(tmp_path), option, value)
    assert done.returncode == 2
    assert words in done.stderr


# --- dead letters ----------------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_by_reason_and_destination(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # X4
    began = datetime.now(UTC) - timedelta(milliseconds=1)  # the list has no smaller fractions
    bench.bury(*(aliased("x", "gone") for _ in range(3)), reason="DestinationMissing", description="no 'gone'")
    bench.bury(aliased("x", None, "m9"), reason="NoDestination", description="x-ms-path is missing", queue=SECOND)
    config = bench.config(tmp_path)
    done = syphon("dead-letters", "list", "-c", config, "--json")
    assert done.returncode == 0
    missing, lacking = answer(done)["groups"]
    assert (missing["reason"], missing["destination"], missing["messages"]) == ("DestinationMissing", "gone", 3)
    assert (lacking["reason"], lacking["destination"], lacking["messages"]) == ("NoDestination", None, 1)
    # `oldest` is the word of the report: since when a message was in the backlog. A dead-letter queue has its own time.
    assert began <= datetime.fromisoformat(lacking["first_enqueued"]) <= datetime.now(UTC)
    assert "oldest" not in lacking
    assert lacking["example"] == {
        "queue": SECOND,
        "sequence_number": 1,
        "message_id": "m9",
        "description": "x-ms-path is missing",
    }
    only = answer(syphon("dead-letters", "list", "-c", config, "--json", "--destination", "", "--after", "1h"))
    assert [group["reason"] for group in only["groups"]] == ["NoDestination"]
    assert answer(syphon("dead-letters", "list", "-c", config, "--json", "--before", "1h"))["groups"] == []
    assert [bench.counts(queue)[1] for queue in (FIRST, SECOND)] == [3, 1]


def test_one_dead_letter_is_shown_with_its_types_and_its_body_only_on_request(
    bench: Bench, tmp_path: Path, syphon: Run
) -> None:
    bench.bury(aliased("a secret", None, "m1", flag=True), reason="NoDestination", description="x-ms-path is missing")
    config = bench.config(tmp_path)
    shown = syphon("dead-letters", "show", "-c", config, "--sequence-number", "1", "--json")
    assert shown.returncode == 0
    assert "a secret" not in shown.stdout
    record = answer(shown)
    assert (record["reason"], record["description"]) == ("NoDestination", "x-ms-path is missing")
    assert {"name": "flag", "type": "boolean", "value": True} in record["application_properties"]
    assert {"name": "x-opt-deadletter-source", "type": "string", "value": FIRST} in record["annotations"]
    assert record["body"] == {"kind": "data", "bytes": 16}
    assert "a secret" in syphon("dead-letters", "show", "-c", config, "--sequence-number", "1", "--body").stdout
    absent = syphon("dead-letters", "show", "-c", config, "--sequence-number", "2")
    assert absent.returncode == 1
    assert "sequence number 2" in absent.stderr


def test_a_body_is_printed_as_text_or_as_a_hexdump_and_never_as_python_shows_it() -> None:
    lines = list(body_lines({"base64": base64.b64encode(bytes(range(60, 80))).decode()}))
    assert lines == [
        "00000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK",
        "00000010  4c 4d 4e 4f                                      LMNO",
    ]
    assert list(body_lines({"text": "a\nb\x1b"})) == ["a", "b\ufffd"]
    assert list(body_lines("a value")) == ["a value"]
    assert next(body_lines([{"key": "k", "type": "string", "value": "v"}])) == "["


def test_replay_from_start_to_end_with_the_official_client_on_both_ends(
    bench: Bench, tmp_path: Path, syphon: Run
) -> None:  # X4
    bench.queue("orders")
    properties: dict[Any, Any] = {"x-ms-path": "orders", "x-ms-timetolive": "PT2H", "colour": "red"}
    with bench.client("contoso-dr") as client:
        with client.get_queue_sender(FIRST) as sender:
            sender.send_messages(ServiceBusMessage("hello", message_id="m1", application_properties=properties))
        with client.get_queue_receiver(FIRST) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=20)
            receiver.dead_letter_message(message, reason="DestinationMissing", error_description="no orders")
    config = bench.config(tmp_path)
    dry = syphon("dead-letters", "replay", "-c", config, "--to", "destination", "--dry-run")
    assert dry.returncode == 0
    assert "Would replay 1 of 1" in dry.stdout
    assert bench.counts() == (0, 1)
    done = syphon("dead-letters", "replay", "-c", config, "--to", "destination", "--yes")
    assert done.returncode == 0
    assert "Replayed 1 of 1." in done.stdout
    (arrived,) = bench.take("orders", 1)
    assert (str(arrived), arrived.message_id, arrived.application_properties) == ("hello", "m1", {b"colour": b"red"})
    assert arrived.time_to_live.total_seconds() == 7200
    assert bench.counts() == (0, 0)


def test_a_replay_warns_that_messages_come_late_in_the_order_of_their_sessions(
    bench: Bench, tmp_path: Path, syphon: Run
) -> None:  # X4, D21
    bench.bury(aliased("a", "orders", "m1", x_ms_sessionid="alice"), aliased("b", "orders", "m2"), reason="r")
    config = bench.config(tmp_path)
    arguments = ("dead-letters", "replay", "-c", config, "--to", "backlog", "--dry-run")
    assert "in the order of their sessions" not in syphon(*arguments).stderr
    config.write_text(config.read_text().replace("    backlog_queue", "    session_order: true\n    backlog_queue"))
    assert "1 message with a session: in the order of their sessions they come after" in syphon(*arguments).stderr


def test_messages_that_stay_are_reported_with_the_reason_and_an_exit_code(
    bench: Bench, tmp_path: Path, syphon: Run
) -> None:
    bench.bury(aliased("x", "gone"), aliased("y", None), reason="x")
    arguments = ("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "destination", "--json")
    dry = answer(syphon(*arguments, "--dry-run"))
    assert (dry["chosen"], dry["replayed"], dry["left"]) == (2, 1, 1)  # that 'gone' is gone is known when it is tried
    done = syphon(*arguments, "--yes")
    assert done.returncode == 1
    result = answer(done)
    assert (result["chosen"], result["replayed"], result["left"]) == (2, 0, 2)
    assert sorted(one["why"].partition(":")[0] for one in result["why_left"]) == ["DestinationMissing", "NoDestination"]


def test_a_destination_can_be_set_but_none_that_is_not_allowed(
    bench: Bench, tmp_path: Path, syphon: Run
) -> None:  # D13
    bench.bury(aliased("x", None, "m1"), reason="NoDestination")
    config = bench.config(tmp_path, "orders")
    arguments = ("dead-letters", "replay", "-c", config, "--to", "backlog", "--yes", "--set-path")
    refused = syphon(*arguments, "secret")
    assert refused.returncode == 2
    assert "'secret'" in refused.stderr
    assert bench.counts() == (0, 1)
    assert syphon(*arguments, "orders").returncode == 0
    (message,) = bench.take(FIRST, 1, "contoso-dr")
    assert (message.message_id, message.application_properties) == ("m1", {b"x-ms-path": b"orders"})


def test_without_a_terminal_nothing_is_put_back_unless_yes_is_given(bench: Bench, tmp_path: Path, syphon: Run) -> None:
    bench.bury(aliased("x", "orders"), reason="x")
    done = syphon("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "backlog")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert bench.counts() == (0, 1)


@pytest.mark.parametrize(("said", "code", "after"), [("n\n", 1, (0, 1)), ("y\n", 0, (1, 0))])
def test_on_a_terminal_it_asks_and_follows_the_answer(
    bench: Bench, tmp_path: Path, said: str, code: int, after: tuple[int, int]
) -> None:
    bench.bury(aliased("x", "orders"), reason="x")
    terminal, stdin = pty.openpty()
    try:
        os.write(terminal, said.encode())
        done = in_a_process("dead-letters", "replay", "-c", bench.config(tmp_path), "--to", "backlog", stdin=stdin)
    finally:
        os.close(terminal)
        os.close(stdin)
    assert "Replay 1 dead letter to the backlog?" in done.stderr
    assert done.returncode == code
    assert bench.counts() == after


def test_the_first_ctrl_c_releases_waiting_messages_and_the_counts_balance(bench: Bench, tmp_path: Path) -> None:
    bench.queue("orders")
    bench.bury(*(aliased(f"{i}", "orders") for i in range(5)), reason="x")
    full = Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:resource-limit-exceeded")
    bench.emulator.call(lambda: bench.primary.faults.add(full))
    arguments = ["dead-letters", "replay", "-c", str(bench.config(tmp_path)), "--to", "destination", "--yes", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "syphon", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["progress"]["chosen"] == 5
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert "Stopping" in err
    result = json.loads(out)
    assert (process.returncode, result["chosen"], result["replayed"], result["left"]) == (1, 5, 0, 5)
    assert len(bench.take(FIRST, 5, "contoso-dr", dead=True)) == 5


def test_commands_that_need_no_spark_do_not_load_it(bench: Bench, tmp_path: Path) -> None:  # D11
    probe = "import sys\nfrom syphon.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n    "
    probe += "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    config = str(bench.config(tmp_path))
    commands = (["dead-letters", "list", "-c", config], ["inspect", "-c", config], ["cost"], ["inspect", "--help"])
    for arguments in commands:  # the backlog is empty
        done = subprocess.run([sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


# --- cost ------------------------------------------------------------------------------------------------------------


def test_the_cost_of_an_idle_month_and_of_a_drain_is_shown_with_the_date_of_its_prices(syphon: Run) -> None:  # S1, S7
    output = syphon("cost", "--messages", "1000000").stdout
    assert "List prices as of 2026" in output
    assert "28,800  operations" in output
    assert "4,000,010  operations" in output
    result = answer(syphon("cost", "--messages", "1000000", "--json"))
    assert (result["idle"]["operations"], result["drain"]["operations"]) == (28_800, 4_000_010)
    whose = [share["whose"] for share in result["drain"]["shares"]]
    assert whose == ["sender", "syphon", "syphon", "receiver", "syphon"]


def test_own_prices_are_used_and_validated(tmp_path: Path, syphon: Run) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(LIST_PRICES.read_text().replace("per_million: 0.80", "per_million: 8"))
    assert answer(syphon("cost", "--messages", "1000000", "--prices", file, "--json"))["drain"]["most"] == 32.00008
    file.write_text("currency: USD\n")
    wrong = syphon("cost", "--prices", file)
    assert wrong.returncode == 78
    assert "standard is missing" in wrong.stderr


def test_one_dead_letter_is_listed_and_replayed_by_its_number(bench: Bench, tmp_path: Path, syphon: Run) -> None:  # X4
    for name in ("m1", "m2", "m3"):
        bench.bury(aliased(name, "orders", name), reason="DestinationMissing")
    config = bench.config(tmp_path)
    letters = answer(syphon("dead-letters", "list", "-c", config, "--each", "--json"))["letters"]
    assert [(letter["message_id"], letter["destination"]) for letter in letters] == [
        ("m1", "orders"),
        ("m2", "orders"),
        ("m3", "orders"),
    ]
    number = letters[1]["sequence_number"]
    shown = syphon("dead-letters", "list", "-c", config, "--each").stdout
    assert any(line.split()[0] == str(number) and "m2" in line.split() for line in shown.splitlines() if line)
    done = syphon(
        "dead-letters", "replay", "-c", config, "--sequence-number", number, "--to", "backlog", "--yes", "--json"
    )
    assert (done.returncode, answer(done)["replayed"]) == (0, 1)
    left = answer(syphon("dead-letters", "list", "-c", config, "--each", "--json"))["letters"]
    assert [letter["message_id"] for letter in left] == ["m1", "m3"]
