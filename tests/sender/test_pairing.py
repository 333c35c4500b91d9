"""Pairing: when it returns the pair is set up, and it raises an error for anything that is wrong (F1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.backlog.provisioning import NoBacklogQueue
from syphon.bus.sdk_internals import connection_details
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
)
from syphon.model.errors import NotAuthorized
from syphon.sender import BadOptions, PairOptions, pair
from syphon.sender.pairing import set_up
from tests.sender.conftest import QUEUE_0, QUEUE_1, PairedEmulator, leftovers

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


def test_a_primary_that_is_away_can_be_paired(paired: PairedEmulator, caplog: pytest.LogCaptureFixture) -> None:  # F1
    """An application that is started in the middle of an outage."""
    paired.outage(Outage.REFUSE)
    paired.pair().get_queue_sender("orders").send_messages(ServiceBusMessage("a"))
    assert paired.in_backlog() == 1
    assert "could not be checked, pairing goes on" in caplog.text


def test_fewer_queues_than_asked_for_are_used_and_counted(paired: PairedEmulator) -> None:  # F1, P5
    paired.fault(Fault(Action.ERROR, Operation.MANAGE, QUEUE_1, condition="amqp:internal-error"), "contoso-dr")
    primary, secondary = map(ServiceBusClient.from_connection_string, strings(paired))
    pauses: list[float] = []
    with primary, secondary:
        backlog = set_up(primary, connection_details(secondary), OPTIONS, pauses.append)
    assert backlog.names == (QUEUE_0,)
    assert backlog.count == 1
    assert pauses == [30.0, 30.0]


def test_no_queue_at_all_is_an_error(paired: PairedEmulator) -> None:  # F1, P5
    paired.outage(Outage.REFUSE, "contoso-dr")
    primary, secondary = map(ServiceBusClient.from_connection_string, strings(paired))
    with primary, secondary, pytest.raises(NoBacklogQueue, match="not one of the 2"):
        set_up(primary, connection_details(secondary), OPTIONS, lambda seconds: None)  # noqa: ARG005


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


def test_a_secondary_that_we_may_not_manage_is_told_at_once_with_the_claim(policies: BackgroundEmulator) -> None:  # P5
    with pytest.raises(NotAuthorized, match="Manage claim") as caught:
        pair(policies["contoso"].connection_string, as_sender(policies, "contoso-dr"), OPTIONS)
    assert SECRET not in str(caught.value)


def test_a_primary_that_we_may_only_send_to_is_enough(policies: BackgroundEmulator) -> None:  # F1
    with pair(as_sender(policies, "contoso"), policies["contoso-dr"].connection_string, OPTIONS) as client:
        assert client.backlog_queue_count == 2


def test_a_wrong_key_of_the_primary_is_told_at_once(policies: BackgroundEmulator) -> None:  # F1
    wrong = as_sender(policies, "contoso", key="bm90IHRoZSBrZXk=")
    with pytest.raises(NotAuthorized, match="credentials were refused") as caught:
        pair(wrong, policies["contoso-dr"].connection_string, OPTIONS)
    assert "bm90" not in str(caught.value)


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


def test_a_credential_that_gives_no_token_is_told_at_once_and_quotes_nothing(paired: PairedEmulator) -> None:  # F1
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
        ("backlog_queue_count", [1, 500], [0, -1]),
        ("failover_interval", [timedelta(0), timedelta(minutes=60)], [timedelta(-1), timedelta(minutes=61)]),
        (
            "ping_primary_interval",
            [timedelta(seconds=1), timedelta(minutes=30)],
            [timedelta(0), timedelta(minutes=31)],
        ),
        ("operation_timeout", [timedelta(seconds=1), timedelta(minutes=60)], [timedelta(0), timedelta(hours=2)]),
        ("primary_name", ["contoso"], ["", " ", "a/b"]),
    ],
)
def test_each_option_has_its_range(name: str, good: list[object], bad: list[object]) -> None:  # F1
    for value in good:
        assert getattr(PairOptions(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(BadOptions, match=name):
            PairOptions(**{name: value})  # type: ignore[arg-type]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(BadOptions, match=r"backlog_queue_count.*ping_primary_interval"):
        PairOptions(backlog_queue_count=0, ping_primary_interval=timedelta(0))
