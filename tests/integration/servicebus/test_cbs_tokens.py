"""Tokens: sent before the first link, renewed before they expire, requested again after a key was rotated."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient
from azure.servicebus._base_handler import _generate_sas_token

from syphon.amqp import Value
from syphon.amqp.frames import Attach, Detach, Error, Flow, Source, Target, read_performative
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from syphon.model.errors import NotAuthorized
from syphon.servicebus.cbs_tokens import Tokens, TokenUnavailable
from syphon.servicebus.connection import Connection
from syphon.servicebus.links import LinkState, RawReceiver
from syphon.servicebus.management_node import RequestLink
from tests.integration.servicebus.test_wire_session import Peer, certificates, peer

__all__ = ["certificates", "peer"]

KEY = "SAS_KEY_VALUE"


@dataclass
class Keys:
    """A credential whose key can change during the test, like one that is read from a file."""

    key: str = KEY
    asked: list[str] = field(default_factory=list)
    token_type = b"servicebus.windows.net:sastoken"
    broken = False

    def get_token(self, audience: str) -> AccessToken:
        self.asked.append(audience)
        if self.broken:
            raise OSError(f"cannot read {KEY}")
        token: AccessToken = _generate_sas_token(audience, "RootManageSharedAccessKey", self.key)
        return token


@dataclass
class TokenSetup:
    """A connection with tokens from a credential of the test, and a clock that the test moves."""

    connection: Connection
    tokens: Tokens
    keys: Keys
    ahead: list[float]

    def turn(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "the condition was not met in time"
            self.connection.wire.flush()
            select.select([self.connection.wire], [], [], 0.05)
            self.connection.read()
            self.tokens.work()


@pytest.fixture
def setup() -> Iterator[TokenSetup]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso", accept_any_jwt=True)])
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        client = ServiceBusClient.from_connection_string(emulator["contoso"].connection_string)
        connection = Connection(client, "orders")
        keys = Keys()
        ahead = [0.0]
        tokens = Tokens(connection.wire, connection.host, lambda: keys, lambda: time.time() + ahead[0])
        yield TokenSetup(connection, tokens, keys, ahead)
        connection.close()
        client.close()


def test_a_link_opens_once_its_token_is_in_place(setup: TokenSetup) -> None:
    setup.turn(lambda: setup.tokens.allow("orders"))
    receiver = RawReceiver(setup.connection.wire, "orders")
    setup.turn(lambda: receiver.state is not LinkState.ATTACHING)
    assert receiver.state is LinkState.OPEN
    assert len(setup.keys.asked) == 1


def test_a_token_is_renewed_when_a_tenth_of_its_life_is_left(setup: TokenSetup) -> None:
    setup.turn(lambda: setup.tokens.allow("orders"))
    setup.ahead[0] = 53 * 60
    setup.tokens.work()
    assert len(setup.keys.asked) == 1
    setup.ahead[0] = 55 * 60
    setup.tokens.work()
    assert len(setup.keys.asked) == 2
    assert setup.tokens.allow("orders")


def test_a_refused_key_is_reported_without_the_key_and_a_rotated_one_is_accepted(setup: TokenSetup) -> None:
    setup.keys.key = "an-old-key"
    with pytest.raises(NotAuthorized, match="orders") as refused:
        setup.turn(lambda: setup.tokens.allow("orders"))
    assert "an-old-key" not in str(refused.value)
    setup.keys.key = KEY
    setup.turn(lambda: setup.tokens.allow("orders"))


def test_a_key_that_was_rotated_before_the_answer_came_is_tried_at_once(setup: TokenSetup) -> None:  # T10
    old, new = Keys("an-old-key"), Keys()
    current = [old]
    tokens = Tokens(setup.connection.wire, setup.connection.host, lambda: current[0])
    assert not tokens.allow("orders")
    current[0] = new
    setup.tokens = tokens
    setup.turn(lambda: tokens.allow("orders"))
    assert (len(old.asked), len(new.asked)) == (1, 1)


def test_a_credential_without_a_token_is_asked_again_later(setup: TokenSetup) -> None:
    setup.keys.broken = True
    with pytest.raises(TokenUnavailable, match="OSError") as failed:
        setup.turn(lambda: setup.tokens.allow("orders"))
    assert KEY not in str(failed.value)
    setup.keys.broken = False
    setup.turn(lambda: setup.tokens.allow("orders"))


def test_a_key_that_was_changed_is_noticed_when_the_token_is_renewed(
    setup: TokenSetup,
) -> None:  # C3: rotated
    setup.turn(lambda: setup.tokens.allow("orders"))
    setup.keys.key = "an-old-key"
    setup.ahead[0] = 55 * 60
    with pytest.raises(NotAuthorized, match="'orders' was refused"):
        setup.turn(lambda: not setup.tokens.allow("orders"))
    assert not setup.tokens.allow("orders"), "the token that was good before is not good for another link"


class Identity:
    """A credential like those of azure-identity."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def get_token(self, scope: str) -> AccessToken:
        self.scopes.append(scope)
        return AccessToken("eyJhbGciOiJub25lIn0.e30.", round(time.time()) + 3600)


def test_an_identity_gets_a_token_for_service_bus_which_opens_a_link(
    setup: TokenSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Identity()
    tokens = Tokens(setup.connection.wire, setup.connection.host, lambda: identity)
    put: list[dict[str, Value]] = []
    ask = RequestLink.ask

    def noted(link: RequestLink, properties: dict[str, Value], *more: Any) -> None:
        put.append(properties)
        ask(link, properties, *more)

    monkeypatch.setattr(RequestLink, "ask", noted)
    setup.tokens = tokens
    setup.turn(lambda: tokens.allow("orders"))
    receiver = RawReceiver(setup.connection.wire, "orders")
    setup.turn(lambda: receiver.state is not LinkState.ATTACHING)
    assert receiver.state is LinkState.OPEN
    assert identity.scopes == ["https://servicebus.azure.net//.default"]
    assert [(asked["operation"], asked["type"]) for asked in put] == [("put-token", "jwt")]
    tokens.close()


def test_a_token_whose_renewal_fails_is_requested_again_before_it_expires(setup: TokenSetup) -> None:  # C3
    """No link requests it any more: without a retry, an identity service that is down for a second would end all links
    an hour later."""
    setup.turn(lambda: setup.tokens.allow("orders"))
    setup.keys.broken, setup.ahead[0] = True, 55 * 60
    setup.tokens.work()
    assert len(setup.keys.asked) == 2
    assert setup.tokens.allow("orders")  # it is valid for five more minutes
    setup.tokens.work()
    assert len(setup.keys.asked) == 2
    setup.keys.broken, setup.ahead[0] = False, 55 * 60 + 11
    setup.tokens.work()
    assert len(setup.keys.asked) == 3
    setup.ahead[0] += 60
    setup.turn(lambda: setup.tokens.allow("orders"))
    assert len(setup.keys.asked) == 3


def test_a_link_to_the_token_node_that_was_lost_is_opened_again(peer: Peer) -> None:  # WIRE: forced detaches
    seconds = [1000.0]
    keys = Keys()
    tokens = Tokens(peer.wire, "contoso", lambda: keys, lambda: seconds[0])
    assert not tokens.allow("orders")
    for _ in range(3):
        attached = attach_to_cbs(peer)
        tokens.work()
        peer.says(Detach(attached, True, Error("amqp:link:detach-forced", "idle")))
        tokens.work()
        heard = [read_performative(body)[0] for body in peer.hears()]
        assert not any(isinstance(said, Attach) for said in heard)  # no endless requests to a node that refuses us
        seconds[0] += 11
        tokens.work()
    attach_to_cbs(peer)
    tokens.work()
    assert any(b"put-token" in body for body in peer.hears())


def attach_to_cbs(peer: Peer) -> int:
    """Answers the two pending attaches. Returns the handle of the link for requests."""
    attaches = [attach for body in peer.hears() if isinstance(attach := read_performative(body)[0], Attach)]
    requests = next(attach for attach in attaches if not attach.role)
    assert len(attaches) == 2
    for attach in attaches:
        peer.says(Attach(attach.name, attach.handle, not attach.role, source=Source("$cbs"), target=Target("here")))
    peer.says(Flow(0, 5000, 0, 5000, requests.handle, 0, 100))
    return requests.handle
