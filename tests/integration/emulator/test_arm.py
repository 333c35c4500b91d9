"""Azure Resource Manager, through `azure-mgmt-servicebus` and as plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.mgmt.servicebus import ServiceBusManagementClient as BlockingClient
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.mgmt.servicebus.models import SBQueue, SBQueueProperties, SBTopic, SBTopicProperties

from syphon.emulator.broker.descriptions import QueueDescription, Tier, TopicDescription
from syphon.emulator.broker.faults import Outage
from tests.support.http_namespace import CONTOSO, ServedNamespace, served
from tests.support.plain_http import AioAnyToken, AioPlainHttp, AnyToken, PlainHttp

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
NAMESPACE_ID = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.ServiceBus/namespaces/contoso"
BACKLOG, IN_ARM = "contoso/x-servicebus-transfer/0", "contoso~x-servicebus-transfer~0"


@pytest.fixture
async def here() -> AsyncIterator[ServedNamespace]:
    async with served(replace(CONTOSO, accept_any_jwt=True)) as it:
        yield it


@pytest.fixture
async def arm(here: ServedNamespace) -> AsyncIterator[ServiceBusManagementClient]:
    async with client(here) as it:
        yield it


def client(here: ServedNamespace) -> ServiceBusManagementClient:
    return ServiceBusManagementClient(
        AioAnyToken(), SUBSCRIPTION, f"https://{here.address}", transport=AioPlainHttp(), retry_total=0
    )


async def ask(here: ServedNamespace, path: str, method: str = "GET", **more: Any) -> tuple[int, Any]:
    """A request by hand: the status and the JSON of its answer."""
    headers = {"Authorization": "Bearer x"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{here.address}{path}", headers=headers, **more) as answer,
    ):
        return answer.status, await answer.json()


async def test_a_backlog_queue_is_provisioned(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:  # P2, P6
    forever = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_580)
    properties = SBQueueProperties(
        max_size_in_megabytes=5120,
        max_delivery_count=2**31 - 1,
        default_message_time_to_live=forever,
        auto_delete_on_idle=forever,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    created = await arm.queues.create_or_update("rg", "contoso", IN_ARM, SBQueue(properties=properties))
    assert (created.name, created.id) == (IN_ARM, f"{NAMESPACE_ID}/queues/{IN_ARM}")
    assert here.namespace.queues() == [
        QueueDescription(
            BACKLOG,
            max_size_in_megabytes=5120,
            max_delivery_count=2**31 - 1,
            dead_lettering_on_message_expiration=True,
        )
    ]


async def test_every_setting_of_a_queue_comes_back(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    here.namespace.create_queue(QueueDescription("other"))
    asked: dict[str, Any] = {
        "lock_duration": timedelta(seconds=13),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "max_delivery_count": 14,
        "status": "SendDisabled",
        "enable_batched_operations": False,
        "auto_delete_on_idle": timedelta(hours=1),
        "enable_partitioning": True,
        "enable_express": False,
        "forward_to": "other",
        "forward_dead_lettered_messages_to": "other",
        "user_metadata": "yes",
    }
    await arm.queues.create_or_update("rg", "contoso", "orders", SBQueue(properties=SBQueueProperties(**asked)))
    queue = await arm.queues.get("rg", "contoso", "orders")
    stored = asked | {"max_size_in_megabytes": 49_152}  # of all partitions
    assert {name: getattr(queue.properties, name) for name in asked} == stored


async def test_counts_and_dates_are_reported(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    properties = (await arm.queues.get("rg", "contoso", "orders")).properties
    assert properties is not None
    assert properties.count_details is not None
    assert (properties.message_count, properties.size_in_bytes, properties.max_message_size_in_kilobytes) == (0, 0, 256)
    assert properties.count_details.dead_letter_message_count == 0
    assert properties.created_at == datetime.fromtimestamp(here.namespace.created_at / 1000, UTC)


async def test_a_second_put_updates(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    for count in (3, 4):
        properties = SBQueueProperties(max_delivery_count=count)
        await arm.queues.create_or_update("rg", "contoso", "orders", SBQueue(properties=properties))
    assert here.namespace.queues() == [QueueDescription("orders", max_delivery_count=4)]


async def test_what_was_read_can_be_written_back(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    here.namespace.create_queue(QueueDescription("orders", max_delivery_count=3))
    await arm.queues.create_or_update("rg", "contoso", "orders", await arm.queues.get("rg", "contoso", "orders"))
    (description,) = here.namespace.queues()
    assert (description.max_delivery_count, description.max_message_size_in_kilobytes) == (3, 256)


async def test_topics_are_created_read_and_deleted(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    properties = SBTopicProperties(support_ordering=False, max_size_in_megabytes=2048)
    await arm.topics.create_or_update("rg", "contoso", "a~news", SBTopic(properties=properties))
    assert here.namespace.topics() == [TopicDescription("a/news", support_ordering=False, max_size_in_megabytes=2048)]
    topic = await arm.topics.get("rg", "contoso", "a~news")
    assert topic.properties is not None
    assert (topic.name, topic.properties.subscription_count) == ("a~news", 0)
    await arm.topics.delete("rg", "contoso", "a~news")
    assert here.namespace.topics() == []


async def test_lists_follow_next_links_to_the_end(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    names = [f"a/{number:03}" for number in range(205)]
    for name in names:
        here.namespace.create_queue(QueueDescription(name))
    here.namespace.create_topic(TopicDescription("news"))
    found = [queue.name async for queue in arm.queues.list_by_namespace("rg", "contoso")]
    assert found == [name.replace("/", "~") for name in names]
    found = [queue.name async for queue in arm.queues.list_by_namespace("rg", "contoso", skip=200, top=2)]
    assert found == [name.replace("/", "~") for name in names[200:]]
    assert [topic.name async for topic in arm.topics.list_by_namespace("rg", "contoso")] == ["news"]


async def test_deleting_what_is_not_there_is_no_error(arm: ServiceBusManagementClient) -> None:
    await arm.queues.delete("rg", "contoso", "missing")


async def test_a_topic_is_not_found_among_the_queues(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    here.namespace.create_topic(TopicDescription("news"))
    with pytest.raises(ResourceNotFoundError):
        await arm.queues.get("rg", "contoso", "news")
    await arm.queues.delete("rg", "contoso", "news")
    assert [topic.name for topic in here.namespace.topics()] == ["news"]


async def test_the_namespace_describes_itself(arm: ServiceBusManagementClient) -> None:
    namespace = await arm.namespaces.get("rg", "Contoso")
    assert (namespace.name, namespace.id) == ("contoso", NAMESPACE_ID.replace("contoso", "Contoso"))
    assert namespace.sku is not None
    assert (namespace.sku.name, namespace.sku.tier) == (Tier.STANDARD, Tier.STANDARD)
    assert namespace.properties is not None
    assert (namespace.properties.status, namespace.properties.provisioning_state) == ("Active", "Succeeded")


async def test_a_port_belongs_to_one_namespace(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    with pytest.raises(ResourceNotFoundError, match="fabrikam"):
        await arm.namespaces.get("rg", "fabrikam")
    other = NAMESPACE_ID.replace("namespaces/contoso", "namespaces/fabrikam")
    status, answer = await ask(here, f"{other}/queues/orders?api-version=2024-01-01")
    assert (status, answer["error"]["code"]) == (404, "ResourceNotFound")


async def test_what_the_service_refuses_is_refused(arm: ServiceBusManagementClient) -> None:
    queue = SBQueue(properties=SBQueueProperties(lock_duration=timedelta(minutes=6)))
    with pytest.raises(HttpResponseError, match="LockDuration was given as 360 seconds") as refused:
        await arm.queues.create_or_update("rg", "contoso", "orders", queue)
    assert refused.value.status_code == 400
    assert refused.value.error is not None
    assert refused.value.error.code == "BadRequest"


async def test_sessions_cannot_be_requested_later(here: ServedNamespace, arm: ServiceBusManagementClient) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    queue = SBQueue(properties=SBQueueProperties(requires_session=True))
    with pytest.raises(HttpResponseError, match="RequiresSession"):
        await arm.queues.create_or_update("rg", "contoso", "orders", queue)


async def test_a_bearer_token_is_taken_only_where_the_settings_say_so() -> None:
    async with served(CONTOSO) as here, client(here) as stranger:
        with pytest.raises(ClientAuthenticationError):
            await stranger.queues.get("rg", "contoso", "orders")
        status, answer = await ask(here, f"{NAMESPACE_ID}?api-version=2024-01-01")
    assert (status, answer["error"]["code"]) == (401, "AuthenticationFailed")


async def test_no_token_no_entry(here: ServedNamespace) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{here.address}{NAMESPACE_ID}?api-version=2024-01-01") as answer,
    ):
        assert answer.status == 401


async def test_a_version_must_be_named(here: ServedNamespace) -> None:
    status, answer = await ask(here, NAMESPACE_ID)
    assert status == 400
    assert "api-version" in answer["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/queues/a/authorizationRules/x", "/topics/t/subscriptions/s", "/networkRuleSets/default"]
)
async def test_what_the_emulator_lacks_it_says(here: ServedNamespace, path: str) -> None:
    status, answer = await ask(here, f"{NAMESPACE_ID}{path}?api-version=2024-01-01")
    assert (status, answer["error"]["code"]) == (501, "NotImplemented")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
async def test_the_namespace_itself_cannot_be_changed(here: ServedNamespace, method: str) -> None:
    status, _ = await ask(here, f"{NAMESPACE_ID}?api-version=2024-01-01", method)
    assert status == 501


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"properties": []}',
        b'{"properties": {"lockDuration": []}}',
        b"[" * 100_000,
        b"\xff",
        b'{"properties": {"lockDuration": 60}}',
        b'{"properties": {"maxDeliveryCount": 1.5}}',
        b'{"properties": {"requiresSession": "maybe"}}',
    ],
    ids=lambda it: it[:30].decode(errors="replace"),
)
async def test_a_body_that_makes_no_sense_is_a_bad_request(here: ServedNamespace, body: bytes) -> None:
    status, answer = await ask(here, f"{NAMESPACE_ID}/queues/orders?api-version=2024-01-01", "PUT", data=body)
    assert (status, answer["error"]["code"]) == (400, "BadRequest")


async def test_segments_are_known_in_any_case_and_nulls_are_not_given(here: ServedNamespace) -> None:
    here.namespace.create_queue(QueueDescription("orders"))
    path = NAMESPACE_ID.replace("resourceGroups", "resourcegroups").replace("Microsoft.S", "microsoft.s")
    body = b'{"properties": {"maxDeliveryCount": null, "userMetadata": "x"}}'
    status, _ = await ask(here, f"{path}/Queues/orders?api-version=2024-01-01", "PUT", data=body)
    assert status == 200
    assert here.namespace.queues() == [QueueDescription("orders", user_metadata="x")]


async def test_characters_that_xml_cannot_hold_do_not_break_the_other_api(here: ServedNamespace) -> None:
    body = rb'{"properties": {"userMetadata": "a\u0001\ud800b"}}'
    await ask(here, f"{NAMESPACE_ID}/queues/orders?api-version=2024-01-01", "PUT", data=body)
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer x"}) as session,
        session.get(f"http://{here.address}/orders") as answer,
    ):
        assert "<UserMetadata>a\ufffd\ufffdb</UserMetadata>" in await answer.text()


async def test_faults_and_counters_go_by_the_entitys_own_path(
    here: ServedNamespace, arm: ServiceBusManagementClient
) -> None:
    await arm.queues.create_or_update("rg", "contoso", IN_ARM, SBQueue())
    assert here.namespace.counters.by_entity() == {BACKLOG: {"manage": 1}}
    here.namespace.faults.begin_outage(Outage.BUSY)
    with pytest.raises(HttpResponseError, match="throttled") as refused:
        await arm.queues.get("rg", "contoso", IN_ARM)
    assert refused.value.status_code == 503


def test_the_blocking_client_works_too() -> None:
    def provision(here: ServedNamespace) -> None:
        credential, url = AnyToken(), f"https://{here.address}"
        with BlockingClient(credential, SUBSCRIPTION, url, transport=PlainHttp()) as arm:
            with pytest.raises(ResourceNotFoundError):
                arm.queues.get("rg", "contoso", IN_ARM)
            arm.queues.create_or_update("rg", "contoso", IN_ARM, SBQueue())
            assert [queue.name for queue in arm.queues.list_by_namespace("rg", "contoso")] == [IN_ARM]

    async def scenario() -> None:
        async with served(replace(CONTOSO, accept_any_jwt=True)) as here:
            await asyncio.to_thread(provision, here)

    asyncio.run(scenario())
