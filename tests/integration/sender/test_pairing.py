"""Pairing: when it returns the pair is set up, and it raises an error for anything that is wrong (F1)."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.backlog.provisioning import NoBacklogQueue
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    Claim,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    Outage,
    PolicySettings,
    QueueDescription,
    TopicDescription,
)
from syphon.model.errors import NotAuthorized
from syphon.sender import BadOptions, PairOptions, pair, pairing
from syphon.sender.pairing import set_up
from syphon.servicebus.sdk_clients import connection_details
from tests.integration.sender.conftest import QUEUE_0, QUEUE_1, PairedEmulator, leftovers
from tests.support.sender_apis import APIS, SyncApi
from tests.support.waiting import eventually

pytestmark = leftovers
OPTIONS = PairOptions(backlog_queue_count=2, primary_name="contoso")
SECRET = "c2VuZCBhbmQgbm90aGluZyBlbHNl"


def strings(paired: PairedEmulator) -> tuple[str, str]:
    return paired.emulator["contoso"].connection_string, paired.emulator["contoso-dr"].connection_string


def test_two_connection_strings_make_a_pair_with_its_backlog_queues(paired: PairedEmulator) -> None:  # F1, P1
    client = paired.api.pair(*strings(paired), OPTIONS)
    try:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("a"))
        assert client.backlog_queue_count == 2
    finally:
        client.close()
    assert paired.active("orders") == 1
    assert {queue.name for queue in paired.emulator.call(paired.secondary.queues)} == {QUEUE_0, QUEUE_1}


def test_an_unavailable_primary_can_be_paired(paired: PairedEmulator, caplog: pytest.LogCaptureFixture) -> None:  # F1
    """An application that is started in the middle of an outage."""
    paired.outage(Outage.REFUSE)
    paired.pair().get_queue_sender("orders").send_messages(ServiceBusMessage("a"))
    assert paired.in_backlog() == 1
    assert "continuing without the check" in caplog.text


def test_fewer_queues_than_requested_are_used_and_counted(paired: PairedEmulator) -> None:  # F1, P5
    paired.fault(Fault(Action.ERROR, Operation.MANAGE, QUEUE_1, condition="amqp:internal-error"), "contoso-dr")
    primary, secondary = map(ServiceBusClient.from_connection_string, strings(paired))
    pauses: list[float] = []
    with primary, secondary:
        backlog = set_up(primary, secondary, OPTIONS, connection_details(secondary), pauses.append)
    assert backlog.names == (QUEUE_0,)
    assert backlog.count == 1
    assert pauses == [30.0, 30.0]


def test_no_queue_at_all_is_an_error(paired: PairedEmulator) -> None:  # F1, P5
    paired.outage(Outage.REFUSE, "contoso-dr")
    primary, secondary = map(ServiceBusClient.from_connection_string, strings(paired))
    with primary, secondary, pytest.raises(NoBacklogQueue, match="none of the 2"):
        set_up(primary, secondary, OPTIONS, connection_details(secondary), lambda seconds: None)  # noqa: ARG005


@pytest.fixture
def policies() -> Iterator[BackgroundEmulator]:
    """Two namespaces, each with a policy that may send and nothing else."""
    sender = PolicySettings(name="sender", key=SECRET, claims=[Claim.SEND])  # type: ignore[arg-type]
    root = PolicySettings(name="root", key="cm9vdCBvZiBhbGwgZXZpbA==", claims=list(Claim))  # type: ignore[arg-type]
    spaces = [NamespaceSettings(name=name, policies=[root, sender]) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=spaces)) as emulator:
        yield emulator


def as_sender(emulator: BackgroundEmulator, name: str, key: str = SECRET) -> str:
    port = emulator[name].amqp_port
    policy = f"SharedAccessKeyName=sender;SharedAccessKey={key}"
    return f"Endpoint=sb://127.0.0.1:{port};{policy};UseDevelopmentEmulator=true"


def test_a_secondary_that_we_may_not_manage_is_reported_at_once_with_the_claim(
    policies: BackgroundEmulator,
) -> None:  # P5
    with pytest.raises(NotAuthorized, match="Manage claim") as caught:
        pair(policies["contoso"].connection_string, as_sender(policies, "contoso-dr"), OPTIONS)
    assert SECRET not in str(caught.value)


def test_a_primary_that_we_may_only_send_to_is_enough(policies: BackgroundEmulator) -> None:  # F1
    with pair(as_sender(policies, "contoso"), policies["contoso-dr"].connection_string, OPTIONS) as client:
        assert client.backlog_queue_count == 2


def test_a_wrong_key_of_the_primary_is_reported_at_once(policies: BackgroundEmulator) -> None:  # F1
    wrong = as_sender(policies, "contoso", key="bm90IHRoZSBrZXk=")
    with pytest.raises(NotAuthorized, match="credentials were refused") as caught:
        pair(wrong, policies["contoso-dr"].connection_string, OPTIONS)
    assert "bm90" not in str(caught.value)


# --- who makes the queues ---


def names_in(emulator: BackgroundEmulator) -> set[str]:
    return {queue.name for queue in emulator.call(emulator["contoso-dr"].namespace.queues)}


@pytest.fixture(params=list(APIS))
def each_api(request: pytest.FixtureRequest) -> Iterator[SyncApi]:
    api = APIS[request.param]()
    api.start()
    yield api
    api.stop()


def test_a_sender_without_the_manage_claim_uses_the_queues_that_others_have_made(
    policies: BackgroundEmulator, each_api: SyncApi
) -> None:  # F1
    make_queue(policies, QUEUE_0)
    make_queue(policies, QUEUE_1)
    sides = as_sender(policies, "contoso"), as_sender(policies, "contoso-dr")
    client = each_api.pair(*sides, OPTIONS, provision=False)
    assert client.backlog_queue_count == 2
    client.close()


@pytest.mark.parametrize("provisions", [True, False])
def test_queues_that_detect_duplicates_are_used_and_the_consequence_is_reported_once_for_each(
    policies: BackgroundEmulator, caplog: pytest.LogCaptureFixture, provisions: bool
) -> None:  # P3, F1
    make_queue(policies, QUEUE_0, requires_duplicate_detection=True)
    make_queue(policies, QUEUE_1)
    sides = policies["contoso"].connection_string, policies["contoso-dr"].connection_string

    def warnings() -> list[str]:
        return [text for text in caplog.messages if "different messages with the same message id become one" in text]

    with pair(*sides, OPTIONS, provision=provisions) as client:
        assert client.backlog_queue_count == 2
        (warning,) = eventually(warnings)
    assert QUEUE_0 in warning


def test_queues_that_are_not_there_are_left_out_and_named(
    policies: BackgroundEmulator, caplog: pytest.LogCaptureFixture
) -> None:  # F1
    make_queue(policies, QUEUE_1)
    sides = as_sender(policies, "contoso"), as_sender(policies, "contoso-dr")
    with pair(*sides, OPTIONS, provision=False) as client:
        assert client.backlog.names == (QUEUE_1,)
    assert f"queue {QUEUE_0} could not be created and is not used" in caplog.text
    assert "syphon provision" in caplog.text
    assert names_in(policies) == {QUEUE_1}


def test_without_provisioning_and_without_queues_there_is_no_pair(policies: BackgroundEmulator) -> None:  # F1
    with pytest.raises(NoBacklogQueue, match="none of the 2"):
        pair(as_sender(policies, "contoso"), as_sender(policies, "contoso-dr"), OPTIONS, provision=False)


def test_without_provisioning_a_wrong_key_of_the_secondary_is_reported_at_once(
    policies: BackgroundEmulator,
) -> None:  # F1
    wrong = as_sender(policies, "contoso-dr", key="bm90IHRoZSBrZXk=")
    with pytest.raises(NotAuthorized, match="credentials were refused"):
        pair(as_sender(policies, "contoso"), wrong, OPTIONS, provision=False)


@pytest.mark.parametrize("api", ["sync"])
def test_without_provisioning_an_unavailable_secondary_can_be_paired(
    paired: PairedEmulator, caplog: pytest.LogCaptureFixture
) -> None:  # F1
    """The queues are there, and the primary works: the application can start."""
    paired.outage(Outage.REFUSE, "contoso-dr")
    with pair(*strings(paired), OPTIONS, provision=False) as client:
        assert client.backlog_queue_count == 2
    assert "continuing without the check" in caplog.text


def test_provisioning_can_have_a_credential_of_its_own(policies: BackgroundEmulator, each_api: SyncApi) -> None:  # F1
    sides = as_sender(policies, "contoso"), as_sender(policies, "contoso-dr")
    root = policies["contoso-dr"].connection_string
    client = each_api.pair(*sides, OPTIONS, secondary_administration=root)
    client.close()
    assert names_in(policies) == {QUEUE_0, QUEUE_1}


class NoManage:
    """A credential that must not be asked: the test never gets so far."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise AssertionError


def test_an_administration_that_makes_no_sense_is_refused_without_its_secrets(policies: BackgroundEmulator) -> None:
    sides = as_sender(policies, "contoso"), as_sender(policies, "contoso-dr")
    root = policies["contoso-dr"].connection_string
    wrong: list[tuple[Any, bool, type[Exception], str]] = [
        (root, False, ValueError, "leave one of them out"),
        (policies["contoso"].connection_string, True, ValueError, "secondary_administration is for 127"),
        (("contoso.servicebus.windows.net", NoManage()), True, ValueError, "is for contoso.servicebus.windows.net"),
        ("Endpoint=sb://contoso;Key=c2VjcmV0", True, ValueError, "secondary_administration cannot be used"),
        (5, True, TypeError, "Received instead: int"),
    ]
    for given, provision, error, text in wrong:
        with pytest.raises(error, match=text) as caught:
            pair(*sides, OPTIONS, provision=provision, secondary_administration=given)
        assert "SharedAccessKey=" not in str(caught.value)
        assert "c2VjcmV0" not in str(caught.value)


def make_queue(emulator: BackgroundEmulator, name: str, **options: Any) -> None:
    emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(QueueDescription(name, **options)))


# --- partitioned entities ---


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_timeout_that_is_too_short_for_a_partitioned_entity_is_warned_about(
    paired: PairedEmulator, caplog: pytest.LogCaptureFixture, kind: str
) -> None:  # S8
    if kind == "queue":
        paired.queue("parts", enable_partitioning=True)
    else:
        topic = TopicDescription("parts", enable_partitioning=True)
        paired.emulator.call(lambda: paired.primary.create_topic(topic))
    client = paired.pair(operation_timeout=timedelta(seconds=14), allow_short_timeouts=True)
    for path in ("orders", "parts", "Parts"):
        getattr(client, f"get_{kind}_sender" if path != "orders" else "get_queue_sender")(path)
    eventually(lambda: "'parts' is partitioned, and operation_timeout is 14 s" in caplog.text)
    assert caplog.text.count("is partitioned, and") == 1


def test_a_timeout_that_is_long_enough_is_no_reason_to_check(
    paired: PairedEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # S8
    looks: list[object] = []
    client = paired.pair(operation_timeout=timedelta(seconds=15))
    monkeypatch.setattr(pairing, "administration_with", looks.append)
    client.get_queue_sender("orders").close()
    assert checking_threads() == []
    assert looks == []


def test_a_sender_that_may_not_check_is_not_warned(
    policies: BackgroundEmulator, caplog: pytest.LogCaptureFixture
) -> None:  # S8
    caplog.set_level(logging.INFO)
    description = QueueDescription("parts", enable_partitioning=True)
    policies.call(lambda: policies["contoso"].namespace.create_queue(description))
    short = PairOptions(backlog_queue_count=1, primary_name="contoso", operation_timeout=5, allow_short_timeouts=True)
    with pair(as_sender(policies, "contoso"), policies["contoso-dr"].connection_string, short) as client:
        client.get_queue_sender("parts")
        eventually(lambda: "Could not check whether 'parts' is partitioned" in caplog.text)
    assert "is partitioned, and" not in caplog.text
    assert SECRET not in caplog.text


def checking_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("check ")]


# --- what is no pair ---

GOOD = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"


@pytest.mark.parametrize(
    ("primary", "secondary", "error", "text"),
    [
        ("Endpoint=sb://contoso;Key=c2VjcmV0", GOOD, ValueError, "The primary cannot be used"),
        (GOOD, "", ValueError, "The secondary cannot be used.*is empty"),
        (GOOD, GOOD, ValueError, "the same namespace"),
        (5, GOOD, TypeError, "The primary is a connection string"),
    ],
)
def test_what_is_no_pair_of_namespaces_is_refused_without_its_secrets(
    primary: Any, secondary: Any, error: type[Exception], text: str
) -> None:  # F1
    with pytest.raises(error, match=text) as caught:
        pair(primary, secondary)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_primary_without_a_name_must_be_given_one(paired: PairedEmulator) -> None:
    with pytest.raises(BadOptions, match="primary_name is not set, and 127"):
        paired.api.pair(*strings(paired))


class NoToken:
    """A credential that does not work here."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise RuntimeError("secret of the credential")


class NoAsyncToken:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise RuntimeError("secret of the credential")


def test_a_credential_that_gives_no_token_is_reported_at_once_and_quotes_nothing(paired: PairedEmulator) -> None:  # F1
    credential = NoToken() if paired.api.name == "sync" else NoAsyncToken()
    with pytest.raises(NotAuthorized, match="gives no token") as caught:
        paired.api.pair(("contoso.servicebus.windows.net", credential), strings(paired)[1], OPTIONS)
    assert "secret" not in str(caught.value)


def test_no_log_line_or_repr_has_a_key_in_it(paired: PairedEmulator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = paired.pair()
    paired.outage(Outage.REFUSE)
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("a"))
    key = strings(paired)[0].partition("SharedAccessKey=")[2].partition(";")[0]
    assert len(key) > 5
    assert key not in caplog.text
    assert key not in repr(connection_details(client.primary)) + repr(client.failover.options)


# --- options ---


def test_the_defaults_are_those_of_the_paired_namespaces_of_the_dotnet_sdk() -> None:  # F1
    options = PairOptions()
    assert options.backlog_queue_count == 10
    assert options.failover_interval == timedelta(minutes=1)
    assert options.ping_primary_interval == timedelta(minutes=1)
    assert options.enable_syphon is False


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("backlog_queue_count", [1, 500], [0, -1, 10_001, 2.5, "10", True]),
        ("failover_interval", [timedelta(0), timedelta(minutes=60)], [timedelta(-1), timedelta(minutes=61)]),
        (
            "ping_primary_interval",
            [timedelta(seconds=1), timedelta(minutes=30)],
            [timedelta(0), timedelta(minutes=31)],
        ),
        ("operation_timeout", [timedelta(seconds=15), timedelta(minutes=60)], [timedelta(0), timedelta(hours=2)]),
        ("allow_short_timeouts", [True], ["yes"]),
        ("primary_name", ["contoso"], ["", " ", "a/b", 7]),
        ("enable_syphon", [True], ["no", 1]),
        ("on_change", [print], ["print"]),
    ],
)
def test_each_option_has_its_range(name: str, good: list[object], bad: list[object]) -> None:  # F1
    for value in good:
        assert getattr(PairOptions(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(BadOptions, match=name):
            PairOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["failover_interval", "ping_primary_interval", "operation_timeout"])
def test_a_number_is_a_duration_in_seconds(name: str) -> None:  # F1
    for number in (60, 60.0, 90.5):
        assert getattr(PairOptions(**{name: number}), name) == timedelta(seconds=number)  # type: ignore[arg-type]
    wrong: list[object] = [-1, 3601, float("nan"), float("inf"), 1e300, "1m", None, True, [60]]
    for value in wrong:
        with pytest.raises(BadOptions, match=rf"{name} is {re.escape(repr(value))}: it may be \d+ to \d+ seconds"):
            PairOptions(**{name: value})  # type: ignore[arg-type]


def test_an_operation_timeout_below_15_seconds_must_be_allowed() -> None:  # S8
    with pytest.raises(
        BadOptions, match=r"operation_timeout is 14\.9: a partitioned entity may need 15 seconds; set it to"
    ):
        PairOptions(operation_timeout=14.9)
    assert PairOptions(operation_timeout=14.9, allow_short_timeouts=True).operation_timeout == timedelta(seconds=14.9)
    with pytest.raises(BadOptions, match=r"operation_timeout is 0\.5: it may be 1 to 3600 seconds"):
        PairOptions(operation_timeout=0.5, allow_short_timeouts=True)


def test_zero_seconds_fail_over_at_the_first_failure() -> None:  # F1, F2
    assert PairOptions(failover_interval=0).failover_interval == timedelta(0)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(BadOptions, match=r"backlog_queue_count.*ping_primary_interval"):
        PairOptions(backlog_queue_count=0, ping_primary_interval=timedelta(0))
