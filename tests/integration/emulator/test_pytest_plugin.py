"""The pytest plugin: tests of other projects that use the local Service Bus, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syphon.pytest_plugin import LocalNamespace
from tests.support.tools import ROOT

ORDERS = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError


def sent_and_received(connection_string, queue):
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=30)
            receiver.complete_message(message)
            return str(message)


@pytest.mark.servicebus(queues=["orders"])
@pytest.mark.parametrize("again", [1, 2])
def test_each_test_has_a_namespace_of_its_own(servicebus_namespace, again):
    assert servicebus_namespace.messages("orders") == 0
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("left"))
    assert servicebus_namespace.messages("orders") == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_namespace_serves_all_tests_of_a_process(servicebus, number):
    servicebus.create(queues=[f"orders-{number}"])
    assert sent_and_received(servicebus.connection_string, f"orders-{number}") == "hello"


@pytest.mark.servicebus(topics={"news": ["audit"]}, queues=[{"name": "chats", "requires_session": True}])
def test_topics_and_settings(servicebus_namespace):
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_sender("chats") as sender:
            sender.send_messages(ServiceBusMessage("hello", session_id="s"))
    assert servicebus_namespace.messages("news/subscriptions/audit") == 1
    assert servicebus_namespace.messages("chats") == 1


@pytest.mark.servicebus(queues=["orders"])
def test_failures_end_with_their_block(servicebus_namespace):
    connection_string = servicebus_namespace.connection_string
    with servicebus_namespace.fault("error", "send", "orders", condition="amqp:internal-error"):
        with pytest.raises(ServiceBusError):
            sent_and_received(connection_string, "orders")
    with servicebus_namespace.outage(), pytest.raises(ServiceBusError):
        sent_and_received(connection_string, "orders")
    assert sent_and_received(connection_string, "orders") == "hello"


@pytest.mark.servicebus(queues=["orders"])
def test_nobody_waits_for_a_lock(servicebus_namespace):
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            sender.send_messages(ServiceBusMessage("hello"))
            (first,) = receiver.receive_messages(max_wait_time=10)
            servicebus_namespace.advance(61)
            (again,) = receiver.receive_messages(max_wait_time=10)
            assert (first.delivery_count, again.delivery_count) == (0, 1)


@pytest.mark.servicebus(config="Config.json")
def test_the_file_of_microsofts_emulator(servicebus_namespace):
    assert sent_and_received(servicebus_namespace.connection_string, "queue.1") == "hello"
"""

CONFIG = """
{"UserConfig": {
    "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1", "Properties": {}}], "Topics": []}],
    "Logging": {"Type": "File"}}}
"""


def pytest_run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    return done.stdout + done.stderr


def test_the_fixtures_serve_tests_of_other_projects_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(ORDERS)
    (tmp_path / "Config.json").write_text(CONFIG)
    said = pytest_run(tmp_path, "-n", "2")
    assert "9 passed" in said, said


def test_a_mistake_in_the_marker_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text("""
import pytest

@pytest.mark.servicebus(queues=[{"name": "orders", "lock": "5s"}])
def test_it(servicebus_namespace):
    pass
""")
    said = pytest_run(tmp_path)
    assert "1 error" in said, said
    assert "queues.0.lock" in said


def test_the_plugin_loads_no_emulator_before_a_test_needs_it() -> None:
    code = (
        "import sys, syphon.pytest_plugin; print([name for name in sys.modules if name.startswith('syphon.emulator')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.servicebus(queues=["orders"])
def test_dead_letters_are_counted_by_their_path(servicebus_namespace: LocalNamespace) -> None:
    assert servicebus_namespace.messages("orders/$deadletterqueue") == 0
