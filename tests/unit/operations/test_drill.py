"""A drill restores its entity in every ending, and counts what it has seen. Without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from syphon.control import Account
from syphon.model import ExitCode, SyphonError
from syphon.operations.drain_summary import DrainSummary
from syphon.operations.drill import Drill, DrillRefused
from syphon.servicebus import AllowedUse

LASTS = 60.0


class Scene:
    """An entity, its backlog, and a clock."""

    def __init__(self, arrivals: list[int] | None = None, state: AllowedUse | None = AllowedUse.ACTIVE) -> None:
        self.now = 1_000.0
        self.current = state
        self.changes: list[AllowedUse] = []
        self.failing: list[AllowedUse] = []
        """Changes that fail once, in order."""
        self.failure: Exception = SyphonError("the namespace is busy.")
        self.arrivals = arrivals or []
        """How many messages are in the backlog at each look while sending is disabled."""
        self.backlog = 0
        self.dead_letters = 3
        self.on_look: Callable[[], None] = lambda: None
        self.said: list[str] = []
        self.drill = Drill(
            "contoso",
            "orders",
            LASTS,
            switch=self,
            backlog=self.count,
            dead_letters=lambda: self.dead_letters,
            drain=self.drain,
            say=self.said.append,
            rest=self.rest,
            now=lambda: self.now,
        )

    def state(self) -> AllowedUse | None:
        return self.current

    def set(self, state: AllowedUse) -> None:
        if self.failing and self.failing[0] is state:
            del self.failing[0]
            raise self.failure
        self.current = state
        self.changes.append(state)

    def count(self) -> int:
        self.on_look()
        if self.current is AllowedUse.SEND_DISABLED and self.arrivals:
            self.backlog = self.arrivals.pop(0)
        return self.backlog

    def drain(self) -> DrainSummary:
        account = Account(received=self.backlog, forwarded=self.backlog)
        self.backlog = 0
        verdict = f"The backlog is empty: {account.forwarded} forwarded."
        return DrainSummary(verdict, ExitCode.OK, 1.0, account, 0, 0, 0, (), (), (), "ledger", "")

    def rest(self, seconds: float) -> None:
        self.now += max(seconds, 0.1)


def test_it_disables_watches_restores_and_drains() -> None:
    scene = Scene([0, 2, 5])
    report = scene.drill.run()
    assert scene.changes == [AllowedUse.SEND_DISABLED, AllowedUse.ACTIVE]
    assert (report.failed_over, report.forwarded, report.by_others, report.remaining) == (5, 5, 0, 0)
    assert report.first_seconds == 2.0
    assert (report.exit_code, report.verdict) == (
        ExitCode.OK,
        "5 messages failed over; 5 of them were forwarded by this drain, 0 left in the backlog.",
    )
    assert scene.said[0] == "Disabled sending to 'orders'."
    page = report.as_html()
    assert "5 messages failed over" in page
    assert "<script" not in page


def test_what_a_worker_beside_it_dead_letters_is_no_success() -> None:
    scene = Scene([5, 2])

    def dead_letter() -> None:
        if scene.current is AllowedUse.ACTIVE and scene.drill.report.failed_over:
            scene.dead_letters = 5

    scene.on_look = dead_letter
    report = scene.drill.run()
    assert (report.failed_over, report.forwarded, report.dead_lettered, report.by_others) == (5, 2, 2, 1)
    assert report.exit_code is ExitCode.LEFT


def test_a_drill_does_not_say_that_what_vanished_was_forwarded() -> None:
    report = Scene([5, 2]).drill.run()
    assert (report.by_others, report.dead_lettered, report.exit_code) == (3, 0, ExitCode.OK)
    assert "3 left the backlog otherwise (`syphon report` lists" in report.verdict
    assert "left the backlog otherwise" in report.as_html()


def test_a_drill_in_which_nothing_fails_over_is_no_success() -> None:
    report = Scene().drill.run()
    assert report.exit_code is ExitCode.LEFT
    assert "no sender failed over, or none was sending" in report.verdict


@pytest.mark.parametrize("look", [2, 3])
def test_a_drill_that_is_stopped_enables_its_entity_at_once(look: int) -> None:
    scene = Scene([1, 2, 3])
    looks = iter(range(100))
    scene.on_look = lambda: scene.drill.stop() if next(looks) == look else None
    report = scene.drill.run()
    assert scene.changes == [AllowedUse.SEND_DISABLED, AllowedUse.ACTIVE]
    assert scene.now < 1_000.0 + LASTS
    assert (report.exit_code, report.verdict) == (
        ExitCode.LEFT,
        "The drill ended early: it was stopped. 'orders' was restored.",
    )


def test_an_error_while_it_watches_enables_the_entity_and_insists() -> None:
    scene = Scene([1])
    scene.failing = [AllowedUse.ACTIVE, AllowedUse.ACTIVE]

    def fail() -> None:
        if scene.current is AllowedUse.SEND_DISABLED:
            raise SyphonError("the secondary is gone.")

    scene.on_look = fail
    report = scene.drill.run()
    assert scene.changes[-1] is AllowedUse.ACTIVE
    assert (report.is_restored, report.exit_code) == (True, ExitCode.LEFT)


def test_a_change_whose_answer_was_lost_is_undone() -> None:
    scene = Scene()
    scene.failing = [AllowedUse.SEND_DISABLED]
    report = scene.drill.run()
    assert scene.changes == [AllowedUse.ACTIVE]
    assert "the namespace is busy" in report.verdict


def test_an_entity_that_cannot_be_enabled_is_named_loudly() -> None:
    scene = Scene()
    scene.failing = [AllowedUse.ACTIVE] * 10_000
    report = scene.drill.run()
    assert report.exit_code is ExitCode.FAULTED
    assert "'orders' is still disabled" in report.verdict
    assert "`syphon drill --pair contoso --entity orders --restore`" in report.verdict


@pytest.mark.parametrize("attempts", [2, 10_000])
def test_an_error_of_any_kind_does_not_keep_it_from_enabling_its_entity(attempts: int) -> None:
    scene = Scene()
    scene.failing, scene.failure = [AllowedUse.ACTIVE] * attempts, FileNotFoundError(2, "No such file", "ca.pem")
    report = scene.drill.run()
    if attempts == 2:
        assert (report.is_restored, scene.current) == (True, AllowedUse.ACTIVE)
    else:
        assert report.exit_code is ExitCode.FAULTED
        assert "ca.pem" in scene.said[-1]
        assert "--restore" in scene.said[-1]


def test_an_error_of_any_kind_while_it_watches_is_reported_and_the_entity_enabled() -> None:
    scene = Scene([1])

    def fail() -> None:
        if scene.current is AllowedUse.SEND_DISABLED:
            raise FileNotFoundError(2, "No such file", "ca.pem")

    scene.on_look = fail
    report = scene.drill.run()
    assert (report.is_restored, report.exit_code) == (True, ExitCode.LEFT)
    assert "ca.pem" in report.verdict


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (Scene(state=None), "does not exist"),
        (Scene(state=AllowedUse.DISABLED), "is Disabled: a drill begins and ends with an active entity"),
    ],
)
def test_nothing_is_changed_where_a_drill_would_prove_nothing(scene: Scene, words: str) -> None:
    with pytest.raises(DrillRefused, match=words):
        scene.drill.run()
    assert scene.changes == []


def test_a_backlog_with_messages_of_the_entity_is_drained_first() -> None:
    scene = Scene()
    scene.backlog = 7
    with pytest.raises(DrillRefused, match="7 messages for 'orders' are in the backlog already: drain them first"):
        scene.drill.run()
    assert scene.changes == []
    assert cast(object, scene.drill.report.disabled_at) is None
