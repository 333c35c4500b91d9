"""Rules of subscriptions from end to end: the official client sends, and the right subscriptions get the message."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthorizationError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleFilter,
    TrueRuleFilter,
)
from pydantic import SecretStr

from syphon.amqp import Described, Long, Map, Symbol
from syphon.amqp.encoding import encode
from syphon.emulator import Emulator, EmulatorSettings, NamespaceSettings, PolicySettings
from syphon.emulator.broker.descriptions import Claim, RuleDescription, SubscriptionDescription, TopicDescription
from syphon.emulator.broker.filters import CorrelationFilter, Filter, SqlFilter
from syphon.emulator.broker.message import BrokeredMessage
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.plain_http import AioPlainHttp
from tests.support.sdk_client import SdkClient, held, sdk_client
from tests.support.sdk_queue import AIO, both

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.fixture(autouse=True)
def _news(request: pytest.FixtureRequest) -> None:
    if "emulated" in request.fixturenames:
        namespace = request.getfixturevalue("emulated").namespace
        namespace.create_topic(TopicDescription("news"))
        namespace.create_subscription(SubscriptionDescription("news", "one"))


def path(name: str) -> str:
    return f"news/subscriptions/{name}"


def subscribe(emulated: EmulatedNamespace, filters: dict[str, Filter]) -> None:
    """A subscription for each filter, of which it says what it wants."""
    for name, wanted in filters.items():
        rule = RuleDescription("only", wanted)
        emulated.namespace.create_subscription(SubscriptionDescription("news", name), rule)


def takers(emulated: EmulatedNamespace) -> dict[str, list[str]]:
    names = [subscription.name for subscription in emulated.namespace.subscriptions("news")]
    return {name: held(emulated, path(name))[0] for name in names}


# What a filter sees of a message


@both
async def test_filters_see_application_properties_of_every_kind_the_client_sends(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    kept = {
        "text": "text = 'blue'",
        "like": "text LIKE 'b%e'",
        "number": "number = 7 AND number > 6.5 AND number + 1 = 8",
        "large": "large > 3000000000",
        "fraction": "fraction > 1.25 AND fraction < 1.75",
        "flag": "flag = TRUE",
        "in": "text IN ('red', 'blue')",
        "any-case": "TEXT = 'blue' AND user.Number = 7",
        "exists": "EXISTS(text) AND missing IS NULL",
    }
    not_kept = {
        "case": "text = 'BLUE'",
        "other-type": "number = '7' OR text = 7",
        "unknown": "missing <> 'x' OR NOT (missing = 'x')",
    }
    subscribe(emulated, {name: SqlFilter(expression) for name, expression in {**kept, **not_kept}.items()})
    async with sdk_client(emulated, flavour) as it:
        properties: Any = {
            "text": "blue",
            "number": 7,
            "large": {TYPE: AMQPTypes.long, VALUE: 2**40},
            "fraction": 1.5,
            "flag": True,
            "id": ID,
            "binary": b"\0\1",
        }
        await it.send("news", "match", application_properties=properties)
        await it.send("news", "bare")
    found = takers(emulated)
    assert {name: found[name] for name in kept} == {name: ["match"] for name in kept}
    assert {name: found[name] for name in not_kept} == {name: [] for name in not_kept}


async def test_filters_compare_times_durations_and_ids_as_what_they_are(emulated: EmulatedNamespace) -> None:
    later, long, same = {"@t": MOMENT - timedelta(days=1)}, {"@d": timedelta(minutes=1)}, {"@i": ID}
    subscribe(
        emulated,
        {
            "time": SqlFilter("at > @t", later),
            "time-equal": CorrelationFilter(properties={"at": MOMENT}),
            "duration": SqlFilter("took > @d", long),
            "offset": SqlFilter("seen > @t", later),
            "id": SqlFilter("id = @i", same),
            "id-equal": CorrelationFilter(properties={"id": ID}),
            "id-as-text": CorrelationFilter(properties={"id": str(ID)}),
        },
    )
    ticks = (MOMENT - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10
    properties: Any = {"at": MOMENT, "id": ID}
    async with sdk_client(emulated) as it:
        await it.send("news", "a", application_properties=properties)
    # What .NET sends cannot be sent with the Python client.
    dotnet = Map.of(
        {
            "took": Described(Symbol("com.microsoft:timespan"), Long(700_000_000)),
            "seen": Described(Symbol("com.microsoft:datetime-offset"), Long(ticks)),
        }
    )
    payload = b"\x00\x53\x74" + encode(dotnet) + b"\x00\x53\x75\xa0\x01b"
    emulated.namespace.target("news").submit([BrokeredMessage.parse(payload)])
    assert takers(emulated) == {
        "one": ["a", "b"],
        "time": ["a"],
        "time-equal": ["a"],
        "duration": ["b"],
        "offset": ["b"],
        "id": ["a"],
        "id-equal": ["a"],
        "id-as-text": [],
    }


async def test_filters_see_the_properties_the_service_itself_knows(emulated: EmulatedNamespace) -> None:
    yes = {
        "label": "sys.Label = 'greeting'",
        "subject": "sys.Subject = 'greeting'",
        "id": "sys.MessageId = 'id-1'",
        "correlation": "sys.CorrelationId = 'c-1'",
        "to": "sys.To = 'you'",
        "reply-to": "sys.ReplyTo = 'me'",
        "session": "sys.SessionId = 's-1'",
        "reply-session": "sys.ReplyToSessionId = 'rs-1'",
        "content": "sys.ContentType = 'text/plain'",
        "key": "sys.PartitionKey = 's-1'",
        "time": "sys.EnqueuedTimeUtc IS NOT NULL",
        "any-case": "SYS.label = 'greeting'",
    }
    subscribe(emulated, {name: SqlFilter(expression) for name, expression in yes.items()})
    subscribe(
        emulated,
        {
            "all-of-them": CorrelationFilter(
                correlation_id="c-1",
                message_id="id-1",
                to="you",
                reply_to="me",
                label="greeting",
                session_id="s-1",
                reply_to_session_id="rs-1",
                content_type="text/plain",
                properties={"extra": 1},
            ),
            "all-but-one": CorrelationFilter(label="greeting", to="them"),
        },
    )
    message = ServiceBusMessage(
        "a",
        subject="greeting",
        message_id="id-1",
        correlation_id="c-1",
        to="you",
        reply_to="me",
        session_id="s-1",
        reply_to_session_id="rs-1",
        content_type="text/plain",
        partition_key="s-1",
        application_properties={"extra": 1},
    )
    async with sdk_client(emulated) as it:
        await it.send("news", message, ServiceBusMessage("b", partition_key="other"))
    found = takers(emulated)
    assert found.pop("time") == ["a", "b"]
    assert found.pop("one") == ["a", "b"]
    assert found.pop("all-but-one") == []
    assert found == {name: ["a"] for name in [*yes, "all-of-them"] if name != "time"}


async def test_several_rules_that_match_make_one_copy(emulated: EmulatedNamespace) -> None:
    for name in ("first", "second"):
        emulated.namespace.create_rule("news", "one", RuleDescription(name, SqlFilter("1 = 1")))
    async with sdk_client(emulated) as it:
        await it.send("news", "a")
    assert takers(emulated) == {"one": ["a"]}


# Rules made over HTTP


@pytest.fixture
async def admin(emulated: EmulatedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    endpoint = emulated.connection_string.replace("UseDevelopmentEmulator=true;", "")
    async with ServiceBusAdministrationClient.from_connection_string(
        endpoint, transport=AioPlainHttp(), retry_total=0
    ) as client:
        yield client


async def test_rules_made_and_removed_by_the_administration_client_hold_for_the_next_message(
    emulated: EmulatedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    async with sdk_client(emulated) as it:

        async def sent(**properties: Any) -> int:
            """How many copies of a message with these properties the subscription takes."""
            before = len(held(emulated, path("one"))[0])
            await it.send("news", "x", application_properties=properties)
            return len(held(emulated, path("one"))[0]) - before

        assert await sent() == 1
        await admin.delete_rule("news", "one", "$Default")
        assert await sent() == 0
        wanted: Any = {"@at": MOMENT, "@long": timedelta(seconds=90), "@n": 5}
        rules: Any = {
            "sql": SqlRuleFilter("colour = 'red' AND n > @n", parameters=wanted),
            "correlated": CorrelationRuleFilter(properties={"colour": "blue", "n": 7}),
            "never": FalseRuleFilter(),
        }
        for name, rule in rules.items():
            await admin.create_rule("news", "one", name, filter=rule)
        assert [await sent(colour="red", n=n) for n in (5, 6)] == [0, 1]
        assert [await sent(colour="blue", n=n) for n in (6, 7)] == [0, 1]
        rule = await admin.get_rule("news", "one", "sql")
        rule.filter = TrueRuleFilter()
        await admin.update_rule("news", "one", rule)
        assert await sent(colour="green") == 1
        assert {each.name async for each in admin.list_rules("news", "one")} == {"sql", "correlated", "never"}


async def test_rules_change_between_two_messages_of_a_stream(emulated: EmulatedNamespace) -> None:
    """Messages sent before the removal of a rule are there, later ones are not. None is lost or duplicated."""
    async with sdk_client(emulated) as it:
        await it.sender("news")
        expected = []
        for number in range(20):
            if number % 5 == 0 and number:
                emulated.namespace.delete_rule("news", "one", next(iter(emulated.namespace.rules("news", "one"))).name)
                wanted = "1 = 0" if number % 10 else "1 = 1"
                emulated.namespace.create_rule("news", "one", RuleDescription(f"from-{number}", SqlFilter(wanted)))
            if number // 5 % 2 == 0:
                expected.append(str(number))
            await it.send("news", str(number))
    assert takers(emulated)["one"] == expected


# Rules made over AMQP


def amqp_int(number: int) -> Any:
    return {TYPE: AMQPTypes.int, VALUE: number}


async def manage(receiver: Any, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A management request on the receiver's connection: the reply's status, and its body or the reason for none."""

    def read(status: int, message: Any, description: Any, **_: Any) -> tuple[int, Any]:
        return status, message.value if status == 200 else str(description)

    request = f"com.microsoft:{operation}".encode()
    found: tuple[int, Any] = await receiver._mgmt_request_response_with_retry(request, body, read)
    return found


def adding(name: str, **rule: Any) -> dict[str, Any]:
    return {"rule-name": name, "rule-description": {key.replace("_", "-"): value for key, value in rule.items()}}


async def rule_names(receiver: Any, skip: int = 0, top: int = 100) -> list[str]:
    page = {"skip": amqp_int(skip), "top": amqp_int(top)}
    status, body = await manage(receiver, "enumerate-rules", page)
    if status == 204:
        return []
    return [entry[b"rule-description"][2].decode() for entry in body[b"rules"]]


@both
async def test_rules_are_added_listed_and_removed_over_amqp(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_client(emulated, flavour) as it:
        receiver, _ = await asyncio.gather(it.receiver(("news", "one")), it.sender("news"))
        assert await rule_names(receiver) == ["$Default"]
        await manage(receiver, "remove-rule", {"rule-name": "$Default"})
        assert await rule_names(receiver) == []
        await it.send("news", "none")
        await manage(receiver, "add-rule", adding("sql", sql_filter={"expression": "colour = 'red'"}))
        by_label = {"label": "greeting", "properties": {"n": 7, "at": MOMENT, "id": ID}}
        await manage(receiver, "add-rule", adding("correlated", correlation_filter=by_label))
        await manage(receiver, "add-rule", adding("never", sql_filter={"expression": "1 = 0"}))
        assert await rule_names(receiver) == ["correlated", "never", "sql"]
        assert await rule_names(receiver, skip=1, top=1) == ["never"]
        await it.send("news", "red", application_properties={"colour": "red"})
        await it.send("news", "green", application_properties={"colour": "green"})
        fitting: Any = {"n": 7, "at": MOMENT, "id": ID}
        await it.send("news", "greeting", subject="greeting", application_properties=fitting)
        assert takers(emulated)["one"] == ["red", "greeting"]


async def test_bad_rules_are_refused_over_amqp_and_change_nothing(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        receiver = await it.receiver(("news", "one"))
        refused = {
            "already exists": adding("$default", sql_filter={"expression": "1 = 1"}),
            "not valid at character": adding("bad", sql_filter={"expression": "colour ="}),
            "expected SET or REMOVE, found a": adding(
                "acts", sql_filter={"expression": "1 = 1"}, sql_rule_action={"expression": "a = 1"}
            ),
            "no filter that is known": adding("empty"),
        }
        for why, body in refused.items():
            status, reason = await manage(receiver, "add-rule", body)
            assert (status in (400, 409, 501), why in reason) == (True, True)
        status, _ = await manage(receiver, "remove-rule", {"rule-name": "missing"})
        assert status == 404
        assert await rule_names(receiver) == ["$Default"]


async def test_rules_that_came_over_http_are_listed_over_amqp_with_their_values(
    emulated: EmulatedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    values: Any = {"at": MOMENT, "took": timedelta(seconds=1), "n": 1, "large": 2**40, "half": 0.5, "yes": True}
    await admin.create_rule("news", "one", "typed", filter=CorrelationRuleFilter(label="l", properties=values))
    async with sdk_client(emulated) as it:
        receiver = await it.receiver(("news", "one"))
        page = {"skip": amqp_int(1), "top": amqp_int(1)}
        _, body = await manage(receiver, "enumerate-rules", page)
    wanted, _, name, _ = body[b"rules"][0][b"rule-description"]
    assert (name, wanted[4]) == (b"typed", b"l")
    assert wanted[8] == {
        b"at": round(MOMENT.timestamp() * 1000),
        b"took": 10_000_000,
        b"n": 1,
        b"large": 2**40,
        b"half": 0.5,
        b"yes": True,
    }


async def test_who_may_listen_may_see_to_the_rules_of_a_subscription_over_amqp() -> None:
    """Only the administration API asks for Manage."""
    policies = [
        PolicySettings(name="Listener", key=SecretStr("c2VjcmV0"), claims=frozenset({Claim.LISTEN})),
        PolicySettings(name="Sender", key=SecretStr("c2VjcmV0"), claims=frozenset({Claim.SEND})),
    ]
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso", policies=policies)])
    async with Emulator(settings) as emulator:
        emulated = EmulatedNamespace(emulator["contoso"])
        emulated.namespace.create_topic(TopicDescription("news"))
        emulated.namespace.create_subscription(SubscriptionDescription("news", "one"))
        async with sdk_client(emulated) as it:
            receiver = await it.receiver(("news", "one"))
            await manage(receiver, "add-rule", adding("mine", sql_filter={"expression": "1 = 1"}))
            assert await rule_names(receiver) == ["$Default", "mine"]
        it = SdkClient(emulated, AIO)
        it.client = type(it.client).from_connection_string(
            emulated.running.connection_string_for("Sender"), retry_total=0
        )
        with pytest.raises(ServiceBusAuthorizationError):
            await it.receiver(("news", "one"))
        await it.leave()
