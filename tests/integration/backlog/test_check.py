"""Preflight checks find problems on both sides of a pair, and change nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pydantic import SecretStr

from syphon.amqp import Header, UInt, data_section, header_bytes
from syphon.backlog import check as preflight
from syphon.backlog.check import Finding, Level, preflight_checks, stranded_backlogs
from syphon.config import PairSettings
from syphon.emulator import (
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    EntityStatus,
    NamespaceSettings,
    PolicySettings,
    QueueDescription,
)
from syphon.emulator.broker.message import BrokeredMessage

KEY = "a-key-that-must-not-be-seen"
PREFIX = "contoso/x-servicebus-transfer"
DOCUMENTED = QueueDescription(
    f"{PREFIX}/0", max_size_in_megabytes=5120, max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True
)
FINE, WARNING, PROBLEM, DENIED, UNREACHABLE = (
    Level.FINE,
    Level.WARNING,
    Level.PROBLEM,
    Level.DENIED,
    Level.UNREACHABLE,
)


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="worker", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN, Claim.SEND})),
        PolicySettings(name="listener", key=SecretStr(KEY), claims=frozenset({Claim.LISTEN})),
        PolicySettings(name="sender", key=SecretStr(KEY), claims=frozenset({Claim.SEND})),
    ]
    namespaces = [NamespaceSettings(name=name, policies=policies) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        yield running


def make(emulator: BackgroundEmulator, namespace: str, *queues: QueueDescription) -> None:
    for queue in queues:
        emulator.call(lambda queue=queue: emulator[namespace].namespace.create_queue(queue))  # type: ignore[misc]


def pair(emulator: BackgroundEmulator, policy: str = "owner", **more: Any) -> PairSettings:
    primary, secondary = (emulator[name].connection_string_for(policy) for name in ("contoso", "contoso-dr"))
    sides = {"primary": {"connection_string": primary}, "secondary": {"connection_string": secondary}}
    return PairSettings.model_validate({"name": "contoso", "backlog_queue_count": 1, **sides, **more})


def found(pair: PairSettings, makes_queues: bool = True) -> list[Finding]:
    findings = [finding for look in preflight_checks(pair, makes_queues) for finding in look.findings()]
    assert KEY not in repr(findings)
    return findings


def about(findings: list[Finding], entity: str | None) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in findings if finding.entity == entity]


@pytest.mark.parametrize(
    ("differing", "level", "said"),
    [
        ({"max_size_in_megabytes": 1024}, WARNING, "max_size_in_megabytes is 1024, documented is 5120"),
        ({"max_delivery_count": 10}, WARNING, "max_delivery_count is 10, documented is 2147483647"),
        ({"default_message_time_to_live": 3_600_000}, WARNING, "default_message_time_to_live is PT1H"),
        ({"auto_delete_on_idle": 3_600_000}, WARNING, "auto_delete_on_idle is PT1H"),
        ({"lock_duration": 30_000}, WARNING, "lock_duration is PT30S, documented is PT1M"),
        ({"dead_lettering_on_message_expiration": False}, WARNING, "dead_lettering_on_message_expiration is false"),
        ({"enable_batched_operations": False}, WARNING, "enable_batched_operations is false"),
        ({"requires_session": True}, PROBLEM, "is unusable as a backlog queue: requires_session is true"),
        (
            {"status": EntityStatus.RECEIVE_DISABLED},
            PROBLEM,
            "is unusable as a backlog queue: status is ReceiveDisabled",
        ),
    ],
)
def test_each_property_in_which_a_queue_differs_is_named(
    emulator: BackgroundEmulator, differing: dict[str, Any], level: Level, said: str
) -> None:  # P2, P3
    make(emulator, "contoso-dr", replace(DOCUMENTED, **differing))
    (told, text), *_ = about(found(pair(emulator)), DOCUMENTED.name)
    assert told is level
    assert said in text


def test_a_missing_and_an_extra_queue_come_with_what_to_do(emulator: BackgroundEmulator) -> None:  # P4
    make(emulator, "contoso-dr", replace(DOCUMENTED, name=f"{PREFIX}/7"))
    findings = found(pair(emulator))
    assert about(findings, f"{PREFIX}/0") == [(PROBLEM, "missing: run `syphon provision`")]
    ((level, text),) = about(findings, f"{PREFIX}/7")
    assert level is WARNING
    assert "syphon drain --all-found" in text


def test_of_a_renamed_destination_the_new_name_is_tried(emulator: BackgroundEmulator) -> None:  # D13
    make(emulator, "contoso", QueueDescription("orders-v2"))
    destinations = {"allow": ["orders", "billing/*"], "rename": {"orders": "orders-v2", "billing/paid": "archive"}}
    findings = found(pair(emulator, destinations=destinations))
    assert about(findings, "orders") == []
    assert about(findings, "orders-v2") == [(FINE, "can be sent to")]
    assert about(findings, "archive") == [
        (PROBLEM, "no queue or topic of that name; messages would wait in the backlog")
    ]


def test_destinations_that_drop_messages_with_a_known_id_are_named(emulator: BackgroundEmulator) -> None:  # S2
    make(emulator, "contoso-dr", DOCUMENTED)
    for queue in (
        QueueDescription("once", requires_duplicate_detection=True),
        QueueDescription("orders", requires_duplicate_detection=True),
        QueueDescription("billing"),
    ):
        make(emulator, "contoso", queue)
    destinations = {"allow": ["orders", "billing", "old"], "rename": {"old": "once"}}
    findings = found(pair(emulator, destinations=destinations))
    drops = "drops a message whose id it has seen within 10 min"
    assert about(findings, "once") == [
        (FINE, "can be sent to"),
        (WARNING, f"{drops}; different messages that were meant for 'old' may have the same id"),
    ]
    together = f"{drops}; a drain may send messages within that time that were sent further apart"
    assert about(findings, "orders") == [(FINE, "can be sent to"), (FINE, together)]
    assert about(findings, "billing") == [(FINE, "can be sent to")]
    without_manage = found(pair(emulator, "worker", destinations=destinations), makes_queues=False)
    assert about(without_manage, "once") == [(FINE, "can be sent to")]


def test_destinations_are_tried_and_patterns_looked_up(emulator: BackgroundEmulator) -> None:  # D13
    off = QueueDescription("off", status=EntityStatus.DISABLED)
    make(emulator, "contoso", QueueDescription("orders"), QueueDescription("billing/paid"), off)
    allow = ["orders", "gone", "off", "billing/*", "news*", "orders/subscriptions/all"]
    destinations = {"allow": allow, "permanent_errors": ["entity-not-found"]}
    findings = found(pair(emulator, destinations=destinations))
    assert [(finding.entity, finding.level) for finding in findings if finding.entity in allow] == [
        ("orders/subscriptions/all", WARNING),
        ("orders", FINE),
        ("gone", PROBLEM),
        ("off", PROBLEM),
        ("billing/*", FINE),
        ("news*", WARNING),
    ]
    assert "would be dead-lettered" in about(findings, "gone")[0][1]
    assert "would wait in the backlog" in about(findings, "off")[0][1]
    assert "billing/paid" in about(findings, "billing/*")[0][1]


def test_without_provisioning_no_manage_claim_is_needed(emulator: BackgroundEmulator) -> None:
    make(emulator, "contoso-dr", DOCUMENTED)
    modest = pair(emulator, "worker", backlog_queue_count=2, destinations={"allow": ["billing/*"]})
    (denied,) = [finding for finding in found(modest) if not finding.level.is_good]
    assert (denied.level, denied.entity) == (DENIED, None)
    assert "The Manage claim is missing" in denied.text
    assert "--no-provision" in denied.text
    findings = found(modest, makes_queues=False)
    assert about(findings, f"{PREFIX}/0") == [(FINE, "can be received from")]
    assert [level for level, _ in about(findings, f"{PREFIX}/1")] == [PROBLEM]
    assert "without the Manage claim" in about(findings, "billing/*")[0][1]


def test_a_claim_that_is_missing_is_named_with_the_role_that_has_it(emulator: BackgroundEmulator) -> None:
    make(emulator, "contoso-dr", DOCUMENTED)
    ((level, text),) = about(found(pair(emulator, "sender"), makes_queues=False), DOCUMENTED.name)
    assert level is DENIED
    assert "Listen" in text
    assert "Azure Service Bus Data Receiver" in text


def test_silence_on_all_sides_ends_and_is_reported_once_for_each_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "CHECK_ANSWER_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        home, away = one.getsockname()[1], other.getsockname()[1]
        primary, secondary = (
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey={KEY};UseDevelopmentEmulator=true"
            for port in (home, away)
        )
        sides = {"primary": {"connection_string": primary}, "secondary": {"connection_string": secondary}}
        silent = PairSettings.model_validate({"name": "contoso", **sides, "destinations": {"allow": ["a", "b*"]}})
        findings = found(silent)
    assert [(finding.side, finding.level) for finding in findings] == [
        ("secondary", UNREACHABLE),
        ("secondary", UNREACHABLE),
        ("primary", UNREACHABLE),
    ]
    assert ["HTTPS" in finding.text for finding in findings] == [True, False, False]
    assert [names_port(finding.text, port) for finding, port in zip(findings, (away, away, home), strict=True)] == [
        True
    ] * 3


def names_port(text: str, port: int) -> bool:
    return re.search(rf"\b{port}\b", text) is not None


def test_the_room_of_all_queues_is_reported(emulator: BackgroundEmulator) -> None:
    small = replace(DOCUMENTED, name=f"{PREFIX}/1", max_size_in_megabytes=1024)
    make(emulator, "contoso-dr", DOCUMENTED, small)
    told = "room for 11.0 GB in 3 backlog queues, if all exist: everything sent during an outage must fit"
    assert (FINE, told) in about(found(pair(emulator, backlog_queue_count=3)), None)
    # Without the Manage claim the sizes are not known.
    told = "room for 15.0 GB in 3 backlog queues, if all exist: everything sent during an outage must fit"
    assert (FINE, told) in about(found(pair(emulator, "worker", backlog_queue_count=3), False), None)


def test_a_single_queue_is_a_risk(emulator: BackgroundEmulator) -> None:
    make(emulator, "contoso-dr", DOCUMENTED)
    (text,) = (text for level, text in about(found(pair(emulator)), None) if level is WARNING)
    assert text.startswith("room for 5.0 GB in a single backlog queue: if it fails or is full, senders have no other;")
    assert "set backlog_queue_count to 2 or more" in text


def test_messages_that_expire_in_the_backlog_are_warned_about(emulator: BackgroundEmulator) -> None:  # M9
    make(emulator, "contoso-dr", replace(DOCUMENTED, name=f"{PREFIX}/1"))  # and the other one is missing
    message = header_bytes(Header(ttl=UInt(1_566_804_069))) + data_section(b"x")
    line = emulator["contoso-dr"].namespace.message_queue(f"{PREFIX}/1")
    emulator.call(lambda: line.enqueue([BrokeredMessage.parse(message)]))
    for makes_queues in (True, False):
        found_there = about(found(pair(emulator, backlog_queue_count=2), makes_queues), None)
        (text,) = (text for level, text in found_there if level is WARNING)
        assert text.startswith("at least 1 message expires in the backlog and goes to its dead letters, the first at ")


def test_a_look_changes_nothing(emulator: BackgroundEmulator) -> None:
    make(emulator, "contoso-dr", DOCUMENTED, replace(DOCUMENTED, name=f"{PREFIX}/9"))
    make(emulator, "contoso", QueueDescription("orders"))
    found(pair(emulator, backlog_queue_count=3, destinations={"allow": ["orders", "o*"]}))
    namespaces = [emulator[name].namespace for name in ("contoso", "contoso-dr")]
    queues = [[queue.name for queue in emulator.call(namespace.queues)] for namespace in namespaces]
    assert [sorted(names) for names in queues] == [["orders"], [f"{PREFIX}/0", f"{PREFIX}/9"]]
    counts = [count for namespace in namespaces for count in emulator.call(namespace.counters.by_entity).values()]
    assert {operation for count in counts for operation, times in count.items() if times} <= {"manage", "peek"}


def test_the_right_to_send_is_tried_or_called_unknown_if_the_settings_name_no_destination(
    emulator: BackgroundEmulator,
) -> None:  # S2
    make(emulator, "contoso-dr", DOCUMENTED)
    listen_only = pair(emulator, policy="listener")
    unknown = "whether these credentials may send is not known: name a queue or topic in destinations.allow"
    assert any(level is WARNING and text.startswith(unknown) for level, text in about(found(listen_only), None))
    make(emulator, "contoso", QueueDescription("orders"))
    named = pair(emulator, policy="listener", destinations={"allow": ["orders"]})
    assert DENIED in [finding.level for finding in found(named) if finding.side == "primary"]
    assert (FINE, "accepts messages with these credentials") in about(found(pair(emulator)), None)


def test_messages_in_queues_of_another_name_of_the_primary_are_a_warning(emulator: BackgroundEmulator) -> None:  # P4
    """The sender's `primary_name` differs from the pair's: no pair listens to what it sends in an outage."""
    make(emulator, "contoso-dr", DOCUMENTED, replace(DOCUMENTED, name="other/x-servicebus-transfer/3"))
    assert not [finding for finding in found(pair(emulator)) if "other/" in finding.text], "it is empty"
    with (
        ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender("other/x-servicebus-transfer/3") as sender,
    ):
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    (warning,) = [finding for finding in found(pair(emulator)) if "other/" in finding.text]
    assert (warning.level, warning.side) == (WARNING, "secondary")
    assert warning.text.startswith("2 messages in 1 queue other/x-servicebus-transfer/*")
    assert "set `primary.name: other`" in warning.text
    ours = pair(emulator)
    other = ours.model_copy(update={"name": "b", "primary": ours.primary.model_copy(update={"name": "other"})})
    assert stranded_backlogs(ours, [ours, other]) == [], "the other pair listens to them"
