"""The status page in a real browser, on a desktop and on a phone: what it shows first, and that it claims no more than
the worker has seen. The statuses are made here, by the functions that the worker uses; `test_running_worker.py` looks
at the page of a real worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from syphon.status.diagnosis import outlook, problems
from syphon.status.snapshot import (
    BacklogQueueState,
    DestinationState,
    PairStatus,
    SideState,
    Throughput,
    WorkerState,
    WorkerStatus,
)
from tests.integration.status.test_diagnosis import FULL, NOTHING, NOW, destination, pair, queue, side
from tests.support.status_server import Served, served
from tests.support.tools import tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(300)

DESKTOP, PHONE = (1280, 900), (390, 844)
MISSING = destination("refunds", DestinationState.BACKING_OFF, left=20, error="DestinationMissing")
OPEN = destination("orders", DestinationState.AVAILABLE)


def status(*pairs: PairStatus, state: WorkerState = WorkerState.WORKING, **more: Any) -> WorkerStatus:
    """What a worker would answer if it saw these pairs."""
    found: dict[str, Any] = {
        "version": "1.2.3",
        "state": state,
        "started": NOW - timedelta(minutes=1),
        "at": NOW,
        "outlook": outlook(state, pairs, NOW),
        "problems": problems(pairs, None, NOW),
        "not_ready": [],
        "ledger": "./ledger",
        "ledger_error": None,
        "paused": [],
        "totals": NOTHING,
        "throughput": Throughput(seconds=5, forwarded=[0], dead_lettered=[0], backlog=[None]),
        "pairs": list(pairs),
        "events": [],
    }
    return WorkerStatus(**found | more)


AWAY = side(False, reason="no connection: [Errno 111] Connection refused")
QUEUES = [queue(number) for number in range(10)]
OUTAGE = status(
    pair(
        primary=AWAY,
        queues=[queue(number, left=300, state=BacklogQueueState.WAITING) for number in range(10)],
        destinations=[destination("orders", DestinationState.UNKNOWN)],
    )
)
STUCK = status(
    pair(
        per_second=6.0,
        queues=[queue(0, left=7_942, in_flight=20, state=BacklogQueueState.WORKING), *QUEUES[1:]],
        destinations=[FULL, MISSING, OPEN],
    )
)
REFUSED = status(
    pair(
        dead_lettered_per_second=200.0,
        queues=[queue(0, in_flight=50, dead_letters=64, state=BacklogQueueState.WORKING), *QUEUES[1:]],
        destinations=[destination("orders", DestinationState.UNKNOWN)],
    )
)
STARTING = status(
    pair(
        primary=side(False, SideState.STARTING, "starting: the worker is not up yet"),
        secondary=side(False, SideState.STARTING, "starting: the worker is not up yet"),
        queues=[queue(number, state=BacklogQueueState.STARTING, reason="not yet") for number in range(10)],
    ),
    state=WorkerState.STARTING,
    not_ready=["starting: the worker is not up yet"],
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    chromium = tool("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()


@dataclass
class Shown:
    """The page with one status, at one size."""

    page: Page
    height: int

    def top(self, selector: str) -> float:
        box = self.page.locator(selector).first.bounding_box()
        assert box is not None, f"{selector} is not shown"
        return box["y"]

    def is_on_first_screen(self, selector: str) -> bool:
        box = self.page.locator(selector).first.bounding_box()
        return box is not None and box["y"] + box["height"] <= self.height

    def fact(self, name: str) -> str:
        box = self.page.locator("#numbers div", has=self.page.get_by_text(name, exact=True))
        return box.locator("dd").first.inner_text()

    def pills(self, tone: str) -> list[str]:
        return self.page.locator(f".pill.{tone}:visible").all_inner_texts()


Show = Callable[..., Shown]


@pytest.fixture
def show(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Show]:
    """Opens the page of a worker with this status."""
    with served() as here:
        pages: list[Page] = []
        complaints: list[str] = []

        def opened(found: WorkerStatus, size: tuple[int, int]) -> Shown:
            monkeypatch.setattr(here.observer, "current", lambda: found)
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(60_000)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            pages.append(page)
            page.goto(_address(here))
            page.locator("#live", has_text="live, ").wait_for()
            return Shown(page, size[1])

        yield opened
        for page in pages:
            page.close()
        assert complaints == []


def _address(here: Served) -> str:
    return f"http://127.0.0.1:{here.port}"


both_sizes = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])


@both_sizes
@pytest.mark.parametrize("found", [OUTAGE, STUCK, REFUSED, STARTING], ids=["outage", "stuck", "refused", "starting"])
def test_nothing_is_wider_than_the_screen(show: Show, found: WorkerStatus, size: tuple[int, int]) -> None:
    shown = show(found, size)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= size[0]


@both_sizes
def test_the_first_screen_says_whether_it_flows_what_is_stuck_and_how_long(show: Show, size: tuple[int, int]) -> None:
    shown = show(STUCK, size)
    assert shown.page.locator("#state").inner_text() == "partly blocked"
    facts = [shown.fact(name) for name in ("Forwarded/s", "Backlog", "Stuck", "ETA")]
    assert facts == ["6", "7,942", "≥ 7,240", "≈ 2 min"]  # X7: (7,942 - 7,240) / 6 s
    for selector in ("#state", "#facts", ".problem"):
        assert shown.is_on_first_screen(selector), selector
    assert "'orders' is full" in shown.page.locator(".problem").first.inner_text()
    assert "Let its consumers catch up" in shown.page.locator(".problem .remedy").first.inner_text()


def test_on_a_desktop_what_is_wrong_comes_first_then_the_chart_then_destinations_then_queues(show: Show) -> None:
    shown = show(STUCK, DESKTOP)
    parts = ("#headline", "#problems", "#numbers", "#chart", 'text="Destination" >> nth=0', "#pairs details")
    order = [shown.top(selector) for selector in parts]
    assert order == sorted(order)


@both_sizes
def test_in_an_outage_nothing_is_green_but_the_side_that_is_connected(show: Show, size: tuple[int, int]) -> None:
    shown = show(OUTAGE, size)
    assert shown.pills("good") == ["connected"]
    assert shown.page.locator("#state").inner_text() == "blocked"
    assert (shown.fact("Backlog"), shown.fact("Stuck")) == ("3,000", "≥ 3,000")
    assert shown.page.locator(".problem.critical").first.inner_text().count("Connection refused") == 1


@both_sizes
def test_while_all_messages_go_to_the_dead_letters_no_destination_is_green_and_none_waits(
    show: Show, size: tuple[int, int]
) -> None:  # X7
    shown = show(REFUSED, size)
    assert shown.pills("good") == ["connected", "connected"], "the sides"
    assert shown.page.locator("#state").inner_text() == "blocked"
    row = shown.page.locator("tr", has=shown.page.locator("td.name", has_text="orders"))
    assert row.locator("td[data-label=Waiting]").inner_text().endswith("–")
    assert shown.fact("Dead letters") == "64"


@both_sizes
def test_a_worker_that_starts_normally_shows_no_problem(show: Show, size: tuple[int, int]) -> None:
    shown = show(STARTING, size)
    assert shown.page.locator("#state").inner_text() == "starting"
    assert (shown.pills("bad"), shown.pills("warn"), shown.page.locator(".problem").count()) == ([], [], 0)
    assert "the worker is not up yet" in shown.page.locator("#version").inner_text()


@both_sizes
def test_quiet_queues_fold_into_one_line_and_unfold(show: Show, size: tuple[int, int]) -> None:
    shown = show(STUCK, size)
    shown.page.get_by_text("10 backlog queues, 1 with messages or problems").click()
    names = shown.page.locator("#pairs details td.name")
    assert names.all_inner_texts() == ["contoso/x-servicebus-transfer/0"]
    shown.page.get_by_text("9 backlog queues, empty when last counted.").wait_for()
    shown.page.get_by_role("button", name="Show the empty queues of contoso").click()
    shown.page.locator("td.name", has_text="contoso/x-servicebus-transfer/9").wait_for()
    assert names.count() == 10


def test_the_chart_draws_nothing_of_the_time_before_the_worker_began(show: Show) -> None:
    spans = Throughput(seconds=5, forwarded=[0, 50, 100, 0], dead_lettered=[0] * 4, backlog=[None, 90, 40, 40])
    shown = show(STUCK.model_copy(update={"throughput": spans}), DESKTOP)
    points = shown.page.locator("#chart polygon").get_attribute("points") or ""
    first, *line, last = [tuple(map(float, point.split(","))) for point in points.split()]
    assert len(line) == 3, "one point for each span that is over"
    assert (first[0], last[0]) == (line[0][0], 600)
    assert first[0] > 580
    path = shown.page.locator("#backlog-chart path.backlog").get_attribute("d") or ""
    assert path.count("L") == 1, "a backlog that was not counted has no line"


@pytest.mark.parametrize(
    ("is_complete", "said"), [(True, "There are none."), (False, "None found. Some queues could not be read")]
)
def test_dead_letters_that_could_not_be_read_are_not_called_none(show: Show, is_complete: bool, said: str) -> None:
    shown = show(REFUSED, DESKTOP)
    answer = {
        "groups": [],
        "is_complete": is_complete,
        "unseen": {} if is_complete else {"q": "unreachable"},
        "replay": None,
        "may_replay": False,
    }
    shown.page.route("**/dead-letters", lambda route: route.fulfill(json=answer))
    shown.page.get_by_role("button", name="Show reasons").click()
    shown.page.locator("#dead-note", has_text=said).wait_for()


@both_sizes
def test_dead_letters_are_listed_with_the_time_that_their_queue_has(show: Show, size: tuple[int, int]) -> None:  # X4
    shown = show(REFUSED, size)
    enqueued = datetime.now(UTC) - timedelta(minutes=12, seconds=5)
    group = {"pair": "contoso", "reason": "NoDestination", "destination": None, "messages": 2, "says": "no x-ms-path"}
    groups = [{**group, "first_enqueued": enqueued.isoformat()}]
    answer = {"groups": groups, "is_complete": True, "unseen": {}, "replay": None}
    shown.page.route("**/dead-letters", lambda route: route.fulfill(json=answer))
    shown.page.get_by_role("button", name="Show reasons").click()
    line = shown.page.locator("#dead-list tr", has_text="NoDestination")
    assert re.search(r"\b1[2-9] min( \d+ s)? ago", line.inner_text())


@both_sizes
def test_a_command_can_be_copied(show: Show, size: tuple[int, int]) -> None:
    shown = show(STUCK, size)
    command = "syphon drain --give-up missing --destination refunds -c FILE"
    assert command in shown.page.locator(".problem code").all_inner_texts()
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.get_by_role("button", name=f"Copy the command {command}").click()
    shown.page.get_by_text("Copied").wait_for()
    assert shown.page.evaluate("navigator.clipboard.readText()") == command


def test_an_outage_is_shaded_in_the_chart_and_its_axes_have_numbers(show: Show) -> None:
    spans = Throughput(
        seconds=5,
        forwarded=[250, 0, 0, 0],
        dead_lettered=[0] * 4,
        backlog=[0, 90, 180, 180],
        unreachable=[False, True, True, True],
    )
    shown = show(OUTAGE.model_copy(update={"throughput": spans}), DESKTOP)
    assert shown.page.locator("#chart .away").count() == 2, "the last span is not over"
    assert shown.page.locator("#rate-ticks span").all_inner_texts() == ["100/s", "50/s", "0/s"]
    assert shown.page.locator("#backlog-ticks span").all_inner_texts() == ["200", "100", "0"]
    assert "0 forwarded/s, backlog 180, a namespace was unreachable" in shown.page.locator("#chart").inner_html()


def test_a_worker_that_does_not_answer_any_more_is_not_called_idle(show: Show) -> None:  # X7
    shown = show(status(pair()), DESKTOP)
    assert shown.page.locator("#state").inner_text() == "idle"
    shown.page.route("**/status", lambda route: route.fulfill(body="no status"))
    shown.page.locator("#state", has_text="no answer").wait_for()
    assert "Below is what it said last." in shown.page.locator("#headline").inner_text()


def test_a_replay_is_offered_only_where_it_is_accepted(show: Show) -> None:
    shown = show(REFUSED, DESKTOP)
    group = {"pair": "contoso", "reason": "NoDestination", "destination": None, "messages": 2, "says": ""}
    answer = {"groups": [{**group, "first_enqueued": None}], "is_complete": True, "unseen": {}, "replay": None}
    shown.page.route("**/dead-letters", lambda route: route.fulfill(json=answer | {"may_replay": False}))
    shown.page.get_by_role("button", name="Show reasons").click()
    shown.page.locator("#dead-note", has_text="set status.token").wait_for()
    assert shown.page.get_by_role("button", name="Replay NoDestination").count() == 0
    shown.page.unroute("**/dead-letters")
    shown.page.route("**/dead-letters", lambda route: route.fulfill(json=answer | {"may_replay": True}))
    shown.page.get_by_role("button", name="Show reasons").click()
    shown.page.get_by_role("button", name="Replay NoDestination").wait_for()
