"""Dead letters over HTTP, on a real emulator: a list by reason, and a replay into the backlog."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from pydantic import SecretStr

from syphon.config import PairSettings
from syphon.emulator import (
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    NamespaceSettings,
    Outage,
    PolicySettings,
    QueueDescription,
)
from syphon.status import operator_api, status_server
from syphon.status.operator_api import DeadLetterApi, DeadLetterList, ReplayProgress, ReplayRequest, ReplayRuns
from tests.support.processes import aliased
from tests.support.status_server import Served, served
from tests.support.waiting import eventually

TOKEN = "a-token-of-the-operator"
SHOWN = {"Authorization": f"Bearer {TOKEN}", "X_Syphon": "me"}
FIRST, SECOND = "contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    namespaces = [NamespaceSettings(name=name) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        backlog = running["contoso-dr"].namespace
        running.call(lambda: [backlog.create_queue(QueueDescription(queue)) for queue in (FIRST, SECOND)])
        yield running


def pair_of(emulator: BackgroundEmulator) -> dict[str, Any]:
    sides = {
        role: {"connection_string": emulator[name].connection_string}
        for role, name in (("primary", "contoso"), ("secondary", "contoso-dr"))
    }
    return {"name": "contoso", **sides, "backlog_queue_count": 2}


@contextmanager
def server(emulator: BackgroundEmulator, token: str | None = TOKEN) -> Iterator[Served]:
    with served(token=token, pairs=[pair_of(emulator)]) as found:
        yield found


def dead_letter(emulator: BackgroundEmulator, queue: str, path: str, reason: str, count: int) -> None:
    with ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([aliased(number, path) for number in range(count)])
        with client.get_queue_receiver(queue) as receiver:
            for _ in range(count):
                (message,) = receiver.receive_messages(1)
                receiver.dead_letter_message(message, reason=reason, error_description=f"no {path}")


def active(emulator: BackgroundEmulator, queue: str) -> Counter[str]:
    with (
        ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        return Counter(str(message.message_id) for message in receiver.peek_messages(100))


def read(running: Served) -> DeadLetterList:
    return DeadLetterList.model_validate_json(running.ask("/dead-letters", **SHOWN).body)


def replayed(running: Served) -> tuple[DeadLetterList, ReplayProgress]:
    """The list after the end of the replay."""

    def found() -> tuple[DeadLetterList, ReplayProgress] | None:
        listed = read(running)
        return None if listed.replay is None or listed.replay.is_running else (listed, listed.replay)

    return eventually(found)


def counted(found: DeadLetterList) -> dict[tuple[str, str | None], int]:
    return {(group.reason, group.destination): group.messages for group in found.groups}


def test_dead_letters_are_listed_by_reason_and_one_line_of_the_list_is_put_back(
    emulator: BackgroundEmulator,
) -> None:  # X4
    began = datetime.now(UTC) - timedelta(milliseconds=1)  # the broker's times have no smaller fractions
    dead_letter(emulator, FIRST, "orders", "DestinationMissing", 3)
    dead_letter(emulator, SECOND, "orders", "DestinationMissing", 2)
    dead_letter(emulator, SECOND, "orders", "MessageTooLarge", 1)
    dead_letter(emulator, SECOND, "news", "DestinationMissing", 1)
    with server(emulator) as running:
        before = read(running)
        assert counted(before) == {
            ("DestinationMissing", "orders"): 5,
            ("MessageTooLarge", "orders"): 1,
            ("DestinationMissing", "news"): 1,
        }
        assert (before.is_complete, before.unseen, before.replay) == (True, {}, None)
        assert before.groups[0].says == "no orders"
        enqueued = before.groups[0].first_enqueued
        assert enqueued is not None
        assert began <= enqueued <= datetime.now(UTC)
        chosen = {"pair": "contoso", "reason": "DestinationMissing", "destination": "orders"}
        answer = running.ask("/dead-letters/replay", "POST", json.dumps(chosen), **SHOWN)
        assert (answer.status, ReplayProgress.model_validate_json(answer.body).is_running) == (202, True)
        after, progress = replayed(running)
        assert (progress.chosen, progress.replayed, progress.why_left) == (5, 5, {})
        assert counted(after) == {("MessageTooLarge", "orders"): 1, ("DestinationMissing", "news"): 1}
        assert (active(emulator, FIRST).total(), active(emulator, SECOND).total()) == (3, 2)


def test_dead_letters_that_their_queue_would_drop_as_duplicates_stay_and_the_page_says_so(
    emulator: BackgroundEmulator,
) -> None:  # S2, X4
    backlog = emulator["contoso-dr"].namespace
    emulator.call(lambda: backlog.delete(FIRST))
    emulator.call(lambda: backlog.create_queue(QueueDescription(FIRST, requires_duplicate_detection=True)))
    for queue in (FIRST, SECOND):
        dead_letter(emulator, queue, "orders", "DestinationMissing", 3)
    with server(emulator) as running:
        chosen = {"pair": "contoso", "reason": "DestinationMissing", "destination": "orders"}
        assert running.ask("/dead-letters/replay", "POST", json.dumps(chosen), **SHOWN).status == 202
        after, progress = replayed(running)
        assert (progress.chosen, progress.replayed, progress.errors) == (6, 3, [])
        ((why, count),) = progress.why_left.items()
        assert (count, "--new-ids" in why) == (3, True)
        assert counted(after) == {("DestinationMissing", "orders"): 3}
        assert (active(emulator, FIRST).total(), active(emulator, SECOND).total()) == (0, 3)


def test_without_the_manage_claim_the_page_puts_nothing_back_and_says_why() -> None:  # S2, P5
    root = PolicySettings(name="root", key=SecretStr("a-key-of-root"))
    worker = PolicySettings(name="worker", key=SecretStr("a-key"), claims=frozenset({Claim.SEND, Claim.LISTEN}))
    spaces = [NamespaceSettings(name=name, policies=[root, worker]) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=spaces)) as emulator:
        backlog = emulator["contoso-dr"].namespace
        emulator.call(lambda: [backlog.create_queue(QueueDescription(queue)) for queue in (FIRST, SECOND)])
        dead_letter(emulator, FIRST, "orders", "DestinationMissing", 3)
        pair = pair_of(emulator)
        pair["secondary"] = {"connection_string": emulator["contoso-dr"].connection_string_for("worker")}
        with served(token=TOKEN, pairs=[pair]) as running:
            chosen = {"pair": "contoso", "reason": "DestinationMissing", "destination": "orders"}
            assert running.ask("/dead-letters/replay", "POST", json.dumps(chosen), **SHOWN).status == 202
            after, progress = replayed(running)
        assert (progress.chosen, progress.replayed, sum(progress.why_left.values())) == (3, 0, 3)
        assert "Manage" in progress.errors[0]
        assert counted(after) == {("DestinationMissing", "orders"): 3}


def test_a_list_that_was_cut_short_says_so(emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch) -> None:  # X7
    dead_letter(emulator, FIRST, "orders", "DestinationMissing", 3)
    monkeypatch.setattr(operator_api, "MOST_READ", 2)
    with server(emulator) as running:
        found = read(running)
        assert (counted(found), found.is_complete) == ({("DestinationMissing", "orders"): 2}, False)


def test_queues_that_cannot_be_read_are_named_and_the_list_is_not_called_complete(
    emulator: BackgroundEmulator,
) -> None:  # X7
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.REFUSE))
    with server(emulator) as running:
        found = read(running)
        assert set(found.unseen) == {f"contoso: {FIRST}", f"contoso: {SECOND}"}
        assert (found.is_complete, found.groups) == (False, [])


def test_the_end_of_the_worker_waits_for_a_replay_so_that_no_message_exists_twice(
    emulator: BackgroundEmulator,
) -> None:  # S2
    dead_letter(emulator, FIRST, "orders", "DestinationMissing", 40)
    api = DeadLetterApi([PairSettings.model_validate(pair_of(emulator))])
    request = ReplayRequest(pair="contoso", reason="DestinationMissing", destination="orders")
    assert api.replay(request).is_running
    eventually(lambda: api._replay is not None and api._replay.progress().replayed)
    api.close()
    progress = api._replay.progress() if api._replay is not None else None
    assert progress is not None
    assert not progress.is_running
    put_back, dead = active(emulator, FIRST), active(emulator, f"{FIRST}/$deadletterqueue")
    assert put_back.total() == progress.replayed > 0
    assert (put_back + dead).total() == 40
    with pytest.raises(ReplayRuns):
        api.replay(request)


def test_a_silent_secondary_is_asked_once_for_all_and_the_page_says_so(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "LIST_WITHIN", 0.2)
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.HANG))
    with server(emulator) as running:
        answers = [running.ask("/dead-letters", **SHOWN) for _ in range(3)]
        assert [answer.status for answer in answers] == [503, 503, 503]
        assert [thread.name for thread in threading.enumerate()].count("read dead letters") == 1
        emulator.call(lambda: emulator["contoso-dr"].namespace.faults.end_outage())
        eventually(lambda: "read dead letters" not in [thread.name for thread in threading.enumerate()])


def test_without_a_token_nothing_is_put_back(emulator: BackgroundEmulator) -> None:  # T12
    dead_letter(emulator, FIRST, "orders", "DestinationMissing", 1)
    with server(emulator, token=None) as running:
        chosen = {"pair": "contoso", "reason": "DestinationMissing", "destination": "orders"}
        answer = running.ask("/dead-letters/replay", "POST", json.dumps(chosen), X_Syphon="me")
        assert (answer.status, "status.token" in answer.body) == (403, True)
        assert counted(read(running)) == {("DestinationMissing", "orders"): 1}


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "https://evil.example", "X_Syphon": "me"}, {"Sec_Fetch_Site": "cross-site"}]
)
def test_a_page_of_another_site_cannot_make_us_spend_operations(
    emulator: BackgroundEmulator, headers: dict[str, str]
) -> None:  # T12
    with server(emulator, token=None) as running:
        assert running.ask("/dead-letters", **headers).status == 403
        assert "read dead letters" not in [thread.name for thread in threading.enumerate()]
        assert set(emulator.call(emulator["contoso-dr"].namespace.counters.totals).values()) == {0}
        assert running.ask("/dead-letters", X_Syphon="me").status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 400),
        ('{"pair": "contoso"}', 400),
        ('{"pair": "contoso", "reason": "r", "destination": null, "to": "primary"}', 400),
        ('{"pair": "nobody", "reason": "r", "destination": null}', 404),
    ],
)
def test_a_request_that_names_nothing_changes_nothing(emulator: BackgroundEmulator, body: str, status: int) -> None:
    with server(emulator) as running:
        assert running.ask("/dead-letters/replay", "POST", body, **SHOWN).status == status
        assert read(running).replay is None


def test_a_reason_with_the_characters_of_a_pattern_selects_only_itself(emulator: BackgroundEmulator) -> None:
    dead_letter(emulator, FIRST, "orders", "*", 1)
    dead_letter(emulator, FIRST, "orders", "DestinationMissing", 1)
    with server(emulator) as running:
        chosen = {"pair": "contoso", "reason": "*", "destination": "orders"}
        assert running.ask("/dead-letters/replay", "POST", json.dumps(chosen), **SHOWN).status == 202
        assert counted(replayed(running)[0]) == {("DestinationMissing", "orders"): 1}
