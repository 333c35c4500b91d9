"""A worker in a process of its own, on real Spark, as operators see it: status, metrics, page, commands, systemd.

To start one takes longer than all the questions: they share it, each with destinations of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syphon.status.metric_names import METRICS
from syphon.status.snapshot import BacklogQueueState, DestinationState, DestinationStatus, QueueStatus, WorkerStatus
from tests.support.processes import EmulatedPair, Running, aliased, emulated_pair
from tests.support.tools import ROOT, run, said, tool
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.timeout(300)]

TOKEN = "a-token-of-the-operator"
BODY = "body of"  # as emulated_pair.aliased makes them
EVIL = "<img src=x onerror=document.title='taken'>"
"""A destination with a hostile name: names come from messages."""
DESTINATIONS = ("orders", "news", "full", "held", "spare", "clicked", "drained", "weak", "syphon-canary")
FIRST = 770_000
"""Message ids that appear nowhere by chance."""
MANY = 900
"""Messages for a minute and a half at ten per second: time enough for a slow browser to show them on their way."""


class Manager:
    """A stand-in for systemd. It reads all the time, because the kernel keeps only ten datagrams."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[str] = []
        self.is_spoken_to = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        while said := self._socket.recv(4096):
            self.is_spoken_to.set()
            self.heard += said.decode().split("\n")

    def times(self, word: str) -> int:
        return self.heard.count(word)

    def catch_up(self) -> None:
        """Hears all that was said so far; `is_spoken_to` is about what comes after it."""
        self._say(b"caught up")
        eventually(lambda: "caught up" in self.heard)
        self.is_spoken_to.clear()

    def close(self) -> None:
        self._say(b"")  # the end
        self._listening.join()
        self._socket.close()

    def _say(self, words: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.sendto(words, str(self.path))


@dataclass
class Stage:
    site: EmulatedPair
    worker: Running
    manager: Manager
    url: str

    def ask(self, path: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self) -> WorkerStatus:
        return WorkerStatus.model_validate_json(self.ask("/status")[1])

    def queue(self, index: int) -> QueueStatus:
        return self.status().pairs[0].queues[index]

    def destination(self, path: str) -> DestinationStatus | None:
        return next((found for found in self.status().pairs[0].destinations if found.path == path), None)

    def state_of(self, path: str) -> DestinationState | None:
        found = self.destination(path)
        return found.state if found is not None else None

    def forwarded(self, path: str) -> int:
        found = self.destination(path)
        return found.forwarded if found is not None else 0

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another syphon, in a terminal beside it."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SYPHON_STATUS_TOKEN": TOKEN}
        return subprocess.run(
            [sys.executable, "-m", "syphon", words[0], "--url", self.url, *words[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def reload(self, **pair: Any) -> None:
        """Other settings of the pair, and a signal to take them over."""
        self.site.config(status={"listen": "127.0.0.1:0", "token": TOKEN}, pair=pair)
        before = self.worker.said.count("reloaded ")
        self.worker.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.worker.said.count("reloaded ") > before, what=lambda: self.worker.said)

    def put(self, start: int, count: int, path: str, index: int = 0) -> None:
        self.site.put([aliased(FIRST + start + number, path) for number in range(count)], index)

    def has_arrived(self, path: str, count: int) -> bool:
        return len(self.site.arrived(path)) == count


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with closing(Manager(folder / "notify")) as manager, emulated_pair(folder, destinations=DESTINATIONS) as site:
        site.control("contoso", "PUT", "quota", {"entity": "full", "bytes": 0})
        given_up = {"destinations": {"permanent_errors": ["entity-not-found"]}, "canary": {"every": "1d"}}
        config = site.config(status={"listen": "127.0.0.1:0", "token": TOKEN}, pair=given_up)
        environment = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1000000"}
        worker = site.start("run", "-c", str(config), environment=environment)
        url = worker.until("status on").rpartition(" ")[2]
        worker.until("listening on")
        found = Stage(site, worker, manager, url)
        found.put(0, 30, "orders")
        found.put(100, 20, "news", 1)
        found.put(200, 5, "missing")
        found.put(300, 7, "full", 1)
        found.put(400, 1, EVIL)
        site.put([aliased(FIRST + 500, "")])
        eventually(lambda: found.has_arrived("orders", 30), what=lambda: worker.said)
        eventually(lambda: found.has_arrived("news", 20), what=lambda: worker.said)
        worker.until("destination full is unavailable")
        eventually(lambda: found.forwarded("orders") == 30, what=lambda: found.ask("/status"))
        eventually(lambda: found.forwarded("news") == 20, what=lambda: found.ask("/status"))
        eventually(lambda: found.status().totals.dead_lettered == 7, what=lambda: found.ask("/status"))
        eventually(lambda: found.state_of("full") is DestinationState.BACKING_OFF, what=lambda: found.ask("/status"))
        yield found


# --- status and metrics ----------------------------------------------------------------------------------------------


def test_status_shows_the_work_of_tasks_by_queue_and_by_destination(stage: Stage) -> None:  # D7
    status = stage.status()
    (pair,) = status.pairs
    assert (status.state, status.not_ready) == ("working", [])
    assert pair.primary.connected
    assert pair.secondary.connected
    orders, news, full = (stage.destination(path) for path in ("orders", "news", "full"))
    assert orders is not None
    assert news is not None
    assert full is not None
    assert (orders.forwarded, news.forwarded, full.forwarded) == (30, 20, 0)
    assert full.left <= 7
    assert full.since is not None
    assert "resource-limit-exceeded" in (full.reason or "")
    assert pair.totals.forwarded == sum(queue.totals.forwarded for queue in pair.queues) >= 50
    assert pair.queues[1].oldest is not None
    assert sum(status.throughput.forwarded) == status.totals.forwarded
    eventually(lambda: any("destination full is unavailable" in event.text for event in stage.status().events))


def test_the_worker_exports_exactly_the_metrics_of_the_list(stage: Stage) -> None:
    # the namespace's own count comes a few seconds after there was something to count
    eventually(lambda: "syphon_backlog_messages{" in stage.ask("/metrics")[1])
    text = stage.ask("/metrics")[1]
    known = {metric.prometheus.removesuffix("_total"): metric for metric in METRICS}
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) | {"syphon_rate_limit"} == set(known)  # nothing limits this worker now
    for name, family in families.items():
        assert family.type == known[name].kind.value
        for sample in family.samples:
            assert set(sample.labels) - {"le"} <= set(known[name].prometheus_labels), sample
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [metric.name for metric in METRICS if f"`{metric.prometheus}`" not in page] == []


def test_promtool_has_no_objection_to_the_workers_metrics(stage: Stage) -> None:
    checked = run("promtool", "check", "metrics", given=stage.ask("/metrics")[1])
    assert (checked.returncode, said(checked)) == (0, "")


def samples_of(stage: Stage) -> dict[tuple[str, ...], float]:
    """Each number of the metrics, by its name and the values of its labels."""
    samples: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(stage.ask("/metrics")[1]):
        for sample in family.samples:
            words = {value for label, value in sample.labels.items() if label not in ("pair", "server_address")}
            samples[sample.name, *sorted(words)] = sample.value
    return samples


def test_metrics_count_what_happened(stage: Stage) -> None:
    queue = "contoso/x-servicebus-transfer/0"
    # reasons may come with the report after the one that has the count
    eventually(lambda: ("syphon_messages_dead_lettered_total", "NoDestination", queue) in samples_of(stage))
    samples = samples_of(stage)
    assert samples["syphon_messages_forwarded_total", "orders"] == 30
    assert samples["syphon_messages_dead_lettered_total", "DestinationMissing", queue] == 6  # EVIL is missing as well
    assert 0 < samples["syphon_destination_waiting_messages", "DestinationFull", "full"] <= 7
    assert samples["syphon_messages_dead_lettered_total", "NoDestination", queue] == 1
    assert samples["syphon_destination_state", "backing_off", "full"] == 1
    assert samples["syphon_destination_state", "available", "full"] == 0
    assert samples["syphon_destination_backing_off_seconds", "full"] > 0
    assert samples["syphon_backlog_age_seconds", "contoso/x-servicebus-transfer/1"] > 0
    processed = samples["messaging_process_duration_seconds_count", queue, "process", "servicebus"]
    assert processed >= 37
    assert samples["messaging_client_operation_duration_seconds_count", "send", "servicebus"] > 0


def test_no_secret_no_body_and_no_message_id_is_seen_anywhere(stage: Stage) -> None:
    key = re.findall(r"SharedAccessKey=([^;]+)", stage.site.primary)[0]
    texts = [stage.ask(path)[1] for path in ("/", "/status", "/metrics", "/healthz", "/readyz")]
    texts += [stage.worker.said, stage.command("status").stdout]
    for hidden in (key, TOKEN, BODY, f"m{FIRST}"[:4]):
        assert not [text[:200] for text in texts if hidden in text], hidden


def test_a_second_worker_on_the_same_port_says_so_and_ends_with_69(stage: Stage) -> None:
    listen = stage.url.removeprefix("http://")
    config = stage.site.config("second.yaml", status={"listen": listen})
    second = stage.site.start("run", "-c", str(config))
    code, _ = second.end()
    assert code == 69
    assert f"The status server cannot listen on {listen}" in second.said
    assert "starting Spark" not in second.said


# --- commands --------------------------------------------------------------------------------------------------------


def test_the_status_command_shows_the_same_in_a_terminal(stage: Stage) -> None:
    shown = stage.command("status")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"primary +127\.0\.0\.1:\d+ +connected for", shown.stdout)
    assert re.search(r"full +backing off", shown.stdout)
    as_json = stage.command("status", "--json")
    assert WorkerStatus.model_validate_json(as_json.stdout).version == stage.status().version


def test_without_the_token_a_command_says_what_is_missing(stage: Stage) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "syphon", "status", "--url", stage.url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert refused.returncode == 77
    assert "SYPHON_STATUS_TOKEN" in refused.stderr


def test_a_destination_that_is_paused_gets_nothing_until_it_is_resumed_and_the_others_do(stage: Stage) -> None:  # S3
    paused = stage.command("pause", "--destination", "Held")
    assert (paused.returncode, paused.stdout) == (0, "paused: destination held of contoso\n")
    stage.put(1000, 3, "held")
    stage.put(1100, 3, "spare")
    eventually(lambda: stage.has_arrived("spare", 3), what=lambda: stage.worker.said)
    eventually(lambda: (found := stage.destination("held")) is not None and found.left == 3)
    assert stage.state_of("held") is DestinationState.PAUSED
    in_state = re.findall(r"syphon_destination_state\{(.*)\} 1\.0", stage.ask("/metrics")[1])
    assert [labels for labels in in_state if '"held"' in labels and '"paused"' in labels]
    assert not stage.site.arrived("held")
    state = json.loads((stage.site.folder / "syphon-state.json").read_text())
    assert state == {"paused": [{"pair": "contoso", "destination": "held"}]}
    resumed = stage.command("resume", "--destination", "held")
    assert (resumed.returncode, resumed.stdout) == (0, "Nothing is paused.\n")
    eventually(lambda: stage.has_arrived("held", 3), what=lambda: stage.worker.said)


def test_a_queue_that_is_paused_keeps_its_messages_and_goes_on_when_it_is_resumed(stage: Stage) -> None:
    before = len(stage.site.arrived("orders"))
    assert stage.command("pause", "--queue", "0").returncode == 0
    # a task that is still at work hears of it when it reports next
    eventually(lambda: (queue := stage.queue(0)).state is BacklogQueueState.PAUSED and not queue.slots)
    stage.put(1200, 4, "orders", 0)
    stage.put(1300, 2, "orders", 1)
    eventually(lambda: stage.has_arrived("orders", before + 2), what=lambda: stage.worker.said)
    assert len(stage.site.in_backlog(0)) == 4
    assert stage.command("resume").stdout == "Nothing is paused.\n"
    eventually(lambda: stage.has_arrived("orders", before + 6), what=lambda: stage.worker.said)


def test_a_probe_of_the_canary_passes_and_is_seen_in_status_metrics_and_by_the_command(stage: Stage) -> None:  # X7
    eventually(lambda: (found := stage.status().pairs[0].canary) is not None and found.arrived == 1)
    canary = stage.status().pairs[0].canary
    assert canary is not None
    assert canary.last_seconds is not None
    assert (canary.lost, canary.failed, canary.is_lost) == (0, 0, False)
    samples = samples_of(stage)
    assert samples["syphon_canary_probes_total", "arrived"] == 1
    assert samples["syphon_canary_latency_seconds",] == canary.last_seconds
    sent = stage.site.start("canary", "-c", str(stage.site.folder / "config.yaml"), "--queue", "1", "--json")
    code, said = sent.end()
    assert (code, json.loads(said)["probes"][0]["error"]) == (0, None), said
    assert stage.has_arrived("syphon-canary", 2)  # until they expire: probes are not received


def fill(stage: Stage, start: int, count: int) -> datetime:
    """Makes `weak` full for some messages, and empties it again. Returns when the worker will retry it by itself."""
    stage.site.control("contoso", "PUT", "quota", {"entity": "weak", "bytes": 0})
    stage.put(start, count, "weak", 1)
    eventually(lambda: stage.state_of("weak") is DestinationState.BACKING_OFF, what=lambda: stage.ask("/status"))
    stage.site.control("contoso", "PUT", "quota", {"entity": "weak", "bytes": 1_000_000_000})
    found = stage.destination("weak")
    assert found is not None
    assert found.next_attempt is not None
    return found.next_attempt


def test_a_destination_is_retried_at_once_when_the_operator_asks(stage: Stage) -> None:  # S9
    next_attempt = fill(stage, 1600, 3)
    retried = stage.command("retry", "Weak")
    assert (retried.returncode, retried.stdout) == (0, "Retrying weak of contoso.\n"), retried.stderr
    eventually(lambda: stage.has_arrived("weak", 3), what=lambda: stage.worker.said)
    assert datetime.now(UTC) < next_attempt
    nothing = stage.command("retry", "orders")
    assert (nothing.returncode, nothing.stdout) == (1, "orders is not backing off: there is nothing to retry.\n")
    assert stage.command("retry", "--pair", "other").returncode == 2


def test_the_rate_of_a_worker_changes_while_it_runs(stage: Stage) -> None:  # D7
    assert stage.command("rate").stdout == "contoso: as fast as the service accepts\n"
    assert stage.command("rate", "25/s").stdout == "contoso: at most 25 messages per second\n"
    eventually(lambda: stage.status().pairs[0].rate_limit == 25)
    assert stage.status().pairs[0].rate_limit_set_by == "operator"
    assert stage.command("rate", "auto", "--pair", "contoso").stdout == "contoso: as fast as the service accepts\n"
    eventually(lambda: stage.status().pairs[0].rate_limit is None)
    wrong = stage.command("rate", "fast")
    assert (wrong.returncode, "'fast' is not a rate: use 500, 500/s or auto." in wrong.stderr) == (2, True)


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(stage: Stage) -> Iterator[Page]:
    """The page in a real browser, with the lines of its console."""
    from playwright.sync_api import sync_playwright

    chromium = tool("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=120_000)
        opened = browser.new_page(http_credentials={"username": "operator", "password": TOKEN})
        opened.set_default_timeout(60_000)
        problems: list[str] = []
        opened.on("console", lambda message: problems.append(message.text))
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.goto(stage.url)
        yield opened
        assert [problem for problem in problems if "net::ERR_" not in problem] == []
        browser.close()


def row(page: Page, name: str) -> Any:
    return page.locator("tr", has=page.locator("td.name", has_text=re.compile(f"^{re.escape(name)}$")))


def test_the_page_shows_what_is_stuck_and_names_from_messages_as_text(stage: Stage, page: Page) -> None:
    row(page, "full").get_by_text("backing off", exact=True).wait_for()
    row(page, EVIL).wait_for()
    assert page.locator("img").count() == 0
    assert page.title() == "syphon"
    assert "at most" in (page.locator("#chart").get_attribute("aria-label") or "")
    assert page.locator("button:not([aria-label])").count() == 0


def test_a_button_of_the_page_pauses_and_resumes_by_keyboard_and_keeps_the_focus(stage: Stage, page: Page) -> None:
    stage.put(1400, 1, "clicked")
    button = row(page, "clicked").get_by_role("button")
    button.wait_for()
    button.focus()
    for state, next_word in (("paused", "Resume clicked"), ("available", "Pause clicked")):
        page.keyboard.press("Enter")
        row(page, "clicked").get_by_text(state, exact=True).wait_for()
        word, _, name = next_word.partition(" ")
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused == f"{word} destination {name}"
    assert stage.status().paused == []


def test_a_button_of_the_page_retries_a_destination_at_once(stage: Stage, page: Page) -> None:
    before = len(stage.site.arrived("weak"))
    next_attempt = fill(stage, 1650, 2)
    button = row(page, "weak").get_by_role("button", name="Retry destination weak now")
    button.click()
    eventually(lambda: stage.has_arrived("weak", before + 2), what=lambda: stage.worker.said)
    assert datetime.now(UTC) < next_attempt
    button.wait_for(state="hidden")


def test_an_outage_shows_on_the_page_and_so_does_the_drain_after_it_and_health_stays_green(
    stage: Stage, page: Page
) -> None:  # C3, X2
    stage.reload(rate=10)
    stage.site.control("contoso", "PUT", "outage", {"kind": "refuse"})
    try:
        stage.put(1500, MANY, "drained")
        eventually(lambda: stage.ask("/readyz")[0] == 503 and "refused" in stage.ask("/readyz")[1])
        assert stage.ask("/readyz")[1].startswith("contoso: primary 127.0.0.1:")
        assert stage.ask("/healthz") == (200, "ok\n")
        page.get_by_text("unreachable", exact=True).wait_for()
        problem = page.locator(".problem.critical", has_text="the primary 127.0.0.1:")
        problem.get_by_text("No messages are lost").wait_for()
        page.locator("#state", has_text="blocked").wait_for()
        row(page, "orders").get_by_text("unknown", exact=True).wait_for()
    finally:
        stage.site.control("contoso", "DELETE", "outage")
    eventually(lambda: stage.ask("/readyz") == (200, "ok\n"))
    page.get_by_text("unreachable", exact=True).wait_for(state="detached")
    queue, drained = row(page, stage.site.backlog(0)), row(page, "drained")
    page.locator("summary", has_text="backlog queues").click()
    queue.get_by_text("working", exact=True).wait_for()
    eventually(lambda: 0 < shown(drained, "Forwarded") < MANY)
    eventually(lambda: shown(queue, "Per second") > 0)
    eventually(lambda: 0 < shown(queue, "Waiting") <= MANY)
    page.get_by_text("limited to 10 per second").wait_for()
    page.get_by_text(re.compile("≈ .* (s|min)")).wait_for()  # how long it will take
    stage.reload()
    eventually(lambda: shown(drained, "Forwarded") == MANY)
    eventually(lambda: shown(queue, "Waiting") == 0)
    assert drained.locator("td[data-label=Waiting]").text_content() == "–"
    queue.get_by_text("listening", exact=True).wait_for()
    assert stage.has_arrived("drained", MANY)


def shown(line: Any, column: str) -> int:
    """A number in a row of the page."""
    text = line.locator(f"td[data-label='{column}']").text_content() or ""
    return int(text.replace(",", "").strip("≥ ")) if text and text != "–" else 0


def test_dead_letters_are_listed_on_the_page_and_put_back_after_a_confirmation(stage: Stage, page: Page) -> None:  # X4
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Show reasons").click()
    line = page.locator("#dead-list tr", has_text="NoDestination")
    assert "x-ms-path" in (line.text_content() or "")
    line.get_by_role("button", name="Replay").click()
    page.locator("#dead-note", has_text="Replayed 1 of 1.").wait_for()  # the worker will dead-letter it again


def test_the_page_does_not_show_an_answer_older_than_the_last_one(stage: Stage, page: Page) -> None:
    status = json.loads(stage.ask("/status")[1])
    asked: list[Route] = []

    def ask(times: int) -> None:
        page.evaluate("void look()")
        eventually(lambda: page.title() and len(asked) == times)  # any call: what has come is heard of within one

    # From now on the page asks only when the test says so.
    page.evaluate("clearTimeout(timer); setTimeout = () => 0; AbortSignal.timeout = () => undefined; look()")
    page.route("**/status", lambda route: asked.append(route))
    ask(1)
    ask(2)
    first, second = asked
    second.fulfill(json={**status, "at": "2026-01-01T12:00:02Z"})
    page.locator("#live", has_text=":00:02").wait_for()
    first.fulfill(json={**status, "at": "2026-01-01T12:00:01Z"})
    page.evaluate("fetch('/healthz').then(answer => answer.text())")  # another answer, after that one
    assert ":00:02" in (page.locator("#live").text_content() or "")
    page.unroute("**/status")
    page.reload()


def test_the_page_shows_that_a_worker_answers_but_its_status_is_old(stage: Stage, page: Page) -> None:
    status = stage.ask("/status")[1]
    page.clock.install()
    page.route("**/status", lambda route: route.fulfill(body=status, content_type="application/json"))
    page.goto(stage.url)
    page.get_by_text("live, ").wait_for()
    page.clock.run_for(20_000)
    page.get_by_text("stale since ").wait_for()
    page.unroute("**/status")
    page.clock.run_for(5_000)
    page.get_by_text("live, ").wait_for()


# --- systemd ---------------------------------------------------------------------------------------------------------


def test_the_worker_notifies_systemd_once_that_it_is_ready_and_sends_its_status(stage: Stage) -> None:
    assert stage.manager.times("READY=1") == 1
    assert any(re.fullmatch(r"STATUS=[\d,]+ forwarded, .*", word) for word in stage.manager.heard)


def test_a_worker_that_hangs_does_not_notify_the_watchdog(stage: Stage) -> None:
    pid, manager = stage.worker.process.pid, stage.manager
    eventually(lambda: manager.times("WATCHDOG=1"))
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        manager.catch_up()
        fed = manager.times("WATCHDOG=1")
        assert not manager.is_spoken_to.wait(2.5)  # five times as long as between two feedings
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: manager.times("WATCHDOG=1") > fed)


def test_a_worker_notifies_its_end_and_the_next_one_keeps_the_pauses(stage: Stage) -> None:
    # the last of all: it ends the worker that the others ask
    assert stage.command("pause", "--pair", "contoso").stdout == "paused: all of contoso\n"
    code, _ = stage.worker.stop()
    assert code == 0, stage.worker.said
    eventually(lambda: stage.manager.times("STOPPING=1") == 1)
    following = stage.site.start("run", "-c", str(stage.site.folder / "config.yaml"))
    following.until("pair contoso has been paused since before the start")
    stage.url = following.until("status on").rpartition(" ")[2]
    status = stage.status()  # at once: Spark takes a few seconds
    assert ([pause.pair for pause in status.paused], status.state) == (["contoso"], "starting")
