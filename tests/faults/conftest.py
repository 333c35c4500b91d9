"""Prints the verdict of each scenario at the end of the run."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.stats.get("passed", [])
    verdicts = sorted(text for report in passed for name, text in report.user_properties if name == "verdict")
    if verdicts:
        terminalreporter.section("what the checker found")
        for verdict in verdicts:
            terminalreporter.write_line(verdict)
