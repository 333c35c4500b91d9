"""Actions of subscription rules: they change a subscription's copy of a message, as Service Bus documents it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter, TrueRuleFilter

from syphon.amqp import (
    Byte,
    Described,
    Float,
    Int,
    Long,
    Map,
    Message,
    Properties,
    Section,
    Symbol,
    Timestamp,
    ULong,
    Value,
    data_section,
    properties_bytes,
    section_bytes,
)
from syphon.emulator import Emulator, EmulatorSettings, NamespaceSettings
from syphon.emulator.broker.actions import ActionFailed, SqlAction
from syphon.emulator.broker.descriptions import RuleDescription, SubscriptionDescription, TopicDescription
from syphon.emulator.broker.filters import FalseFilter, SqlFilter, TrueFilter
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.refusals import BadArgument
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.plain_http import AioPlainHttp
from tests.support.sdk_client import rest, sdk_client, take
from tests.support.sdk_queue import both

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def changed(expression: str, properties: dict[str, Value] | None = None, **system: Any) -> Message:
    """The message that an action makes of one with these properties."""
    own = section_bytes(Section.APPLICATION_PROPERTIES, Map.of(properties)) if properties else b""
    payload = properties_bytes(Properties(**{"message_id": "m", **system})) + own + data_section(b"body")
    result = Message(SqlAction(expression).applied_to(BrokeredMessage.parse(payload)).bare)
    assert result.read(Section.DATA) == b"body"
    return result


# The language


@pytest.mark.parametrize(
    ("expression", "before", "after"),
    [
        ("SET a = 'b'", {}, {"a": "b"}),
        ("set user.a = 'b'", {"a": "old", "z": 1.5}, {"z": 1.5, "a": "b"}),
        ("SET A = 'b'", {"a": "old"}, {"a": "b"}),
        ("SET [a b] = 'it''s'; SET \"c\" = TRUE", {}, {"a b": "it's", "c": True}),
        ("SET a = 7", {}, {"a": Long(7)}),
        ("SET a = 0.5", {}, {"a": 0.5}),
        ("SET a = NULL", {"a": "x"}, {"a": None}),
        ("SET a = missing", {}, {"a": None}),
        ("SET a = missing + 1", {}, {"a": None}),
        ("SET n = n + 1", {"n": Int(6)}, {"n": Int(7)}),
        ("SET n = 300", {"n": Byte(6)}, {"n": Long(300)}),
        ("SET n = 2", {"n": 0.5}, {"n": 2.0}),
        ("SET n = 2", {"n": Float(0.5)}, {"n": Float(2.0)}),
        ("SET n = 2 * (3 + 4) - 5 % 3", {}, {"n": Long(12)}),
        ("SET a = 'x' + sys.Label, SET b = a + '!'", {}, {"a": "xgreen", "b": "xgreen!"}),
        ("SET copy = p('a')", {"a": Timestamp(5)}, {"a": Timestamp(5), "copy": Timestamp(5)}),
        ("REMOVE a", {"A": "x", "b": ULong(2)}, {"b": ULong(2)}),
        ("REMOVE missing", {"b": ULong(2)}, {"b": ULong(2)}),
        ("SET a = 1 REMOVE a;", {}, {}),
        ("SET set = 1; SET remove = 2", {}, {"set": Long(1), "remove": Long(2)}),
    ],
)
def test_statements_change_application_properties(
    expression: str, before: dict[str, Value], after: dict[str, Value]
) -> None:
    found = changed(expression, before, subject="green").application_properties()
    assert [(key, type(value), value) for key, value in found] == [
        (key, type(value), value) for key, value in after.items()
    ]


def test_statements_change_system_properties() -> None:
    expression = (
        "SET sys.Label = 'red'; SET sys.CorrelationId = sys.MessageId + '-' + sys.Label; SET sys.To = 5;"
        "SET sys.ReplyTo = n; REMOVE sys.ContentType; SET sys.SessionId = 's'; SET sys.Subject = sys.Subject + '!'"
    )
    found = changed(expression, {"n": Int(1)}, subject="green", content_type="text").properties()
    assert found == Properties(
        message_id="m", to="5", subject="red!", reply_to="1", correlation_id="m-red", content_type=None, group_id="s"
    )


def test_a_removed_message_id_is_replaced() -> None:
    assert changed("REMOVE sys.MessageId").properties().message_id not in (None, "m")


def test_values_of_parameters_and_functions_get_their_amqp_types() -> None:
    action = SqlAction(
        "SET at = @at; SET local = @local; SET took = @took; SET id = newid()",
        {"@at": MOMENT, "@local": MOMENT.replace(tzinfo=None), "@took": timedelta(seconds=2)},
    )
    found = action.applied_to(BrokeredMessage.parse(data_section(b"x"))).application_properties()
    when = Timestamp(1714979289000)
    assert (found.get("at"), found.get("local")) == (when, when)
    assert found.get("took") == Described(Symbol("com.microsoft:timespan"), Long(20_000_000))
    assert isinstance(found.get("id"), UUID)


def test_a_time_to_live_is_a_duration() -> None:
    action = SqlAction("SET sys.TimeToLive = @long", {"@long": timedelta(seconds=90)})
    assert action.applied_to(BrokeredMessage.parse(data_section(b"x"))).ttl == 90_000
    with pytest.raises(ActionFailed, match="a duration"):
        SqlAction("SET sys.TimeToLive = 90").applied_to(BrokeredMessage.parse(data_section(b"x")))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "at character 1: expected SET or REMOVE, found the end"),
        ("a = 1", "at character 1: expected SET or REMOVE, found a"),
        ("SET = 1", "at character 5: expected a property, found ="),
        ("SET a", "expected = and a value, found the end"),
        ("SET a = ", "expected a property, a value or ("),
        ("SET a = 1 = 2", "expected SET or REMOVE, found ="),
        ("SET a = (1 = 2)", "expected a value rather than a condition"),
        ("SET a = 1;; SET b = 2", "expected SET or REMOVE, found ;"),
        ("SET sys.Nothing = 1", "expected the name of a system property, found Nothing"),
        ("SET other.a = 1", "expected sys or user before the dot"),
        ("SET sys.SequenceNumber = 1", "expected a system property that an action can change"),
        ("REMOVE sys.EnqueuedTimeUtc", "expected a system property that an action can change"),
        ("SET a = @unknown", "expected a parameter the action has a value for"),
        ("SET a = b LIKE 'c'", "expected SET or REMOVE, found LIKE"),
        ("SET a = '" + "x" * 1024 + "'", "has 1034 characters; expected at most 1024"),
        ("SET a = 1;" * 33, "expected at most 32 statements"),
    ],
)
def test_an_invalid_action_is_refused_with_its_place(expression: str, reason: str) -> None:
    with pytest.raises(BadArgument) as refused:
        SqlAction(expression)
    assert refused.value.description.startswith("The SQL action expression ")
    assert reason in refused.value.description


# Subscriptions


def subscribe(emulated: EmulatedNamespace, *rules: RuleDescription, **settings: Any) -> None:
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "one", **settings), rules[0])
    for rule in rules[1:]:
        emulated.namespace.create_rule("news", "one", rule)


@both
async def test_each_matching_rule_with_an_action_gives_a_copy_and_all_others_one(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    subscribe(
        emulated,
        RuleDescription("first", TrueFilter()),
        RuleDescription("second", SqlFilter("colour = 'red'")),
        RuleDescription("urgent", SqlFilter("colour = 'red'"), SqlAction("SET priority = 'high'; REMOVE colour")),
        RuleDescription("named", TrueFilter(), SqlAction("SET sys.Label = 'news of ' + colour")),
        RuleDescription("never", FalseFilter(), SqlAction("SET priority = 'none'")),
    )
    async with sdk_client(emulated, flavour) as it:
        await it.send("news", ServiceBusMessage("x", application_properties={"colour": "red"}))
        messages = await take(await it.receiver(("news", "one")), 3)
    assert [(message.application_properties, message.subject) for message in messages] == [
        ({b"colour": b"red"}, None),
        ({b"priority": b"high"}, None),
        ({b"colour": b"red"}, "news of red"),
    ]
    assert len({message.sequence_number for message in messages}) == 3


async def test_an_action_can_give_a_message_its_session(emulated: EmulatedNamespace) -> None:
    subscribe(
        emulated, RuleDescription("by", TrueFilter(), SqlAction("SET sys.SessionId = region")), requires_session=True
    )
    async with sdk_client(emulated) as it:
        await it.send("news", ServiceBusMessage("x", application_properties={"region": "eu"}), "without a region")
        receiver = await it.receiver(("news", "one"), session_id="eu")
        assert [str(message) for message in await take(receiver)] == ["x"]
        assert await it.contents(("news", "one/$DeadLetterQueue")) == [["without a region"]]


@pytest.mark.parametrize("dead_letters", [True, False])
async def test_a_message_whose_action_fails_is_dead_lettered_if_the_subscription_says_so(
    emulated: EmulatedNamespace, dead_letters: bool
) -> None:
    subscribe(
        emulated,
        RuleDescription("bad", TrueFilter(), SqlAction("SET a = 1; SET sys.TimeToLive = 'soon'")),
        dead_lettering_on_filter_evaluation_exceptions=dead_letters,
    )
    async with sdk_client(emulated) as it:
        await it.send("news", "x")
        letters = await rest(await it.receiver(("news", "one/$DeadLetterQueue")))
    assert emulated.namespace.runtime("news/subscriptions/one").active == 0
    assert [letter.dead_letter_reason for letter in letters] == (["RuleActionFailed"] if dead_letters else [])
    for letter in letters:
        assert "a duration above zero, not 'soon'" in str(letter.dead_letter_error_description)
        assert b"a" not in (letter.application_properties or {})  # all of the action, or nothing


async def test_actions_made_by_the_administration_client_come_back_and_survive_a_restart(tmp_path: Path) -> None:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], state=tmp_path)
    action = SqlRuleAction("SET priority = @p; SET at = @at", parameters={"@p": 5, "@at": MOMENT.replace(tzinfo=None)})
    for start in range(2):
        async with Emulator(settings) as emulator:
            here = emulator["contoso"]
            admin = ServiceBusAdministrationClient.from_connection_string(
                here.connection_string, transport=AioPlainHttp()
            )
            async with admin, sdk_client(EmulatedNamespace(here)) as it:
                if start == 0:
                    await admin.create_topic("news")
                    await admin.create_subscription("news", "one")
                    await admin.delete_rule("news", "one", "$Default")
                    await admin.create_rule("news", "one", "acts", filter=SqlRuleFilter("1 = 1"), action=action)
                    await admin.create_rule("news", "one", "plain", filter=TrueRuleFilter())
                rules = {rule.name: rule async for rule in admin.list_rules("news", "one")}
                assert isinstance(rules["acts"].action, SqlRuleAction)
                assert rules["acts"].action.sql_expression == action.sql_expression
                assert rules["acts"].action.parameters == action.parameters
                assert rules["plain"].action is None
                await it.send("news", "x")
                receiver = await it.receiver(("news", "one"))
                plain, acted = await take(receiver, 2)
                assert not plain.application_properties
                assert acted.application_properties == {b"priority": 5, b"at": 1714979289000}
                await receiver.complete_message(plain)
                await receiver.complete_message(acted)
