"""The suite on another target, as somebody with namespaces on Azure runs it: through two variables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.target import VARIABLES
from tests.support.plain_http import PlainHttp
from tests.support.tools import ROOT

SUITE = ("test_access.py", "test_management.py", "test_messages.py", "test_sessions.py", "test_transactions.py")


@pytest.fixture(scope="module")
def connection_strings() -> Iterator[list[str]]:
    """Those of an emulator in a process of its own."""
    command = [sys.executable, "-c", "from syphon.cli import main; main()", "emulator", "--json"]
    command += ["--namespace", "north:0:0", "--namespace", "south:0:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield [namespace["connection_string"] for namespace in ready["namespaces"]]
        finally:
            process.terminate()


def run_suite(connection_strings: list[str], *tests: str) -> subprocess.CompletedProcess[str]:
    variables = dict(zip(VARIABLES, connection_strings, strict=True))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=240
    )


def left(connection_string: str) -> list[str]:
    with ServiceBusAdministrationClient.from_connection_string(connection_string, transport=PlainHttp()) as admin:
        return [str(found["name"]) for found in (*admin.list_queues(), *admin.list_topics())]


@pytest.mark.timeout(300)
def test_the_suite_runs_on_another_emulator_and_finds_nothing_that_differs(connection_strings: list[str]) -> None:
    suite = [f"tests/conformance/{name}" for name in (*SUITE, "test_unknown.py")]
    ended = run_suite(connection_strings, *suite)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "What differs: nothing" in ended.stdout
    assert re.search(
        r"skipped: test_a_transaction_times_out: .*121 seconds where the clock cannot be moved", ended.stdout
    )
    assert re.search(r"skipped: test_a_throttled_namespace_says_so: .*the emulator's own clock or faults", ended.stdout)
    answers = ended.stdout.partition("What was not known: ")[2]
    assert answers.count("    the other emulator: ") == answers.count("    emulator: the same") == 15
    assert [left(each) for each in connection_strings] == [[], []]


def test_differences_are_reported_and_a_broken_test_leaves_nothing_behind(
    tmp_path: Path, connection_strings: list[str]
) -> None:
    broken = tmp_path / "test_made.py"
    broken.write_text(
        "async def test_made(target, entities, behaviour):\n"
        "    behaviour.same('the first', 1, 2)\n"
        "    behaviour.same('the second', 'a', 'b')\n"
        "async def test_torn(target, entities, behaviour):\n"
        "    entities.queue()\n"
        "    raise OSError('the network is gone')\n"
    )
    options = ("-p", "tests.conformance.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT))
    ended = run_suite(connection_strings, *options, str(broken))
    assert ended.returncode == 1
    report = ended.stdout.partition("one suite, two targets")[2]
    for line in ("What differs: 3", "test_made: the first", "test_made: the second", "test_torn: OSError: the network"):
        assert line in report, report
    assert [left(each) for each in connection_strings] == [[], []]
