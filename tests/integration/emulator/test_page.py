"""The page of a namespace, what it reads, and the clock over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.amqp import Described, Long, Message, Section, Symbol, Timestamp, encode, map_section, section_bytes
from syphon.emulator import Action, BackgroundEmulator, EmulatorSettings, Fault, Outage, RunningNamespace
from syphon.emulator.broker.message import BrokeredMessage
from tests.support.tools import tool
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ROOT = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
DESKTOP, PHONE = (1280, 900), (390, 844)
SETTINGS = {
    "name": "contoso",
    "queues": [
        {"name": "orders", "lock_duration": "1m"},
        {"name": "a-queue-whose-name-is-longer-than-a-phone-is-wide"},
    ],
    "topics": [{"name": "news", "subscriptions": [{"name": "audit"}]}],
    "policies": [
        {"name": ROOT[0], "key": ROOT[1]},
        {"name": "listener", "key": "listen", "claims": ["Listen"]},
        {"name": "sender", "key": "send", "claims": ["Send"]},
    ],
}


def basic(name: str, key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()}


@dataclass
class Site:
    """A running namespace, asked over HTTP."""

    emulator: BackgroundEmulator

    @property
    def running(self) -> RunningNamespace:
        return self.emulator["contoso"]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.running.http_port}"

    def get(self, path: str, headers: dict[str, str] | None = None, **more: Any) -> tuple[int, str, Any]:
        request = urllib.request.Request(self.address + path, headers=headers or {}, **more)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode(), refused.headers

    def ask(self, path: str, headers: dict[str, str] | None = None, **more: Any) -> tuple[int, Any]:
        status, text, _ = self.get(f"/$emulator{path}", headers, **more)
        return status, json.loads(text)

    def messages(self, entity: str, more: str = "", who: tuple[str, str] = ROOT) -> Any:
        status, found = self.ask(f"/messages?entity={entity}{more}", basic(*who))
        assert status == 200, found
        return found

    def send(self, *messages: ServiceBusMessage, to: str = "orders") -> None:
        with (
            ServiceBusClient.from_connection_string(self.running.connection_string) as client,
            client.get_queue_sender(to) as sender,
        ):
            sender.send_messages(list(messages))

    def dead_letter(self, reason: str) -> None:
        """Dead-letters the first message of `orders`."""
        with (
            ServiceBusClient.from_connection_string(self.running.connection_string) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            (message,) = receiver.receive_messages(max_wait_time=20)
            receiver.dead_letter_message(message, reason=reason, error_description=reason)

    def put(self, bare: bytes) -> None:
        """A message as a client would send it."""
        self.emulator.call(lambda: self.running.namespace.target("orders").submit([BrokeredMessage.parse(bare)]))


@pytest.fixture
def site() -> Iterator[Site]:
    with BackgroundEmulator(EmulatorSettings.model_validate({"namespaces": [SETTINGS]})) as emulator:
        yield Site(emulator)


@pytest.fixture
def writable() -> Iterator[Site]:
    settings = EmulatorSettings.model_validate({"namespaces": [SETTINGS], "page_changes": True})
    with BackgroundEmulator(settings) as emulator:
        yield Site(emulator)


# --- the page --------------------------------------------------------------------------------------------------------


def test_a_browser_gets_the_page_and_a_client_the_feed(site: Site) -> None:
    status, text, headers = site.get("/", {"Accept": "text/html,*/*;q=0.8"})
    assert (status, headers.get_content_type()) == (200, "text/html")
    assert text.startswith("<!doctype html>")
    assert site.get("/")[2].get_content_type() == "application/atom+xml"


def test_nothing_but_its_own_script_and_style_is_allowed(site: Site) -> None:
    _, text, headers = site.get("/", {"Accept": "text/html"})
    policy = headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.findall(r"(?:src|href)=", text), "no other resource"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5300", "127.0.0.1.evil.example"])
def test_a_web_site_that_points_its_name_here_reads_nothing(site: Site, host: str) -> None:
    assert site.get("/", {"Accept": "text/html", "Host": host})[0] == 403
    site.send(ServiceBusMessage("a secret"))
    status, found = site.ask("/messages?entity=orders", {**basic(*ROOT), "Host": host})
    assert status == 403
    assert "secret" not in str(found)


@pytest.mark.parametrize("host", ["localhost:5300", "emulator", "[::1]:5300", "contoso.localhost"])
def test_names_that_no_web_site_has_are_fine(site: Site, host: str) -> None:
    assert site.ask("/messages?entity=orders", {**basic(*ROOT), "Host": host})[0] == 200


# --- what it reads ---------------------------------------------------------------------------------------------------


def test_entities_have_their_counts(site: Site) -> None:
    site.send(ServiceBusMessage("1"), ServiceBusMessage("2"))
    status, found = site.ask("/entities")
    assert (status, found["namespace"], found["page_changes"]) == (200, "contoso", False)
    entities = {entity["path"]: entity for entity in found["entities"]}
    assert [entity["kind"] for entity in entities.values()] == ["queue", "queue", "topic", "subscription"]
    assert (entities["orders"]["active"], entities["orders"]["dead_letters"]) == (2, 0)
    assert "news/subscriptions/audit" in entities


def test_messages_need_a_key_that_may_listen(site: Site) -> None:
    site.send(ServiceBusMessage("a secret"))
    for headers in ({}, basic("sender", "send"), basic(ROOT[0], "wrong"), {"Authorization": "Basic ===="}):
        status, found = site.ask("/messages?entity=orders", headers)
        assert (status, "secret" in str(found)) == (401, False)
    assert len(site.messages("orders", who=("listener", "listen"))["messages"]) == 1


def test_a_peek_shows_properties_and_bodies_and_counts_no_operation(site: Site) -> None:
    site.send(ServiceBusMessage("hello", message_id="1", subject="created", application_properties={"priority": 5}))
    before = site.ask("/counters")
    (message,) = site.messages("orders")["messages"]
    assert message["properties"]["message_id"] == ["string", "1"]
    assert message["properties"]["subject"] == ["string", "created"]
    assert message["application_properties"] == [["priority", "int", "5"]]
    assert message["body"] == ["text", "hello", False]
    assert (message["state"], message["delivery_count"], message["sequence_number"]) == ("active", 0, 1)
    assert site.ask("/counters") == before


def test_a_peek_has_pages(site: Site) -> None:
    site.send(*(ServiceBusMessage(str(number)) for number in range(5)))
    first = site.messages("orders", "&most=3")
    assert ([found["sequence_number"] for found in first["messages"]], first["following"]) == ([1, 2, 3], 4)
    rest = site.messages("orders", f"&most=3&from={first['following']}")
    assert ([found["sequence_number"] for found in rest["messages"]], rest["following"]) == ([4, 5], None)


@pytest.mark.parametrize(
    "query", ["entity=orders&from=-1", "entity=orders&most=ten", "entity=orders&from=" + "9" * 30, "entity=missing"]
)
def test_a_peek_that_makes_no_sense_is_refused(site: Site, query: str) -> None:
    status, found = site.ask(f"/messages?{query}", basic(*ROOT))
    assert status in (400, 404)
    assert found["error"]


def test_dead_letters_have_their_reason(site: Site) -> None:
    site.send(ServiceBusMessage("bad"))
    site.dead_letter("too bad")
    (letter,) = site.messages("orders/$DeadLetterQueue")["messages"]
    assert ["DeadLetterReason", "string", "too bad"] in letter["application_properties"]
    assert letter["dead_letter_source"] == "orders"


BODIES = {
    b"\x00\x53\x75\xa0\x02\xff\x00": ["binary", "ff 00", False],
    section_bytes(Section.DATA, b"a") + section_bytes(Section.DATA, b"b"): ["text", "ab", False],
    section_bytes(Section.DATA, "ö".encode() * 4000): ["text", "ö" * 2048, True],
    section_bytes(Section.DATA, b"x" + "ö".encode() * 4000): ["text", "x" + "ö" * 2047, True],
    section_bytes(Section.VALUE, "text"): ["string", "text", False],
    section_bytes(Section.VALUE, Described(Symbol("com.microsoft:timespan"), Long(7))): [
        "com.microsoft:timespan",
        "7",
        False,
    ],
}


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_bodies_of_every_kind_are_shown(site: Site, body: bytes) -> None:
    site.put(body)
    assert site.messages("orders")["messages"][0]["body"] == BODIES[body]


def test_values_that_json_or_python_lack_are_shown(site: Site) -> None:
    far = Timestamp(2**62)
    values = [encode("far") + encode(far), encode("none") + encode(None), encode("yes") + encode(True)]
    site.put(map_section(Section.APPLICATION_PROPERTIES, values) + section_bytes(Section.DATA, b""))
    (message,) = site.messages("orders")["messages"]
    assert message["application_properties"] == [
        ["far", "timestamp", f"{2**62} ms"],
        ["none", "null", "None"],
        ["yes", "boolean", "true"],
    ]


def test_a_message_that_cannot_be_read_is_listed_all_the_same(site: Site) -> None:
    # A body is taken without being decoded: this one is a string that is not UTF-8.
    bare = b"\x00\x53\x77\xa1\x02\xff\xfe"
    assert Message(bare).spans
    site.put(bare)
    (message,) = site.messages("orders")["messages"]
    assert message["body"][0] == "unreadable"


# --- the clock -------------------------------------------------------------------------------------------------------


def test_the_clock_is_moved_over_http_and_locks_expire(site: Site) -> None:
    site.send(ServiceBusMessage("hello"))
    with (
        ServiceBusClient.from_connection_string(site.running.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        receiver.receive_messages(max_wait_time=20)
        assert site.messages("orders")["messages"][0]["state"] == "locked"
        assert site.ask("/clock")[1]["ahead_seconds"] < 1
        status, clock = site.ask("/clock", method="POST", data=b'{"advance": "61s"}')
        assert (status, round(clock["ahead_seconds"])) == (200, 61)
        (message,) = site.messages("orders")["messages"]
        assert (message["state"], message["delivery_count"]) == ("active", 1)


def test_what_was_set_before_the_clock_was_moved_is_due_earlier(site: Site) -> None:
    site.send(ServiceBusMessage("short", time_to_live=timedelta(hours=1)))
    site.emulator.advance(3599.5)
    eventually(lambda: site.messages("orders")["messages"] == [], "the message expires by itself after half a second")


@pytest.mark.parametrize(
    "body", [b'{"advance": 60}', b'{"advance": "0s"}', b'{"advance": "soon"}', b"{}", b'{"to": "1h"}']
)
def test_a_clock_that_is_told_nonsense_stays(site: Site, body: bytes) -> None:
    status, found = site.ask("/clock", method="POST", data=body)
    assert (status, list(found)) == (400, ["error"])
    assert site.ask("/clock")[1]["ahead_seconds"] < 1


# --- changes from a page ---------------------------------------------------------------------------------------------


def advance(site: Site, **headers: str) -> int:
    return site.ask("/clock", headers, method="POST", data=b'{"advance": "1h"}')[0]


def test_the_page_changes_nothing_unless_the_emulator_was_started_so(site: Site) -> None:
    assert advance(site, Origin=site.address, **basic(*ROOT)) == 403


def test_with_leave_the_page_changes_things_with_the_key_and_pages_of_others_nothing(writable: Site) -> None:
    assert writable.ask("/entities")[1]["page_changes"] is True
    assert advance(writable, Origin=writable.address) == 401
    assert advance(writable, Origin=writable.address, **basic("listener", "listen")) == 401
    assert advance(writable, Origin="http://evil.example", **basic(*ROOT)) == 403
    assert advance(writable, Origin="http://evil.example", Host="evil.example", **basic(*ROOT)) == 403
    assert writable.ask("/clock")[1]["ahead_seconds"] < 1
    assert advance(writable, Origin=writable.address, **basic(*ROOT)) == 200


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(browser: Browser, writable: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(writable.address)
    yield page
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()


def opened(page: Page, entity: str) -> None:
    page.get_by_role("button", name=entity, exact=True).click()
    page.get_by_label("Policy").fill(ROOT[0])
    page.get_by_label("Key", exact=True).fill(ROOT[1])
    page.get_by_role("button", name="Show").click()
    page.locator("details").first.wait_for()


@pytest.mark.timeout(300)
def test_nothing_in_a_message_becomes_a_part_of_the_page(writable: Site, page: Page) -> None:
    writable.send(
        ServiceBusMessage(
            MARKUP, message_id=MARKUP, subject=MARKUP, content_type=MARKUP, application_properties={MARKUP: MARKUP}
        )
    )
    writable.dead_letter(MARKUP)
    fault = Fault(Action.ERROR, entity=MARKUP, condition=MARKUP)
    writable.emulator.call(lambda: writable.running.namespace.faults.add(fault))
    writable.send(ServiceBusMessage("another"))
    opened(page, "orders")
    page.get_by_role("button", name="Dead letters", exact=True).click()
    page.locator("summary", has_text="owned").click()
    assert page.locator("pre").inner_text() == MARKUP
    assert MARKUP in page.locator("#faults").inner_text()
    assert page.locator("img").count() == 0
    assert "owned" not in page.title()


@pytest.mark.timeout(300)
def test_it_moves_the_clock_and_clears_faults_and_shows_an_outage(writable: Site, page: Page) -> None:
    writable.send(ServiceBusMessage("hello"))
    writable.emulator.call(lambda: writable.running.namespace.faults.add(Fault(Action.DELAY, entity="x", seconds=9)))
    opened(page, "orders")
    page.get_by_role("button", name="+ 1 hour").click()
    page.get_by_text("3,600 s ahead of the machine").wait_for()
    page.get_by_role("button", name="Clear all").click()
    page.get_by_text("None.", exact=True).wait_for()
    assert writable.ask("/faults") == (200, {"faults": []})
    writable.emulator.call(lambda: writable.running.namespace.faults.begin_outage(Outage.HANG))
    page.get_by_text("outage: hang").wait_for()
