"""The control routes over HTTP: what they read and change in a namespace, and how they answer invalid requests."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from syphon.amqp import Section, section_bytes
from syphon.amqp.frames import Accepted
from syphon.emulator import (
    Action,
    Emulator,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    Outage,
    QueueDescription,
)
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client
from tests.support.waiting import TIMEOUT

ORDER = section_bytes(Section.DATA, b"an order")
NOTHING_SPECIAL = {
    "operation": None,
    "entity": "*",
    "condition": None,
    "description": "A fault was set on this emulator.",
    "seconds": 0.0,
    "times": None,
    "share": 1.0,
    "period": None,
    "message_id": None,
    "struck": 0,
    "until": None,
}


@dataclass
class Controls:
    """The controls of one namespace, asked with plain HTTP."""

    emulated: EmulatedNamespace
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        async with self.session.request(method, f"/$emulator{path}", data=data, **options) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def controls(clocked: EmulatedNamespace) -> AsyncIterator[Controls]:
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{clocked.running.http_port}") as session:
        yield Controls(clocked, session)


async def test_health_names_the_namespace_and_its_outage(controls: Controls) -> None:
    assert await controls.ask("GET", "/health") == (200, {"namespace": "contoso", "outage": None})
    controls.emulated.namespace.faults.begin_outage(Outage.HANG)
    assert await controls.ask("GET", "/health") == (200, {"namespace": "contoso", "outage": "hang"})


async def test_the_controls_are_on_the_port_for_messages_too(controls: Controls) -> None:
    port = controls.emulated.running.amqp_port
    async with controls.session.get(f"http://127.0.0.1:{port}/$emulator/health") as answer:
        assert answer.status == 200


async def test_counters_are_read_and_reset(controls: Controls) -> None:
    async with raw_client(controls.emulated) as raw:
        assert await raw.send(await raw.attach_sender("orders"), ORDER) == Accepted()
    zero = {"send": 0, "receive": 0, "empty_receive": 0, "settle": 0, "peek": 0, "manage": 0}
    assert await controls.ask("GET", "/counters") == (
        200,
        {"totals": {**zero, "send": 1}, "entities": {"orders": {"send": 1}}},
    )
    assert await controls.ask("DELETE", "/counters") == (200, {})
    assert await controls.ask("GET", "/counters") == (200, {"totals": zero, "entities": {}})


async def test_a_fault_is_set_and_shown_and_strikes(controls: Controls) -> None:
    wanted = {
        "action": "error",
        "operation": "send",
        "entity": "Ord*",
        "condition": "com.microsoft:server-busy",
        "description": "come back later",
        "times": 2,
        "period": 60,
    }
    status, shown = await controls.ask("POST", "/faults", wanted)
    until = controls.emulated.namespace.clock.now() + 60_000
    assert (status, shown) == (201, {**NOTHING_SPECIAL, **wanted, "id": 1, "until": until})
    async with raw_client(controls.emulated) as raw:
        error = await raw.refusal_of(await raw.attach_sender("orders"), ORDER)
        assert (error.condition, error.description) == ("com.microsoft:server-busy", "come back later")
    assert await controls.ask("GET", "/faults") == (200, {"faults": [{**shown, "struck": 1}]})


async def test_only_the_action_of_a_fault_must_be_given(controls: Controls) -> None:
    assert await controls.ask("POST", "/faults", {"action": "hang"}) == (
        201,
        {**NOTHING_SPECIAL, "action": "hang", "id": 1},
    )


async def test_faults_set_in_process_and_over_http_are_the_same(controls: Controls) -> None:
    number = controls.emulated.namespace.faults.add(Fault(Action.DROP, Operation.SEND, "orders"))
    _, shown = await controls.ask("GET", "/faults")
    assert [(fault["id"], fault["action"]) for fault in shown["faults"]] == [(number, "drop")]


async def test_faults_are_cleared_one_by_one_or_all_at_once(controls: Controls) -> None:
    for _ in range(3):
        await controls.ask("POST", "/faults", {"action": "drop"})
    assert await controls.ask("DELETE", "/faults/2") == (200, {})
    assert [fault.id for fault in controls.emulated.namespace.faults.armed()] == [1, 3]
    assert await controls.ask("DELETE", "/faults") == (200, {})
    assert controls.emulated.namespace.faults.armed() == []


@pytest.mark.parametrize("number", ["7", "9" * 18])
async def test_a_fault_that_is_not_set_cannot_be_cleared(controls: Controls, number: str) -> None:
    status, answer = await controls.ask("DELETE", f"/faults/{number}")
    assert (status, answer) == (404, {"error": f"There is no fault {number}."})


async def test_a_port_that_was_taken_in_an_outage_is_said_and_the_outage_can_be_ended_later(controls: Controls) -> None:
    port = controls.emulated.running.amqp_port
    await controls.ask("PUT", "/outage", {"kind": "refuse"})
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        code, said = await controls.ask("DELETE", "/outage")
        assert (code, said["error"].endswith("Free it, and end the outage again.")) == (503, True)
    assert await controls.ask("DELETE", "/outage") == (200, {"outage": None})
    async with controls.session.get(f"http://127.0.0.1:{port}/$emulator/health") as answer:
        assert answer.status == 200


async def test_an_outage_is_refusal_unless_it_is_said_otherwise(controls: Controls) -> None:
    assert await controls.ask("PUT", "/outage") == (200, {"outage": "refuse"})
    assert controls.emulated.namespace.faults.outage is Outage.REFUSE
    assert await controls.ask("PUT", "/outage", {"kind": "busy"}) == (200, {"outage": "busy"})
    assert await controls.ask("DELETE", "/outage") == (200, {"outage": None})
    assert await controls.ask("DELETE", "/outage") == (200, {"outage": None})
    assert controls.emulated.namespace.faults.outage is None


async def test_a_throttle_is_set_and_taken_away(controls: Controls) -> None:
    assert await controls.ask("PUT", "/throttle", {"credits_per_second": 1}) == (200, {"credits_per_second": 1})
    async with raw_client(controls.emulated) as raw:
        sender = await raw.attach_sender("orders")
        assert await raw.send(sender, ORDER) == Accepted()
        assert "50009" in ((await raw.refusal_of(sender, ORDER)).description or "")
        assert await controls.ask("DELETE", "/throttle") == (200, {"credits_per_second": None})
        assert await raw.send(sender, ORDER) == Accepted()


async def test_a_quota_in_bytes_fills_a_queue(controls: Controls) -> None:
    assert await controls.ask("PUT", "/quota", {"entity": "Orders", "bytes": 10}) == (
        200,
        {"entity": "Orders", "bytes": 10},
    )
    async with raw_client(controls.emulated) as raw:
        sender = await raw.attach_sender("orders")
        assert (await raw.refusal_of(sender, ORDER)).condition == "amqp:resource-limit-exceeded"
        await controls.ask("PUT", "/quota", {"entity": "orders", "bytes": None})
        assert await raw.send(sender, ORDER) == Accepted()


async def test_fragments_of_a_partitioned_queue_go_down_and_come_back(controls: Controls) -> None:
    controls.emulated.namespace.create_queue(QueueDescription("parted", enable_partitioning=True))
    everything = {"entity": "parted", "down": list(range(16))}
    assert await controls.ask("PUT", "/fragments", everything) == (200, everything)
    async with raw_client(controls.emulated) as raw:
        sender = await raw.attach_sender("parted")
        assert (await raw.refusal_of(sender, ORDER)).condition == "com.microsoft:timeout"
        assert await controls.ask("PUT", "/fragments", {"entity": "parted", "down": []}) == (
            200,
            {"entity": "parted", "down": []},
        )
        assert await raw.send(sender, ORDER) == Accepted()


# Mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "/faults", b"{not json", "the body"),
        ("POST", "/faults", b"\xff\xfe", "the body"),
        ("POST", "/faults", [], "the body"),
        ("POST", "/faults", {}, "action"),
        ("POST", "/faults", None, "action"),
        ("POST", "/faults", {"action": "explode"}, "action"),
        ("POST", "/faults", {"action": "drop", "operation": "sing"}, "operation"),
        ("POST", "/faults", {"action": "drop", "entity": None}, "entity"),
        ("POST", "/faults", {"action": "drop", "often": True}, "often"),
        ("POST", "/faults", {"action": "drop", "times": 0}, "times"),
        ("POST", "/faults", {"action": "drop", "times": 1.5}, "times"),
        ("POST", "/faults", {"action": "drop", "share": 0}, "share"),
        ("POST", "/faults", {"action": "drop", "share": 1.01}, "share"),
        ("POST", "/faults", {"action": "drop", "period": 0}, "period"),
        ("POST", "/faults", {"action": "delay", "seconds": -1}, "seconds"),
        ("POST", "/faults", b'{"action": "delay", "seconds": 1e999}', "seconds"),
        ("POST", "/faults", {"action": "error", "condition": "schön"}, "condition"),
        ("POST", "/faults", {"action": "lose-lock", "operation": "connect"}, "action"),
        ("POST", "/faults", {"action": "drop", "message_id": "order 1"}, "message_id"),
        ("POST", "/faults", {"action": "drop", "id": 3}, "id"),
        ("PUT", "/outage", {"kind": "nap"}, "kind"),
        ("PUT", "/outage", {"type": "drop"}, "type"),
        ("PUT", "/throttle", {}, "credits_per_second"),
        ("PUT", "/throttle", {"credits_per_second": -1}, "credits_per_second"),
        ("PUT", "/throttle", {"credits_per_second": "many"}, "credits_per_second"),
        ("PUT", "/quota", {"bytes": 5}, "entity"),
        ("PUT", "/quota", {"entity": "orders", "bytes": -5}, "bytes"),
        ("PUT", "/fragments", {"entity": "orders"}, "down"),
        ("PUT", "/fragments", {"entity": "orders", "down": [16]}, "down"),
        ("PUT", "/fragments", {"entity": "orders", "down": [0, "x"]}, "down.1"),
    ],
)
async def test_a_mistake_is_answered_with_the_name_of_the_field(
    controls: Controls, method: str, path: str, body: Any, named: str
) -> None:
    status, answer = await controls.ask(method, path, body)
    assert status == 400
    assert answer["error"].startswith(f"{named}: ")
    faults = controls.emulated.namespace.faults
    assert (faults.armed(), faults.outage, faults.throttle) == ([], None, None)


@pytest.mark.parametrize("path", ["/quota", "/fragments"])
async def test_an_entity_that_does_not_exist_is_not_found(controls: Controls, path: str) -> None:
    change: dict[str, Any] = {"bytes": 1} if path == "/quota" else {"down": []}
    status, answer = await controls.ask("PUT", path, {"entity": "nowhere", **change})
    assert status == 404
    assert "nowhere" in answer["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nothing"), ("POST", "/health"), ("DELETE", "/faults/x"), ("DELETE", "/faults/" + "9" * 5000)],
)
async def test_a_control_that_does_not_exist_is_not_found(controls: Controls, method: str, path: str) -> None:
    status, answer = await controls.ask(method, path)
    assert status == 404
    assert "is not one of the emulator's controls" in str(answer)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", ""])
async def test_pages_in_a_browser_are_kept_out(controls: Controls, origin: str) -> None:
    status, answer = await controls.ask("PUT", "/outage", {"kind": "drop"}, headers={"Origin": origin})
    assert (status, answer) == (403, {"error": "The control routes are not for web pages."})
    assert controls.emulated.namespace.faults.outage is None
    assert (await controls.ask("GET", "/counters", headers={"Origin": origin}))[0] == 403


async def test_the_controls_of_one_namespace_are_not_those_of_the_other(controls: Controls) -> None:
    names = ("one", "two")
    async with Emulator(EmulatorSettings(namespaces=[NamespaceSettings(name=name) for name in names])) as emulator:
        one, two = (emulator[name] for name in names)
        address = f"http://127.0.0.1:{one.http_port}/$emulator/faults"
        async with controls.session.post(address, json={"action": "drop"}) as answer:
            assert answer.status == 201
        assert len(one.namespace.faults.armed()) == 1
        assert two.namespace.faults.armed() == []


async def test_no_more_than_the_standard_library_is_needed(controls: Controls) -> None:
    address = f"http://127.0.0.1:{controls.emulated.running.http_port}/$emulator/faults"
    request = urllib.request.Request(address, data=b'{"action": "drop", "operation": "send"}', method="POST")

    def post() -> Any:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)

    assert (await asyncio.to_thread(post))["id"] == 1
    assert [fault.action for fault in controls.emulated.namespace.faults.armed()] == [Action.DROP]
