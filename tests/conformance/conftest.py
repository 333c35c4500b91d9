"""One suite, two targets: the emulator in this process, or the namespaces of two connection strings (`make azure`)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings
from tests.conformance.comparison import Comparison, Report
from tests.conformance.target import VARIABLES, Entities, Namespace, Target
from tests.integration.emulator.conftest import now

REPORT = pytest.StashKey[Report]()
PREFIX = f"syphon-{uuid.uuid4().hex[:8]}-"
"""Begins the names of everything that this process creates."""


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    given = [os.environ.get(name) for name in VARIABLES]
    if given[0] and given[1]:
        target = Target(Namespace(given[0]), Namespace(given[1]))
        request.config.stash[REPORT] = Report(target)
        yield from _used(target)
    elif any(given):
        pytest.fail(f"{VARIABLES[0]} and {VARIABLES[1]} belong together: set both, or neither")
    else:
        settings = EmulatorSettings(
            namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")]
        )
        with BackgroundEmulator(settings, clock=now()) as emulator:
            here, there = (Namespace(emulator[name].connection_string) for name in ("contoso", "contoso-dr"))
            yield from _used(Target(here, there, emulator))


def _used(target: Target) -> Iterator[Target]:
    yield target
    for namespace in (target.primary, target.secondary):
        Entities(namespace, PREFIX).delete()
    target.close()


@pytest.fixture
def entities(target: Target) -> Iterator[Entities]:
    """Creates entities on the primary for one test."""
    made = Entities(target.primary, f"{PREFIX}{uuid.uuid4().hex[:6]}-")
    yield made
    made.delete_made()


@pytest.fixture
def behaviour(request: pytest.FixtureRequest, target: Target) -> Comparison:
    comparison = Comparison(request.node.name)
    report = request.config.stash.get(REPORT, None)
    if report is not None:
        report.comparisons.append(comparison)
    return comparison


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fails a test at its end with all the differences that it found."""
    result = yield
    comparison = getattr(item, "funcargs", {}).get("behaviour")
    if isinstance(comparison, Comparison):
        failure = comparison.failure(answers_count=REPORT not in item.config.stash)
        if failure is not None:
            raise Differs(failure)
    return result


class Differs(AssertionError):
    """The target does not do what the emulator does."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    outcome = yield
    report = item.config.stash.get(REPORT, None)
    if report is not None and "target" in getattr(item, "fixturenames", ()):
        if outcome.skipped:
            report.skipped.append((item.name, str(call.excinfo.value) if call.excinfo else ""))
        elif outcome.failed and call.excinfo is not None and not isinstance(call.excinfo.value, Differs):
            report.broken.append((item.name, f"{call.excinfo.typename}: {call.excinfo.value}"[:500]))
        elif outcome.passed and call.when == "call":
            report.passed += 1
    return outcome


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    report = config.stash.get(REPORT, None)
    if report is not None:
        terminalreporter.section("one suite, two targets")
        for line in report.lines():
            terminalreporter.write_line(line)
