"""Access: shared access signatures, SASL PLAIN, bearer tokens, and the errors of the SDK without access."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from pydantic import SecretStr

from syphon.amqp import Int, Map, Message, Properties, Section, Symbol, properties_bytes, section_bytes
from syphon.amqp.frames import (
    FRAME_SASL,
    SASL_HEADER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Transfer,
    frame,
)
from syphon.emulator import (
    Claim,
    Emulator,
    EmulatorSettings,
    NamespaceSettings,
    PolicySettings,
    QueueDescription,
    RunningNamespace,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.descriptions import AuthorizationRule
from syphon.emulator.settings import ROOT_POLICY
from tests.support.amqp_peer import AmqpPeer, peer, receiver, sas, sender, text, token_request
from tests.support.waiting import async_eventually

UNAUTHORIZED = "amqp:unauthorized-access"
ROOT, SENDS, LISTENS, OWN, SECOND = "root-key", "sending-key", "listening-key", "the-queue's-own-key", "its-second-key"
KEYS = {ROOT_POLICY: ROOT, "Sends": SENDS, "Listens": LISTENS}
CLAIMS = {ROOT_POLICY: frozenset(Claim), "Sends": frozenset({Claim.SEND}), "Listens": frozenset({Claim.LISTEN})}


def namespace_settings(**changes: Any) -> EmulatorSettings:
    policies = [PolicySettings(name=name, key=SecretStr(key), claims=CLAIMS[name]) for name, key in KEYS.items()]
    return EmulatorSettings(namespaces=[NamespaceSettings(name="contoso", policies=policies, **changes)])


@pytest.fixture
async def contoso() -> AsyncIterator[RunningNamespace]:
    """A namespace with three policies and a few entities; one queue and one topic have keys of their own."""
    async with Emulator(namespace_settings()) as emulator:
        create_configured_entities(emulator["contoso"])
        yield emulator["contoso"]


def create_configured_entities(running: RunningNamespace) -> None:
    own = (AuthorizationRule("Own", (Claim.LISTEN,), OWN, SECOND),)
    namespace = running.namespace
    for name in ("orders", "orders2", "orders/late"):
        namespace.create_queue(QueueDescription(name))
    namespace.create_queue(QueueDescription("bills", authorization_rules=own))
    namespace.create_queue(QueueDescription("sessions", requires_session=True))
    namespace.create_topic(TopicDescription("news", authorization_rules=own))
    namespace.create_subscription(SubscriptionDescription("news", "all"))


@asynccontextmanager
async def stranger(running: RunningNamespace) -> AsyncIterator[AmqpPeer]:
    """Connected, and nothing proven yet."""
    async with peer(running.amqp_port) as one:
        assert await one.sasl() == 0
        await one.open()
        await one.begin()
        yield one


HERE = "sb://127.0.0.1"


def token(path: str, policy: str = ROOT_POLICY, key: str | None = None, expiry: float | str | None = None) -> str:
    return sas(f"{HERE}/{path}", policy, KEYS[policy] if key is None else key, expiry)


async def admitted(one: AmqpPeer, attach: Attach) -> str | None:
    """Attaches and detaches again; the condition under which it was refused."""
    one.send(attach)
    await one.expect(Attach)
    if not attach.role:
        found = (await one.next_frame()).performative
        if isinstance(found, Detach):
            one.send(Detach(attach.handle, True))
            assert found.error is not None
            return found.error.condition
    one.send(Detach(attach.handle, True))
    detach, _ = await one.until(Detach)
    return detach.error.condition if detach.error else None


def sends_to(address: str) -> Attach:
    return sender(address, 7)


def receives_from(address: str) -> Attach:
    return receiver(address, 8)


# --- tokens ----------------------------------------------------------------------------------------------------------

FORGED = token("orders").replace("sig=", "sig=A")
REFUSED = {
    "signed with another key": (token("orders", key="guess"), f"{HERE}/orders", "InvalidSignature"),
    "of an unknown policy": (token("orders", "Nobody", "guess"), f"{HERE}/orders", "InvalidSignature"),
    "with a changed signature": (FORGED, f"{HERE}/orders", "InvalidSignature"),
    "with a changed expiry": (token("orders").replace("&se=", "&se=9"), f"{HERE}/orders", "InvalidSignature"),
    "expired": (token("orders", expiry=int(time.time()) - 1), f"{HERE}/orders", "ExpiredToken"),
    "without a time": (token("orders", expiry="soon"), f"{HERE}/orders", "InvalidToken"),
    "that ends at no time": (token("orders", expiry="nan"), f"{HERE}/orders", "InvalidToken"),
    "that never ends": (token("orders", expiry="inf"), f"{HERE}/orders", "InvalidToken"),
    "for another queue": (token("orders2"), f"{HERE}/orders", "InvalidAudience"),
    "for one queue, put for all": (token("orders"), f"{HERE}/", "InvalidAudience"),
    "for another namespace": (
        sas("sb://fabrikam.servicebus.windows.net/orders", ROOT_POLICY, ROOT),
        f"{HERE}/orders",
        "InvalidAudience",
    ),
    "put for another namespace": (token("orders"), "sb://fabrikam.servicebus.windows.net/orders", "InvalidAudience"),
    "for no address": (sas("sb://[half", ROOT_POLICY, ROOT), f"{HERE}/orders", "InvalidAudience"),
    "put for no address": (token("orders"), "sb://[half", "InvalidAudience"),
    "without a signature": (f"SharedAccessSignature sr={quote(HERE)}&se=1&skn=x", f"{HERE}/orders", "sig"),
    "with its fields in disguise": (token("orders").replace("sr=", "%73r="), f"{HERE}/orders", "lacks sr"),
    "that is empty": ("SharedAccessSignature ", f"{HERE}/orders", "lacks sr, sig, se, skn"),
    "that is a bearer's": ("eyJ0eXAiOiJKV1QifQ.e30.x", f"{HERE}/orders", "accept_any_jwt"),
    "of another queue's own policy": (token("orders", "Own", OWN), f"{HERE}/orders", "InvalidSignature"),
}


@pytest.mark.parametrize("which", REFUSED)
async def test_a_bad_token_is_refused_with_its_reason_and_opens_nothing(contoso: RunningNamespace, which: str) -> None:
    bad, address, reason = REFUSED[which]
    async with stranger(contoso) as one:
        status, words = await one.put_token(bad, address)
        assert (status, reason in words) == (401, True), words
        for attach in (sends_to("orders"), receives_from("orders"), sends_to("orders/$management")):
            assert await admitted(one, attach) == UNAUTHORIZED


@pytest.mark.parametrize(
    ("body", "address"), [(Int(5), f"{HERE}/orders"), (None, f"{HERE}/orders"), (token("orders"), Int(5))]
)
async def test_a_request_that_puts_no_token_is_a_bad_one(contoso: RunningNamespace, body: Any, address: Any) -> None:
    async with stranger(contoso) as one:
        await one.put_token(token("orders"), f"{HERE}/orders")
        one.send(Transfer(100, 1, b"cbs", 0, True), token_request(body, address))
        reply = Message((await one.next_frame()).payload).application_properties()
        assert reply.get("status-code") == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "contoso", "contoso.servicebus.windows.net", "CONTOSO"])
async def test_a_namespace_answers_to_its_names(contoso: RunningNamespace, host: str) -> None:
    async with stranger(contoso) as one:
        address = f"sb://{host}:{contoso.amqp_port}/Orders"
        assert await one.put_token(sas(address, ROOT_POLICY, ROOT), address) == (202, "Accepted")
        assert await admitted(one, sends_to("orders")) is None


async def test_a_token_opens_the_entity_it_was_put_for_and_what_is_below(contoso: RunningNamespace) -> None:
    async with stranger(contoso) as one:
        # A token for the whole namespace, put for one queue: Service Bus ties it to that queue.
        await one.put_token(token(""), f"{HERE}/orders")
        for below in ("orders", "orders/$DeadLetterQueue", "Orders/$management"):
            assert await admitted(one, receives_from(below)) is None
        for other in ("orders2", "bills", "news/subscriptions/all"):
            assert await admitted(one, receives_from(other)) == UNAUTHORIZED
        await one.put_token(token(""), f"{HERE}/")
        for other in ("orders2", "bills", "news/subscriptions/all"):
            assert await admitted(one, receives_from(other)) is None


@pytest.mark.parametrize(
    ("policy", "may_send", "may_listen"), [(ROOT_POLICY, True, True), ("Sends", True, False), ("Listens", False, True)]
)
async def test_a_policy_gives_its_claims_and_no_others(
    contoso: RunningNamespace, policy: str, may_send: bool, may_listen: bool
) -> None:
    async with stranger(contoso) as one:
        await one.put_token(token("orders", policy), f"{HERE}/orders")
        assert (await admitted(one, sends_to("orders")) is None) is may_send
        assert (await admitted(one, receives_from("orders")) is None) is may_listen
        assert await admitted(one, sends_to("orders/$management")) is None  # for each has something to ask there
        assert await peek_status(one) == (200 if may_listen else 401)


async def peek_status(one: AmqpPeer) -> int:
    """What the management node says to a peek: 200 stands for none found as well."""
    await one.attach_sender("orders/$management", 10)
    await one.attach_receiver("orders/$management", 11)
    one.flow(11, 1)
    body = Map.of({"from-sequence-number": Int(0), "message-count": Int(1)})
    one.send(
        Transfer(10, 900, b"m", 0, True),
        b"".join(
            (
                properties_bytes(Properties(message_id="1")),
                section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"operation": "com.microsoft:peek-message"})),
                section_bytes(Section.VALUE, body),
            )
        ),
    )
    while not isinstance((found := await one.next_frame()).performative, Transfer):
        pass
    reply = Message(found.payload).application_properties()
    status = reply.get("statusCode")
    if status == 401:
        assert reply.get("errorCondition") == Symbol(UNAUTHORIZED)
    return 200 if status == 204 else int(str(int(status)))  # type: ignore[arg-type]  # a status is a number


async def test_an_entity_has_policies_of_its_own_with_two_keys_each(contoso: RunningNamespace) -> None:
    for key in (OWN, SECOND):
        async with stranger(contoso) as one:
            assert await one.put_token(token("bills", "Own", key), f"{HERE}/bills") == (202, "Accepted")
            assert await admitted(one, receives_from("bills")) is None
            assert await admitted(one, sends_to("bills")) == UNAUTHORIZED
            assert await admitted(one, receives_from("orders")) == UNAUTHORIZED


async def test_a_topics_policy_opens_its_subscriptions(contoso: RunningNamespace) -> None:
    async with stranger(contoso) as one:
        path = "news/Subscriptions/all"
        assert await one.put_token(token(path, "Own", OWN), f"{HERE}/{path}") == (202, "Accepted")
        assert await admitted(one, receives_from(path)) is None
        assert await admitted(one, sends_to("news")) == UNAUTHORIZED


async def test_an_entitys_policy_is_not_the_namespaces(contoso: RunningNamespace) -> None:
    async with stranger(contoso) as one:
        assert (await one.put_token(token("", "Own", OWN), f"{HERE}/bills"))[0] == 401


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_link_ends_with_its_token_unless_the_token_was_renewed(contoso: RunningNamespace) -> None:
    now = time.time()
    contoso.namespace.access.seconds = lambda: now  # no token expires before all is in place
    async with stranger(contoso) as one:
        await one.put_token(token("orders", expiry=now + 0.4), f"{HERE}/orders")
        await one.put_token(token("orders2", expiry=now + 0.5), f"{HERE}/orders2")
        await one.attach_sender("orders", 0)
        await one.attach_receiver("orders2", 1)
        await one.attach_sender("orders2", 2)
        await one.put_token(token("orders"), f"{HERE}/orders")
        now += 1
        ended = {}
        for _ in range(2):
            detach = await one.expect(Detach)
            assert detach.error is not None
            ended[detach.handle] = detach.error.condition
        assert ended == {1: UNAUTHORIZED, 2: UNAUTHORIZED}
        one.send(Transfer(0, 50, b"t", 0, False), text("still welcome"))
        assert isinstance((await one.expect(Disposition)).state, Accepted)
        # And a token that has expired opens no further link.
        one.send(Detach(1, True))
        one.send(Detach(2, True))
        assert await admitted(one, sends_to("orders2")) == UNAUTHORIZED


async def test_who_waits_for_a_session_does_not_get_one_after_the_token_has_expired(contoso: RunningNamespace) -> None:
    now = time.time()
    contoso.namespace.access.seconds = lambda: now
    async with stranger(contoso) as one:
        await one.put_token(token("sessions", "Listens", expiry=now + 0.3), f"{HERE}/sessions")
        add_pending = receiver("sessions", 0)
        assert isinstance(add_pending.source, Source)
        add_pending.source.filter = Map(((Symbol("com.microsoft:session-filter"), None),))
        one.send(add_pending)
        await async_eventually(lambda: contoso.namespace.entity("sessions").links, "the receiver waits")
        now += 1
        await one.expect(Attach)
        assert (await one.error_of(Detach)).condition == UNAUTHORIZED
        assert not contoso.namespace.entity("sessions").links


# --- SASL ------------------------------------------------------------------------------------------------------------


async def test_sasl_plain_opens_the_namespace_as_its_policy_does(contoso: RunningNamespace) -> None:
    async with peer(contoso.amqp_port) as one:
        assert await one.sasl("PLAIN", f"\0Sends\0{SENDS}".encode()) == 0
        await one.open()
        await one.begin()
        assert await admitted(one, sends_to("orders")) is None
        assert await admitted(one, sends_to("news")) is None
        assert await admitted(one, receives_from("orders")) == UNAUTHORIZED


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", f"\0{ROOT_POLICY}\0guess".encode()),
        ("PLAIN", b"\0Nobody\0guess"),
        ("PLAIN", f"\0{ROOT_POLICY}\0".encode()),
        ("PLAIN", b""),
        ("PLAIN", None),
        ("PLAIN", b"no zeros at all"),
        ("PLAIN", b"\0\xff\xfe\0\xff"),
        ("SCRAM-SHA-256", None),
        ("", None),
    ],
)
async def test_a_failed_sign_in_is_reported_and_the_connection_ends(
    contoso: RunningNamespace, mechanism: str, response: bytes | None
) -> None:
    async with peer(contoso.amqp_port) as one:
        assert await one.sasl(mechanism, response) == 1
        assert await one.rest() == b""


async def test_there_is_one_try_per_connection(contoso: RunningNamespace) -> None:
    async with peer(contoso.amqp_port) as one:
        tries = (f"\0{ROOT_POLICY}\0{key}".encode() for key in ("guess", ROOT))
        one.write(SASL_HEADER + b"".join(frame(0, SaslInit("PLAIN", t).to_bytes(), FRAME_SASL) for t in tries))
        await one.bytes_of(8)
        await one.expect(SaslMechanisms)
        assert (await one.expect(SaslOutcome)).code == 1
        assert await one.rest() == b""


async def test_without_sasl_a_token_is_needed_all_the_same(contoso: RunningNamespace) -> None:
    async with peer(contoso.amqp_port) as one:
        await one.open()
        await one.begin()
        assert await admitted(one, sends_to("orders")) == UNAUTHORIZED
        assert await admitted(one, receives_from("nowhere")) == UNAUTHORIZED  # nor is it told what there is
        await one.put_token(token("orders"), f"{HERE}/orders")
        assert await admitted(one, sends_to("orders")) is None


# --- the SDK ---------------------------------------------------------------------------------------------------------


class Bearer:
    """A credential with a JSON web token without a valid signature."""

    def __init__(self) -> None:
        self.expires = int(time.time()) + 3600
        part = base64.urlsafe_b64encode(json.dumps({"exp": self.expires}).encode()).rstrip(b"=").decode()
        self.text = f"eyJhbGciOiJub25lIn0.{part}.bearer-signature"

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self.text, self.expires)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Bearer:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


async def try_to(send: bool, client: ServiceBusClient, queue: str = "orders") -> type[Exception] | None:
    """Sends or receives; the kind of error that the SDK raises."""
    try:
        async with client:
            if send:
                async with client.get_queue_sender(queue) as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
            else:
                async with client.get_queue_receiver(queue) as receiver:
                    await receiver.receive_messages(max_wait_time=0.1)
    except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
        return type(error)
    return None


async def test_the_sdk_tells_a_bad_token_from_a_missing_claim(contoso: RunningNamespace) -> None:
    start = f"Endpoint=sb://127.0.0.1:{contoso.amqp_port};UseDevelopmentEmulator=true;"

    def key(policy: str, secret: str) -> ServiceBusClient:
        credential = f"SharedAccessKeyName={policy};SharedAccessKey={secret}"
        return ServiceBusClient.from_connection_string(start + credential, retry_total=0)

    def signature(signed: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(f"{start}SharedAccessSignature={signed}", retry_total=0)

    def bearer() -> ServiceBusClient:
        return ServiceBusClient(f"127.0.0.1:{contoso.amqp_port}", Bearer(), use_tls=False, retry_total=0)

    unknown, unallowed = ServiceBusAuthenticationError, ServiceBusAuthorizationError
    here = f"sb://127.0.0.1:{contoso.amqp_port}"
    expected: list[tuple[bool, ServiceBusClient, type[Exception] | None]] = [
        (True, key(ROOT_POLICY, "guess"), unknown),
        (True, key("Nobody", ROOT), unknown),
        (True, key("Sends", SENDS), None),
        (False, key("Sends", SENDS), unallowed),
        (True, key("Listens", LISTENS), unallowed),
        (False, key("Listens", LISTENS), None),
        (True, signature(sas(f"{here}/orders", ROOT_POLICY, ROOT)), None),
        (False, signature(sas(f"{here}/orders", "Sends", SENDS)), unallowed),
        (True, signature(sas(f"{here}/orders", ROOT_POLICY, "guess")), unknown),
        (True, signature(sas(f"{here}/bills", ROOT_POLICY, ROOT)), unknown),
        (True, signature(sas("sb://fabrikam/orders", ROOT_POLICY, ROOT)), unknown),
        (True, bearer(), unknown),
    ]
    results = await asyncio.gather(*(try_to(send, client) for send, client, _ in expected))
    assert results == [wanted for *_, wanted in expected]


async def test_any_bearer_token_is_taken_where_that_is_configured() -> None:
    async with Emulator(namespace_settings(accept_any_jwt=True)) as emulator:
        running = emulator["contoso"]
        create_configured_entities(running)
        client = ServiceBusClient(f"127.0.0.1:{running.amqp_port}", Bearer(), use_tls=False, retry_total=0)
        async with stranger(running) as one:
            assert await one.put_token("not even a JWT", f"{HERE}/orders") == (202, "Accepted")
            assert await admitted(one, sends_to("orders")) is None
            assert await admitted(one, sends_to("orders2")) == UNAUTHORIZED
            old = base64.urlsafe_b64encode(b'{"exp": 1}').decode()
            assert (await one.put_token(f"x.{old}.x", f"{HERE}/orders2"))[0] == 401
        assert await try_to(True, client) is None


# --- secrets ---------------------------------------------------------------------------------------------------------


async def test_no_key_or_token_gets_into_a_log_an_error_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "syphon")
    told: list[str] = []
    bearer = Bearer()
    tokens = [bad for bad, *_ in REFUSED.values()] + [token("orders"), token("bills", "Own", OWN), bearer.text]
    emulator = Emulator(namespace_settings())
    async with emulator:
        running = emulator["contoso"]
        create_configured_entities(running)
        for response in (f"\0{ROOT_POLICY}\0{ROOT}", f"\0{ROOT_POLICY}\0wrong-{SENDS}", f"{ROOT}"):
            async with peer(running.amqp_port) as one:
                await one.sasl("PLAIN", response.encode())
        async with stranger(running) as one:
            for each in tokens:
                told.append((await one.put_token(each, f"{HERE}/orders"))[1])
                told.append(repr(await admitted(one, sends_to("bills"))))
            one.send(Transfer(100, 99, b"cbs", 0, True), token_request(tokens[0], f"{HERE}/orders")[:-5])
            told.append((await one.error_of(Detach)).description or "")
        async with peer(running.amqp_port) as one:  # a request that cannot be read, with a token in it
            one.write(f"GET /orders HTTP/1.1\r\nHost: x\r\nAuthorization: {token('orders')}\0\r\n\r\n".encode())
            assert b" 400 " in await one.rest()
        told += [record.getMessage() + repr(record.args) for record in caplog.records]
        told += [repr(emulator.settings), repr(running), repr(emulator), str(emulator.settings.model_dump())]
        ours = (each for each in gc.get_objects() if str(type(each).__module__).startswith("syphon.emulator"))
        told += [repr(each) for each in ours]
    secrets = {ROOT, SENDS, LISTENS, OWN, SECOND, "bearer-signature"}
    secrets |= {each.partition("sig=")[2].partition("&")[0] for each in tokens if "sig=" in each} - {""}
    leaks = {secret: line for line in told for secret in secrets if secret in line}
    assert leaks == {}
    assert any("refused a token" in line for line in told)
    assert any("refused a connection" in line for line in told)
    assert any("not HTTP" in line for line in told)
    assert any(line.startswith("Policy(") for line in told)
