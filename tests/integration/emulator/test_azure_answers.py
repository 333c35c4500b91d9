"""Details of the administration API that answers recorded on Azure show and its documentation does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import ClientResponseError
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from syphon.emulator.broker.description_rules import validate
from syphon.emulator.broker.descriptions import QueueDescription, SubscriptionDescription, Tier, TopicDescription
from syphon.emulator.broker.refusals import BadArgument
from syphon.emulator.http_front.atom import read_entry
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.integration.emulator.test_atom import client, everything, get, put
from tests.support.amqp_peer import sas
from tests.support.http_namespace import KEY, ServedNamespace, served
from tests.support.sdk_client import held, sdk_client


@pytest.fixture
async def here() -> AsyncIterator[ServedNamespace]:
    async with served() as it:
        yield it


@pytest.fixture
async def admin(here: ServedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with client(here) as it:
        yield it


async def test_entries_of_a_feed_write_subscriptions_and_rules_with_capitals(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("a/rules/x"))
    here.namespace.create_subscription(SubscriptionDescription("a/rules/x", "audit"))
    subscriptions = await get(here, "a/rules/x/subscriptions?api-version=2021-05")
    assert f"<id>https://{here.address}/a/rules/x/Subscriptions/audit?api-version=2021-05</id>" in subscriptions
    rules = await get(here, "a/rules/x/subscriptions/audit/rules?api-version=2021-05")
    assert f"<id>https://{here.address}/a/rules/x/Subscriptions/audit/Rules/$Default?api-version=2021-05</id>" in rules


@pytest.mark.parametrize("resource", ["127.0.0.1", "{address}", "sb://{address}/other"])
async def test_the_token_to_forward_may_be_signed_for_the_bare_host(here: ServedNamespace, resource: str) -> None:
    here.namespace.create_queue(QueueDescription("other"))
    token = sas(resource.format(address=here.address), "Root", KEY)
    forwarding = "<QueueDescription><ForwardTo>other</ForwardTo></QueueDescription>"
    await put(here, "orders", forwarding, headers={"ServiceBusSupplementaryAuthorization": token})
    elsewhere = {"ServiceBusSupplementaryAuthorization": sas("elsewhere", "Root", KEY)}
    with pytest.raises(ClientResponseError, match="elsewhere"):
        await put(here, "bills", forwarding, headers=elsewhere)


async def test_a_queue_of_sessions_forwards_its_messages_and_one_may_forward_to_itself(
    emulated: EmulatedNamespace,
) -> None:
    namespace = emulated.namespace
    namespace.create_queue(QueueDescription("target"))
    waiting = namespace.create_queue(QueueDescription("sessions", requires_session=True))
    own = namespace.create_queue(QueueDescription("own"))
    async with sdk_client(emulated) as it:
        await it.send("sessions", "before", session_id="s")
        namespace.update_queue(replace(waiting, forward_to="target"))
        await it.send("sessions", "after", session_id="s")
        assert held(emulated, "sessions", "target") == [[], ["before", "after"]]
        namespace.update_queue(replace(own, forward_to="own"))
        await it.send("own", "round")
        assert held(emulated, "own", "own/$Transfer/$DeadLetterQueue") == [[], ["round"]]


async def test_the_administration_client_makes_queues_that_forward_with_sessions_and_to_themselves(
    admin: ServiceBusAdministrationClient,
) -> None:
    await admin.create_queue("target")
    made = await admin.create_queue("sessions", requires_session=True, forward_to="target")
    assert made.requires_session
    assert made.forward_to is not None
    own = await admin.create_queue("own")
    own.forward_to = "own"
    await admin.update_queue(own)
    assert str((await admin.get_queue("own")).forward_to).endswith("/own")


async def test_a_partitioned_entity_has_the_size_of_its_partitions_and_no_order(
    admin: ServiceBusAdministrationClient,
) -> None:
    queue = await admin.create_queue("orders", enable_partitioning=True)
    assert queue.max_size_in_megabytes == 16_384
    await admin.update_queue(queue)  # what was read can be written back
    assert (await admin.get_queue("orders")).max_size_in_megabytes == 16_384
    topic = await admin.create_topic("news", enable_partitioning=True, max_size_in_megabytes=3072)
    assert (topic.max_size_in_megabytes, topic.support_ordering) == (49_152, False)


async def test_partitions_keep_no_order_between_sessions(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("plain", enable_partitioning=True))
    here.namespace.create_queue(QueueDescription("sessions", enable_partitioning=True, requires_session=True))
    assert "<SupportOrdering>true</SupportOrdering>" in await get(here, "plain")
    assert "<SupportOrdering>false</SupportOrdering>" in await get(here, "sessions")


async def test_a_topic_counts_its_filters_for_clients_that_know_the_counts(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    await admin.create_rule("news", "audit", "sql", filter=SqlRuleFilter("1=1"))
    await admin.create_rule("news", "audit", "correlation", filter=CorrelationRuleFilter(correlation_id="c"))
    new, old = await get(here, "news?api-version=2024-05"), await get(here, "news?api-version=2021-05")
    assert "<SqlFilterCount>2</SqlFilterCount><CorrelationFilterCount>1</CorrelationFilterCount>" in new  # + $Default
    assert "FilterCount" not in old


async def test_a_subscription_that_forwards_is_never_idle(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_topic("news")
    await admin.create_queue("orders")
    idle = timedelta(minutes=10)
    made = await admin.create_subscription("news", "audit", auto_delete_on_idle=idle, forward_to="orders")
    plain = await admin.create_subscription("news", "plain", auto_delete_on_idle=idle)
    assert isinstance(made.auto_delete_on_idle, timedelta)
    assert made.auto_delete_on_idle > timedelta(days=10_000_000)
    assert plain.auto_delete_on_idle == idle


async def test_a_bad_value_is_refused_before_a_missing_entity(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    bad = "<SubscriptionDescription><LockDuration>PT1H</LockDuration></SubscriptionDescription>"
    with pytest.raises(ClientResponseError, match="LockDuration was given as 3600 seconds") as refused:
        await put(here, "news/subscriptions/missing", bad, update=True)
    assert refused.value.status == 400


async def test_a_time_without_a_zone_stays_one(admin: ServiceBusAdministrationClient) -> None:
    local = datetime(2020, 7, 5, 11, 12, 13)
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    rule: Any = await admin.create_rule(
        "news",
        "audit",
        "mine",
        filter=SqlRuleFilter("at = @at", parameters={"@at": local}),
        action=SqlRuleAction("SET at = @at", parameters={"@at": local}),
    )
    assert (rule.filter.parameters, rule.action.parameters) == ({"@at": local}, {"@at": local})
    assert "mine" in {each.name for each in await everything(admin.list_rules("news", "audit"))}


async def test_refusals_have_the_texts_and_sub_codes_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("orders")
    exists = r"SubCode=40900\. The messaging entity 'sb://[^']*/orders' already exists\."
    with pytest.raises(ResourceExistsError, match=exists):
        await admin.create_queue("orders")
    missing = (
        r"SubCode=40400\. The messaging entity 'sb://[^']*/other' could not be found\. To know more visit https://"
    )
    with pytest.raises(ResourceNotFoundError, match=missing):
        await admin.delete_queue("other")
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. "):
        await admin.create_queue("bad", max_delivery_count=0)


@pytest.mark.parametrize(
    ("path", "description", "update", "detail"),
    [
        ("", "<SubscriptionDescription/>", False, "The messaging entity 'contoso:Topic:news|audit' already exists. "),
        ("/rules/mine", "<RuleDescription/>", True, "Entity 'contoso:Topic:news|audit|mine' was not found. "),
        ("", "<SubscriptionDescription><LockDuration>P25D</LockDuration></SubscriptionDescription>", True, "LockDur"),
    ],
)
async def test_refusals_about_subscriptions_and_rules_have_no_sub_code(
    here: ServedNamespace, path: str, description: str, update: bool, detail: str
) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    here.namespace.create_subscription(SubscriptionDescription("news", "audit"))
    with pytest.raises(ClientResponseError) as refused:
        await put(here, f"news/subscriptions/audit{path}", description, update=update)
    assert refused.value.message.startswith(detail)


@pytest.mark.parametrize("size", [1023, 102_401])
def test_the_range_of_message_sizes_is_named_as_the_service_names_it(size: int) -> None:
    with pytest.raises(BadArgument, match="value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400"):
        validate(QueueDescription("q", max_message_size_in_kilobytes=size), Tier.PREMIUM)


async def test_a_list_takes_the_largest_page_that_dotnet_asks_for(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    assert "orders" in await get(here, "$Resources/queues?$skip=0&$top=2147483647&api-version=2017-04")


async def test_only_newer_api_versions_show_the_largest_message(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    assert "MaxMessageSizeInKilobytes" not in await get(here, "orders?api-version=2017-04")
    assert "MaxMessageSizeInKilobytes" in await get(here, "orders?api-version=2021-05")


async def test_a_rule_that_is_always_true_has_no_parameters(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("events"))
    here.namespace.create_subscription(SubscriptionDescription("events", "audit"))
    rules = await get(here, "events/subscriptions/audit/rules?api-version=2021-05")
    assert "<SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>" in rules


FLAG = "<RequiresPreprocessing>true</RequiresPreprocessing>"
PARAMETERS = (
    "<Parameters><KeyValueOfstringanyType><Key>@a</Key>"
    '<Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">b</Value>'
    "</KeyValueOfstringanyType></Parameters>"
)


@pytest.mark.parametrize(
    ("given", "answered", "kept"),
    [
        ("", "", "<Parameters />"),
        (FLAG, FLAG, f"{FLAG}<Parameters />"),
        ("<Parameters/>", "<Parameters />", "<Parameters />"),
        (PARAMETERS + FLAG, PARAMETERS + FLAG, PARAMETERS + FLAG),
    ],
)
async def test_a_put_of_sql_is_answered_with_what_was_given(
    here: ServedNamespace, given: str, answered: str, kept: str
) -> None:
    here.namespace.create_topic(TopicDescription("events"))
    here.namespace.create_subscription(SubscriptionDescription("events", "audit"))
    sql = "<SqlExpression>a = 'b'</SqlExpression>{}"
    kinds = '<Filter i:type="SqlFilter">{}</Filter><Action i:type="SqlRuleAction">{}</Action>'
    rule = kinds.format(sql, sql.replace("a =", "SET a ="))
    level = "<CompatibilityLevel>20</CompatibilityLevel>"
    path = "events/subscriptions/audit/rules/mine"
    answer = await put(here, path, f"<RuleDescription>{rule.format(given, given)}</RuleDescription>")
    assert rule.format(level + answered, level + answered) in answer
    assert rule.format(level + kept, level + kept) in await get(here, path)


async def test_a_correlation_filter_without_properties_has_no_element_for_them(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("events"))
    here.namespace.create_subscription(SubscriptionDescription("events", "audit"))
    path, condition = "events/subscriptions/audit/rules/mine", "<CorrelationId>c</CorrelationId></Filter>"
    rule = f'<RuleDescription><Filter i:type="CorrelationFilter">{condition}</RuleDescription>'
    assert condition in await put(here, path, rule)
    assert condition in await get(here, path)


async def test_a_new_subscription_has_no_counts_and_was_never_accessed(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    made = await put(here, "news/subscriptions/audit?api-version=2021-05", "<SubscriptionDescription/>")
    assert "<AccessedAt>0001-01-01T00:00:00</AccessedAt>" in made
    assert "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus><IsClientAffine>false</IsClient" in made
    assert "CountDetails" not in made
    kept = await get(here, "news/subscriptions/audit?api-version=2021-05")
    assert content(kept)["AccessedAt"] == content(kept)["CreatedAt"]
    assert "CountDetails" in kept
    assert "IsClientAffine" not in await get(here, "news/subscriptions/audit?api-version=2017-04")


async def test_an_updated_subscription_answers_with_the_time_of_the_update(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    here.namespace.create_subscription(SubscriptionDescription("news", "audit"))
    here.clock.advance(60)
    answer = await put(here, "news/subscriptions/audit", "<SubscriptionDescription/>", update=True)
    kept = content(await get(here, "news/subscriptions/audit"))
    assert content(answer)["CreatedAt"] == content(answer)["UpdatedAt"] == kept["UpdatedAt"] != kept["CreatedAt"]
    assert "CountDetails" not in answer


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
async def test_an_update_is_answered_with_what_was_given_and_no_time(here: ServedNamespace, kind: str) -> None:
    await put(here, "orders", f"<{kind}Description/>")
    created = content(await get(here, "orders"))["CreatedAt"]
    given = {
        "DefaultMessageTimeToLive": "PT1H",
        "CreatedAt": created,
        "UpdatedAt": created,
        "AutoDeleteOnIdle": "PT10M",
    }
    body = "".join(f"<{name}>{value}</{name}>" for name, value in given.items())
    answer = await put(here, "orders", f"<{kind}Description>{body}</{kind}Description>", update=True)
    assert content(answer) == given | {"UpdatedAt": "0001-01-01T00:00:00Z"}
    assert "<published>" not in answer
    assert "<published>" in await get(here, "orders")


async def test_a_put_is_answered_with_durations_as_they_were_given(here: ServedNamespace) -> None:
    given = {"LockDuration": "PT60S", "AutoDeleteOnIdle": "P10675199DT2H48M5.477539S"}
    body = "".join(f"<{name}>{value}</{name}>" for name, value in given.items())
    made = content(await put(here, "orders", f"<QueueDescription>{body}</QueueDescription>"))
    assert {name: made[name] for name in given} == given
    assert content(await get(here, "orders"))["LockDuration"] == "PT1M"


def content(document: str) -> dict[str, str]:
    """The properties of the entity in an entry."""
    return {child.tag.partition("}")[2]: child.text or "" for child in read_entry(document.encode())}
