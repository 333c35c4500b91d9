"""Many namespaces on one port: a test suite has one for each test, and entities that are created at their first use."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from syphon.amqp import Section, section_bytes
from syphon.amqp.frames import Accepted
from syphon.emulator import (
    BackgroundEmulator,
    Emulator,
    EmulatorSettings,
    QueueDescription,
    RunningNamespace,
)
from syphon.emulator.broker import virtual_hosts
from tests.integration.emulator.conftest import ignore_unclosed_resources
from tests.support.raw_client import Place, raw_client_at

ROOT = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
pytestmark = ignore_unclosed_resources
ORDER = section_bytes(Section.DATA, b"an order")


def settings(**more: Any) -> EmulatorSettings:
    namespace = {"name": "contoso", "queues": [{"name": "orders"}], **more}
    return EmulatorSettings.model_validate({"namespaces": [namespace]})


@pytest.fixture
def running() -> Iterator[RunningNamespace]:
    with BackgroundEmulator(settings(namespace_per_key=True)) as emulator:
        yield emulator["contoso"]


def send(string: str, *bodies: str, to: str = "orders") -> None:
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as client,
        client.get_queue_sender(to) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def received(string: str, path: str = "orders") -> list[str]:
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as client,
        client.get_queue_receiver(path) as receiver,
    ):
        return [str(message) for message in receiver.receive_messages(9, max_wait_time=0.5)]


def ask(running: RunningNamespace, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.http_port}/$emulator{path}", headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def basic(name: str, key: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()


# --- by key name -----------------------------------------------------------------------------------------------------


def test_each_key_name_has_a_namespace_of_its_own(running: RunningNamespace) -> None:
    one, two = (running.connection_string_for(name) for name in ("test-1", "test-2"))
    send(one, "hello")
    assert received(two) == []
    assert received(running.connection_string) == []
    assert received(one) == ["hello"]


def test_a_wrong_key_creates_nothing(running: RunningNamespace) -> None:
    with pytest.raises(ServiceBusError):
        send(running.connection_string_for("test-1").replace("SAS_KEY_VALUE", "wrong"), "hello")
    assert ask(running, "/faults?namespace=test-1", Authorization=basic("test-1", "wrong"))[0] == 401
    assert ask(running, "/namespaces") == (200, {"namespaces": ["contoso"]})


@pytest.mark.parametrize("name", ["Test", "test_1", "-test", "a" * 51, "x/y"])
def test_a_key_name_that_is_no_name_for_a_namespace_is_refused(running: RunningNamespace, name: str) -> None:
    status, found = ask(running, "/entities", Authorization=basic(name, ROOT[1]))
    assert status == 401
    assert "lower-case" in str(found)


def test_without_the_setting_an_unknown_key_name_is_refused() -> None:
    with BackgroundEmulator(settings()) as emulator:
        string = emulator["contoso"].connection_string
        with pytest.raises(ServiceBusError):
            send(string.replace(ROOT[0], "test-1"), "hello")


async def test_a_generic_client_names_it_with_its_user() -> None:
    async with Emulator(settings(namespace_per_key=True)) as emulator:
        running = emulator["contoso"]
        async with raw_client_at(Place("127.0.0.1", running.amqp_port, policy="test-1")) as raw:
            assert await raw.send(await raw.attach_sender("orders"), ORDER) == Accepted()
        assert running.namespace.runtime("orders").active == 0
        assert running.hosts.find("test-1").runtime("orders").active == 1


def test_the_administration_and_the_controls_name_it_too(running: RunningNamespace) -> None:
    assert ask(running, "/entities?namespace=test-1")[0] == 404, "no client has shown a key"
    status, found = ask(running, "/entities", Authorization=basic("test-1", ROOT[1]))
    assert (status, found["namespace"]) == (200, "test-1")
    status, found = ask(running, "/entities?namespace=test-1")
    assert (status, found["namespace"]) == (200, "test-1")
    assert ask(running, "/entities")[1]["namespace"] == "contoso"


def test_an_outage_of_one_leaves_the_others_alone(running: RunningNamespace) -> None:
    one, two = (running.connection_string_for(name) for name in ("test-1", "test-2"))
    send(one, "1")
    send(two, "2")
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.http_port}/$emulator/outage?namespace=test-1", b'{"kind": "refuse"}', method="PUT"
    )
    urllib.request.urlopen(request).close()
    with pytest.raises(ServiceBusError):
        send(one, "3")
    assert received(two) == ["2"]
    assert ask(running, "/outage?namespace=test-1", "DELETE")[0] == 200
    assert received(one) == ["1"]


def test_a_deleted_one_starts_afresh(running: RunningNamespace) -> None:
    one = running.connection_string_for("test-1")
    send(one, "old")
    assert ask(running, "/namespaces")[1] == {"namespaces": ["contoso", "test-1"]}
    assert ask(running, "/namespaces/test-1", "DELETE") == (200, {})
    assert ask(running, "/namespaces/test-1", "DELETE")[0] == 404
    assert ask(running, "/namespaces/contoso", "DELETE")[0] == 404
    assert received(one) == []


def test_there_is_an_end_to_their_number(running: RunningNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_hosts, "MOST_NAMESPACES", 2)
    for name in ("a", "b"):
        assert ask(running, "/entities", Authorization=basic(name, ROOT[1]))[0] == 200
    status, found = ask(running, "/entities", Authorization=basic("c", ROOT[1]))
    assert (status, "delete some" in str(found)) == (403, True)
    assert ask(running, "/entities", Authorization=basic("a", ROOT[1]))[0] == 200


# --- by host name ----------------------------------------------------------------------------------------------------


def test_a_host_name_below_localhost_names_one_with_the_key_of_the_first(running: RunningNamespace) -> None:
    string = running.connection_string.replace("127.0.0.1", "test-1.localhost")
    address = f"sb://127.0.0.1:{running.amqp_port}"  # not every system resolves such names
    with (
        ServiceBusClient.from_connection_string(string, custom_endpoint_address=address) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
    assert received(running.connection_string) == []
    assert received(running.connection_string_for("test-1")) == ["hello"]
    assert running.hosts.find(ROOT[0], "contoso.localhost") is running.namespace


def test_the_page_of_one_is_at_its_host_name(running: RunningNamespace) -> None:
    host = f"test-1.localhost:{running.http_port}"
    status, found = ask(running, "/entities", Host=host, Authorization=basic(*ROOT))
    assert (status, found["namespace"]) == (200, "test-1")


# --- entities at their first use -------------------------------------------------------------------------------------

TEMPLATES = {"queue": {"lock_duration": "7s"}, "subscription": {"max_delivery_count": 2}, "topics": ["news*"]}


@pytest.fixture
def creating() -> Iterator[RunningNamespace]:
    with BackgroundEmulator(settings(auto_create=TEMPLATES)) as emulator:
        yield emulator["contoso"]


def test_a_sender_creates_a_queue_from_the_template(creating: RunningNamespace) -> None:
    send(creating.connection_string, "hello", to="parcels")
    assert received(creating.connection_string, "parcels") == ["hello"]
    queue = creating.namespace.describe("parcels")
    assert isinstance(queue, QueueDescription)
    assert queue.lock_duration == 7_000


def test_a_receiver_creates_a_topic_with_its_subscription(creating: RunningNamespace) -> None:
    with (
        ServiceBusClient.from_connection_string(creating.connection_string) as client,
        client.get_subscription_receiver("events", "audit") as receiver,
    ):
        assert receiver.receive_messages(max_wait_time=0.5) == []
        send(creating.connection_string, "hello", to="events")
        assert [str(message) for message in receiver.receive_messages(max_wait_time=10)] == ["hello"]
    (subscription,) = creating.namespace.subscriptions("events")
    assert subscription.max_delivery_count == 2


def test_a_sender_to_a_name_of_topics_creates_one(creating: RunningNamespace) -> None:
    send(creating.connection_string, "unheard", to="News-today")
    assert [topic.name for topic in creating.namespace.topics()] == ["News-today"]


def test_dead_letters_and_peeks_create_their_queue(creating: RunningNamespace) -> None:
    with ServiceBusClient.from_connection_string(creating.connection_string) as client:
        with client.get_queue_receiver("parcels") as receiver:
            assert receiver.peek_messages() == []
        with client.get_queue_receiver("returns", sub_queue="deadletter") as receiver:
            assert receiver.receive_messages(max_wait_time=0.5) == []
    assert [queue.name for queue in creating.namespace.queues()] == ["orders", "parcels", "returns"]


def test_a_subscription_of_a_queue_is_not_created(creating: RunningNamespace) -> None:
    with pytest.raises(ServiceBusError):
        received(creating.connection_string, "orders/Subscriptions/audit")
    assert creating.namespace.topics() == []


def test_who_may_not_send_creates_nothing() -> None:
    listener = {"name": "listener", "key": "listen", "claims": ["Listen"]}
    with BackgroundEmulator(settings(auto_create=TEMPLATES, policies=[listener])) as emulator:
        running = emulator["contoso"]
        with pytest.raises(ServiceBusError):
            send(running.connection_string, "hello", to="parcels")
        assert [queue.name for queue in running.namespace.queues()] == ["orders"]


def test_each_namespace_of_a_suite_creates_its_own() -> None:
    with BackgroundEmulator(settings(namespace_per_key=True, auto_create={})) as emulator:
        running = emulator["contoso"]
        send(running.connection_string_for("test-1"), "hello", to="parcels")
        assert [queue.name for queue in running.hosts.find("test-1").queues()] == ["orders", "parcels"]
        assert [queue.name for queue in running.namespace.queues()] == ["orders"]
