"""The administration API, through `ServiceBusAdministrationClient` and as plain HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    QueueProperties,
    SqlRuleFilter,
    TrueRuleFilter,
)
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingClient
from hypothesis import given
from hypothesis import strategies as st

from syphon.emulator.broker.descriptions import Claim, QueueDescription, Tier, TopicDescription
from syphon.emulator.broker.descriptions import EntityStatus as Status
from syphon.emulator.broker.faults import Action, Fault, Operation, Outage
from syphon.emulator.broker.journal import NoJournal
from syphon.emulator.broker.refusals import BadArgument
from syphon.emulator.clock import FOREVER
from syphon.emulator.http_front import atom
from syphon.emulator.http_front.iso_times import FOREVER_TEXT, read_duration, write_duration
from syphon.emulator.http_front.xml_elements import parse
from tests.support.http_namespace import CONTOSO, ServedNamespace, served
from tests.support.plain_http import AioAnyToken, AioPlainHttp, PlainHttp

BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
async def here() -> AsyncIterator[ServedNamespace]:
    async with served() as it:
        yield it


@pytest.fixture
async def admin(here: ServedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with client(here) as it:
        yield it


def client(here: ServedNamespace, **policy: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        here.connection_string(**policy), transport=AioPlainHttp(), retry_total=0
    )


async def everything(paged: Any) -> list[Any]:
    return [item async for item in paged]


# Queues ---------------------------------------------------------------------------------------------------------------


async def test_a_queue_is_created_with_the_defaults_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    queue = await admin.create_queue("orders")
    assert (queue.name, queue.status, queue.availability_status) == ("orders", EntityStatus.ACTIVE, "Available")
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (queue.max_delivery_count, queue.max_size_in_megabytes) == (10, 1024)
    assert queue.max_message_size_in_kilobytes == 256
    assert queue.enable_batched_operations is True
    for flag in ("requires_session", "requires_duplicate_detection", "enable_partitioning", "enable_express"):
        assert queue[flag] is False
    assert (queue.forward_to, queue.user_metadata, queue.authorization_rules) == (None, None, None)


async def test_every_setting_of_a_queue_comes_back(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_queue("other")
    asked: dict[str, Any] = {
        "lock_duration": timedelta(seconds=13),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "max_delivery_count": 14,
        "enable_batched_operations": False,
        "status": EntityStatus.SEND_DISABLED,
        "auto_delete_on_idle": timedelta(minutes=10, milliseconds=500),
        "enable_partitioning": True,
        "user_metadata": "who & <why>",
        "forward_to": "other",
        "forward_dead_lettered_messages_to": "other",
    }
    await admin.create_queue("orders", **asked)
    queue = await admin.get_queue("orders")
    full = {
        "forward_to": f"sb://{here.address}/other",
        "forward_dead_lettered_messages_to": f"sb://{here.address}/other",
    }
    # A partitioned entity has the size of all its partitions.
    assert {name: queue[name] for name in asked} == asked | full | {"max_size_in_megabytes": 49_152}
    assert here.namespace.describe("orders") == QueueDescription(
        "orders",
        lock_duration=13_000,
        max_size_in_megabytes=49_152,
        requires_duplicate_detection=True,
        default_message_time_to_live=660_000,
        dead_lettering_on_message_expiration=True,
        duplicate_detection_history_time_window=720_000,
        max_delivery_count=14,
        enable_batched_operations=False,
        status=Status.SEND_DISABLED,
        auto_delete_on_idle=600_500,
        enable_partitioning=True,
        forward_to="other",
        forward_dead_lettered_messages_to="other",
        user_metadata="who & <why>",
    )


async def test_a_queue_of_sessions_can_be_created(admin: ServiceBusAdministrationClient) -> None:
    assert (await admin.create_queue("orders", requires_session=True)).requires_session is True


async def test_forever_comes_back_to_the_last_digit(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:  # P2
    forever = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_581)
    await admin.create_queue(BACKLOG, default_message_time_to_live=forever)
    document = await get(here, BACKLOG)
    assert document.count(f">{FOREVER_TEXT}<") == 2
    await admin.update_queue(await admin.get_queue(BACKLOG))
    assert here.namespace.describe(BACKLOG) == QueueDescription(BACKLOG, max_message_size_in_kilobytes=256)


async def test_what_the_sdk_makes_of_forever_written_as_text_is_too_long(admin: ServiceBusAdministrationClient) -> None:
    # It rounds up to whole microseconds, which is a little more than there is. Of a timedelta it takes care.
    with pytest.raises(HttpResponseError, match="longer than the longest duration") as refused:
        await admin.create_queue(BACKLOG, default_message_time_to_live=FOREVER_TEXT)
    assert refused.value.status_code == 400


async def test_a_path_may_have_slashes_and_be_looked_up_in_any_case(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_queue(BACKLOG)
    assert [queue.name async for queue in admin.list_queues()] == [BACKLOG]
    assert (await admin.get_queue(BACKLOG.upper())).max_delivery_count == 10
    # The SDK writes %2F. By hand one writes a slash.
    assert "QueueDescription" in await get(here, BACKLOG)
    await admin.delete_queue(BACKLOG)
    assert here.namespace.queues() == []


async def test_a_queue_is_read_changed_and_written_back(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_queue("orders")
    queue = await admin.get_queue("orders")
    queue.lock_duration = timedelta(seconds=30)
    await admin.update_queue(queue, max_delivery_count=3)
    description = here.namespace.describe("orders")
    assert description == QueueDescription(
        "orders", lock_duration=30_000, max_delivery_count=3, max_message_size_in_kilobytes=256
    )


async def test_what_an_update_leaves_out_goes_back_to_the_default(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_queue("orders", max_delivery_count=3)
    await put(here, "orders", "<QueueDescription/>", update=True)
    assert here.namespace.describe("orders") == QueueDescription("orders")


async def test_updating_what_is_not_there_is_not_found(admin: ServiceBusAdministrationClient) -> None:
    queue = await admin.create_queue("orders")
    queue.name = "missing"
    with pytest.raises(HttpResponseError) as refused:
        await admin.update_queue(queue)
    assert refused.value.status_code == 404


async def test_sessions_cannot_be_requested_later(admin: ServiceBusAdministrationClient) -> None:
    queue = await admin.create_queue("orders")
    with pytest.raises(HttpResponseError, match="RequiresSession property of an existing Queue") as no:
        await admin.update_queue(queue, requires_session=True)
    assert no.value.status_code == 400


async def test_a_lock_longer_than_five_minutes_is_refused(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(HttpResponseError, match="LockDuration was given as 301 seconds") as refused:
        await admin.create_queue("orders", lock_duration=timedelta(seconds=301))
    assert refused.value.status_code == 400


async def test_a_name_is_taken_once(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("orders")
    with pytest.raises(ResourceExistsError):
        await admin.create_queue("orders")
    with pytest.raises(ResourceExistsError):
        await admin.create_topic("Orders")


async def test_what_is_not_there_is_not_found(admin: ServiceBusAdministrationClient) -> None:
    for ask in (admin.get_queue, admin.get_topic, admin.get_queue_runtime_properties, admin.delete_queue):
        with pytest.raises(ResourceNotFoundError):
            await ask("missing")


async def test_a_get_where_nothing_is_answers_with_an_empty_feed_as_the_service_does(here: ServedNamespace) -> None:
    document = await get(here, "missing")
    assert '<title type="text">Publicly Listed Services</title>' in document
    assert "<entry" not in document


async def test_a_size_of_messages_is_for_premium(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
        await admin.create_queue("orders", max_message_size_in_kilobytes=2048)
    async with served(replace(CONTOSO, tier=Tier.PREMIUM)) as premium, client(premium) as there:
        assert (await there.create_queue("a", max_message_size_in_kilobytes=2048)).max_message_size_in_kilobytes == 2048
        assert (await there.create_queue("b")).max_message_size_in_kilobytes == 1024


async def test_an_entity_can_have_keys_of_its_own(here: ServedNamespace, admin: ServiceBusAdministrationClient) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Send", "Listen"],
        key_name="app",
        primary_key="cHJpbWFyeQ==",
    )
    queue = await admin.create_queue("orders", authorization_rules=[rule])
    (kept,) = queue.authorization_rules or []
    assert (kept.key_name, kept.rights, kept.primary_key) == ("app", ["Send", "Listen"], "cHJpbWFyeQ==")
    assert len(kept.secondary_key or "") == 44, "the service makes the keys one leaves out"
    description = here.namespace.describe("orders")
    assert isinstance(description, QueueDescription)
    assert description.authorization_rules[0].rights == (Claim.SEND, Claim.LISTEN)


# Forwarding -----------------------------------------------------------------------------------------------------------


async def test_forwarding_to_another_namespace_is_refused(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(HttpResponseError, match="another namespace") as refused:
        await admin.create_queue("orders", forward_to="sb://fabrikam.servicebus.windows.net/other")
    assert refused.value.status_code == 400


async def test_a_namespace_is_also_known_by_its_azure_name(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("other"))
    target = "<ForwardTo>sb://contoso.servicebus.windows.net/other</ForwardTo>"
    await put(here, "orders", f"<QueueDescription>{target}</QueueDescription>")
    assert here.namespace.describe("orders") == QueueDescription("orders", forward_to="other")


async def test_who_forwards_must_be_let_send_there(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("other"))
    body = "<QueueDescription><ForwardTo>other</ForwardTo></QueueDescription>"
    token = {"ServiceBusSupplementaryAuthorization": "SharedAccessSignature sr=x&sig=y&se=1&skn=Root"}
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await put(here, "orders", body, headers=token)
    assert refused.value.status == 401
    assert [queue.name for queue in here.namespace.queues()] == ["other"]


# Topics, subscriptions and rules --------------------------------------------------------------------------------------


async def test_every_setting_of_a_topic_comes_back(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    asked: dict[str, Any] = {
        "default_message_time_to_live": timedelta(hours=1),
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(days=1),
        "enable_batched_operations": False,
        "support_ordering": False,
        "auto_delete_on_idle": timedelta(days=2),
        "enable_partitioning": True,
        "user_metadata": "yes",
    }
    await admin.create_topic("news", **asked)
    topic = await admin.get_topic("news")
    assert {name: topic[name] for name in asked} == asked | {"max_size_in_megabytes": 32_768}
    topic.user_metadata = None
    await admin.update_topic(topic)
    description = here.namespace.describe("news")
    assert isinstance(description, TopicDescription)
    assert description.user_metadata is None


async def test_a_subscription_starts_with_a_rule_that_takes_everything(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_topic("news")
    asked: dict[str, Any] = {
        "lock_duration": timedelta(seconds=12),
        "requires_session": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 14,
        "enable_batched_operations": False,
        "user_metadata": "yes",
        "auto_delete_on_idle": timedelta(minutes=10),
    }
    await admin.create_subscription("news", "audit", **asked)
    subscription = await admin.get_subscription("news", "audit")
    assert {name: subscription[name] for name in asked} == asked
    (rule,) = await everything(admin.list_rules("news", "audit"))
    assert rule.name == "$Default"
    assert isinstance(rule.filter, TrueRuleFilter)


async def test_a_subscription_can_be_created_with_another_rule(here: ServedNamespace) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    rule = '<DefaultRuleDescription><Filter i:type="FalseFilter"/><Name>none</Name></DefaultRuleDescription>'
    await put(here, "news/subscriptions/audit", f"<SubscriptionDescription>{rule}</SubscriptionDescription>")
    assert [rule.name for rule in here.namespace.rules("news", "audit")] == ["none"]


async def test_a_subscription_is_updated_and_deleted(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_topic("a/news")
    subscription = await admin.create_subscription("a/news", "audit")
    await admin.update_subscription("a/news", subscription, max_delivery_count=3, forward_to="a/news")
    (description,) = here.namespace.subscriptions("a/news")
    assert (description.max_delivery_count, description.forward_to) == (3, "a/news")
    with pytest.raises(ResourceExistsError):
        await admin.create_subscription("a/news", "audit")
    await admin.delete_subscription("a/news", "audit")
    assert await everything(admin.list_subscriptions("a/news")) == []


async def test_below_a_topic_what_is_missing_is_a_404(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_topic("news")
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await get(here, "news/subscriptions/audit")
    assert refused.value.status == 404
    await admin.create_subscription("news", "audit")
    for ask in (admin.get_rule, admin.delete_rule):
        with pytest.raises(ResourceNotFoundError):
            await ask("news", "audit", "missing")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_subscription("missing", "audit")


@pytest.mark.parametrize(
    "filter_",
    [
        CorrelationRuleFilter(
            correlation_id="c",
            message_id="m",
            to="t",
            reply_to="r",
            label="l",
            session_id="s",
            reply_to_session_id="rs",
            content_type="ct",
            properties={
                "string": "x<y",
                "int": 2,
                "long": 2_147_483_650,
                "double": 0.1,
                "yes": True,
                "when": datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC),
                "long_time": timedelta(days=1, hours=2),
            },
        ),
        SqlRuleFilter("priority = @level AND color = 'red'", parameters={"@level": "low"}),
        SqlRuleFilter("priority > 2"),
        TrueRuleFilter(),
        FalseRuleFilter(),
    ],
    ids=lambda it: type(it).__name__,
)
async def test_a_filter_comes_back_as_it_went(admin: ServiceBusAdministrationClient, filter_: Any) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    await admin.create_rule("news", "audit", "mine", filter=filter_)
    kept = (await admin.get_rule("news", "audit", "mine")).filter
    assert type(kept) is type(filter_)
    unset: dict[str, Any] = {"parameters": {}, "properties": {}}
    for name, value in vars(filter_).items():
        if name not in {"requires_preprocessing"} and not isinstance(filter_, FalseRuleFilter):
            assert getattr(kept, name) == (unset.get(name) if value is None else value), name


async def test_rules_are_listed_updated_and_deleted(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    rule = await admin.create_rule("news", "audit", "mine", filter=SqlRuleFilter("a = 1"))
    rule.filter = SqlRuleFilter("a = 2")
    await admin.update_rule("news", "audit", rule)
    rules = await everything(admin.list_rules("news", "audit"))
    assert [getattr(rule.filter, "sql_expression", "") for rule in rules] == ["1=1", "a = 2"]
    with pytest.raises(ResourceExistsError):
        await admin.create_rule("news", "audit", "mine")
    await admin.delete_rule("news", "audit", "$Default")
    assert [rule.name for rule in here.namespace.rules("news", "audit")] == ["mine"]


async def test_bad_sql_is_refused(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    with pytest.raises(HttpResponseError) as refused:
        await admin.create_rule("news", "audit", "mine", filter=SqlRuleFilter("priority = = 'high'"))
    assert refused.value.status_code == 400


# Lists, counts, the namespace -----------------------------------------------------------------------------------------


async def test_lists_come_in_pages_each_item_once(here: ServedNamespace, admin: ServiceBusAdministrationClient) -> None:
    names = [f"q{number:03}" for number in range(205)]
    for name in names:
        here.namespace.create_queue(QueueDescription(name))
        here.namespace.create_topic(TopicDescription(f"t/{name}"))
    assert [queue.name async for queue in admin.list_queues()] == names
    assert [topic.name async for topic in admin.list_topics()] == [f"t/{name}" for name in names]
    assert [queue.name async for queue in admin.list_queues(start_index=200, max_page_size=2)] == names[200:]


@pytest.mark.parametrize("query", ["$skip=-1", "$top=0", "$top=x", "$skip=9999999999"])
async def test_pages_that_cannot_be(here: ServedNamespace, query: str) -> None:
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await get(here, f"$Resources/queues?{query}")
    assert refused.value.status == 400


async def test_runtime_counts_are_reported(here: ServedNamespace, admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("orders")
    await admin.create_topic("news")
    await admin.create_subscription("news", "audit")
    queue = await admin.get_queue_runtime_properties("orders")
    assert (queue.total_message_count, queue.active_message_count, queue.dead_letter_message_count) == (0, 0, 0)
    assert (queue.scheduled_message_count, queue.transfer_message_count, queue.size_in_bytes) == (0, 0, 0)
    assert queue.created_at_utc == datetime.fromtimestamp(here.namespace.created_at / 1000, UTC)
    assert (await admin.get_topic_runtime_properties("news")).subscription_count == 1
    assert (await admin.get_subscription_runtime_properties("news", "audit")).total_message_count == 0
    assert [item.name async for item in admin.list_queues_runtime_properties()] == ["orders"]


async def test_the_namespace_describes_itself(admin: ServiceBusAdministrationClient) -> None:
    properties = await admin.get_namespace_properties()
    assert (properties.name, properties.namespace_type) == ("contoso", "Messaging")
    assert properties.messaging_sku == "Standard"


async def test_the_elements_of_a_queue_come_in_the_order_of_the_service(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    content = atom.read_entry((await get(here, "orders")).encode())
    assert [child.tag.partition("}")[2] for child in content] == [
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableExpress",
        "MaxMessageSizeInKilobytes",
    ]


async def test_counts_have_the_prefix_some_clients_look_for(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    assert "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in await get(here, "orders")


# Access and errors ----------------------------------------------------------------------------------------------------


async def test_no_token_no_entry(here: ServedNamespace) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"http://{here.address}/$Resources/queues") as answer:
        assert answer.status == 401
        body = await answer.text()
    assert body.startswith("<Error><Code>401</Code><Detail>MissingToken")


async def test_anyone_may_come_to_the_door(here: ServedNamespace) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"http://{here.address}/") as answer:
        assert answer.status == 200


async def test_a_wrong_key_is_refused(here: ServedNamespace) -> None:
    async with client(here, key="d3Jvbmc=") as stranger:
        with pytest.raises(ClientAuthenticationError):
            await stranger.create_queue("orders")


async def test_who_may_only_send_may_not_manage(here: ServedNamespace) -> None:
    async with client(here, policy="Sender") as sender:
        for ask in (sender.get_queue, sender.create_queue, sender.delete_queue):
            with pytest.raises(ClientAuthenticationError, match="Manage"):
                await ask("orders")


async def test_any_bearer_token_opens_a_namespace_that_is_set_to_take_it(here: ServedNamespace) -> None:
    async with (
        served(replace(CONTOSO, accept_any_jwt=True)) as there,
        ServiceBusAdministrationClient(there.address, AioAnyToken(), transport=AioPlainHttp()) as trusted,
        ServiceBusAdministrationClient(here.address, AioAnyToken(), transport=AioPlainHttp()) as refused,
    ):
        await trusted.create_queue("orders")
        with pytest.raises(ClientAuthenticationError):
            await refused.create_queue("orders")


async def test_a_busy_namespace_says_so(here: ServedNamespace, admin: ServiceBusAdministrationClient) -> None:
    here.namespace.faults.begin_outage(Outage.BUSY)
    with pytest.raises(HttpResponseError, match="throttled") as refused:
        await admin.create_queue("orders")
    assert refused.value.status_code == 503


async def test_a_dropped_connection_gives_no_answer(
    here: ServedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    here.namespace.faults.add(Fault(Action.DROP, Operation.MANAGE, entity=BACKLOG))
    with pytest.raises(ServiceRequestError):
        await admin.create_queue(BACKLOG)
    assert here.namespace.queues() == []
    here.namespace.faults.clear()
    await admin.create_queue(BACKLOG)


async def test_a_request_that_hangs_ends_with_the_server() -> None:
    async with served() as here:
        here.namespace.faults.begin_outage(Outage.HANG)
        asking = asyncio.create_task(get(here, "orders"))
        answered, _ = await asyncio.wait([asking], timeout=0.3)
        assert not answered
    with pytest.raises(aiohttp.ClientError):
        await asking


async def test_a_change_is_answered_when_it_is_written_down() -> None:
    class SlowDisk(NoJournal):
        def __init__(self) -> None:
            self.waiting: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

        def when_durable(self, callback: Callable[[], None], failed: Callable[[str], None] | None = None) -> None:
            self.waiting.put_nowait(callback)

    disk = SlowDisk()
    async with served(journal=disk) as here, client(here) as admin:
        creating = asyncio.create_task(admin.create_queue("orders"))
        written = await disk.waiting.get()
        assert [queue.name for queue in here.namespace.queues()] == ["orders"]
        answered, _ = await asyncio.wait([creating], timeout=0.2)
        assert not answered
        written()
        assert (await creating).name == "orders"


async def test_a_control_that_does_not_exist_is_no_entity(here: ServedNamespace) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{here.address}/$emulator/nothing") as answer,
    ):
        assert answer.status == 404
        assert "controls" in (await answer.json())["error"]


async def test_requests_are_counted_by_entity(here: ServedNamespace, admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue(BACKLOG)
    await admin.get_queue(BACKLOG)
    assert here.namespace.counters.by_entity()[BACKLOG] == {"manage": 2}


async def test_messages_do_not_travel_over_http(here: ServedNamespace) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{here.address}/orders/messages", headers=authorization(here)) as answer,
    ):
        assert answer.status == 501
        assert "AMQP" in await answer.text()


def test_the_blocking_client_works_too() -> None:
    def provision(here: ServedNamespace) -> None:
        with BlockingClient.from_connection_string(here.connection_string(), transport=PlainHttp()) as admin:
            with pytest.raises(ResourceNotFoundError):
                admin.get_queue(BACKLOG)
            created = admin.create_queue(BACKLOG, max_size_in_megabytes=5120, max_delivery_count=2**31 - 1)
            assert isinstance(created, QueueProperties)
            admin.update_queue(created, user_metadata="kept")
            assert [queue.user_metadata for queue in admin.list_queues()] == ["kept"]
            admin.delete_queue(BACKLOG)

    async def scenario() -> None:
        async with served() as here:
            await asyncio.to_thread(provision, here)

    asyncio.run(scenario())


# XML that means no good -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"orders",
        b"<entry",
        b"<a></b>",
        b"<entry xmlns='http://www.w3.org/2005/Atom'/>",
        b"<?xml version='1.0' encoding='nonsense'?><entry/>",
        b"\xff\xfe\x00",
        b"<entry>&undeclared;</entry>",
        b"<feed xmlns='http://www.w3.org/2005/Atom'><content><x/></content></feed>",
    ],
)
async def test_a_body_that_is_no_entry_is_a_bad_request(here: ServedNamespace, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"http://{here.address}/orders", data=body, headers=authorization(here)) as answer,
    ):
        assert answer.status == 400
        assert (await answer.text()).startswith("<Error><Code>400</Code>")


@pytest.mark.parametrize(
    "doctype",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;">]>',
        b'<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>',
        b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd">',
        b"<!DOCTYPE x>",
    ],
    ids=["bomb", "file", "network", "bare"],
)
def test_a_document_type_is_refused_before_anything_in_it_happens(doctype: bytes) -> None:
    with pytest.raises(BadArgument, match="document type"):
        parse(doctype + b"<x>&a;&secret;</x>")


@pytest.mark.parametrize(
    "setting",
    [
        "<LockDuration>soon</LockDuration>",
        "<LockDuration/>",
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<MaxDeliveryCount>9999999999999999999999</MaxDeliveryCount>",
        "<MaxDeliveryCount>-1</MaxDeliveryCount>",
        "<RequiresSession>TRUE</RequiresSession>",
        "<Status>Asleep</Status>",
        "<DefaultMessageTimeToLive>P10675199DT2H48M5.477581S</DefaultMessageTimeToLive>",
    ],
)
async def test_values_that_make_no_sense_are_refused_by_name(here: ServedNamespace, setting: str) -> None:
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await put(here, "orders", f"<QueueDescription>{setting}</QueueDescription>")
    assert refused.value.status == 400
    assert refused.value.message.startswith(setting.strip("<").partition(">")[0].strip("/"))


@pytest.mark.parametrize("path", ["orders", "news/subscriptions/audit", "news/subscriptions/audit/rules/r"])
async def test_a_description_belongs_where_it_is_put(here: ServedNamespace, path: str) -> None:
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await put(here, path, "<EventHubDescription/>")
    assert refused.value.status in {400, 501}


async def test_nil_is_the_same_as_not_given(here: ServedNamespace) -> None:
    await put(here, "orders", '<QueueDescription><ForwardTo i:nil="true"/><Unknown>1</Unknown></QueueDescription>')
    assert here.namespace.describe("orders") == QueueDescription("orders")


async def test_a_body_that_is_too_large_is_not_read(here: ServedNamespace) -> None:
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await put(here, "orders", "<QueueDescription>" + " " * 2**21 + "</QueueDescription>")
    assert refused.value.status == 413


@given(st.integers(0, FOREVER))
def test_every_duration_comes_back(duration: int) -> None:
    assert read_duration(write_duration(duration)) == duration


@given(st.text(alphabet="PTYMDHS0123456789.", max_size=30))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(BadArgument):
        assert 0 <= read_duration(text) <= FOREVER


# By hand --------------------------------------------------------------------------------------------------------------


def authorization(here: ServedNamespace) -> dict[str, str]:
    admin = BlockingClient.from_connection_string(here.connection_string())
    with admin:
        return {"Authorization": admin._credential.get_token(f"https://{here.address}").token}


async def get(here: ServedNamespace, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{here.address}/{path}", headers=authorization(here), raise_for_status=True) as answer,
    ):
        return await answer.text()


async def put(
    here: ServedNamespace, path: str, description: str, *, update: bool = False, headers: dict[str, str] | None = None
) -> str:
    """Put an entry as another client might write it, and return the answer. The detail of a refusal is its message."""
    name, _, rest = description.partition(">")
    namespaces = (
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    )
    closed = f"{name.strip('/')} {namespaces}{'/' if name.endswith('/') else ''}>{rest}"
    entry = f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{closed}</content></entry>'
    all_headers = authorization(here) | ({"If-Match": "*"} if update else {}) | (headers or {})
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"http://{here.address}/{path}", data=io.BytesIO(entry.encode()), headers=all_headers) as answer,
    ):
        if answer.status >= 400:
            detail = (await answer.text()).partition("<Detail>")[2].removeprefix("SubCode=40000. ")
            raise aiohttp.ClientResponseError(answer.request_info, (), status=answer.status, message=detail)
        return await answer.text()
