"""What all tests share."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus._pyamqp.client import AMQPClient
from hypothesis import HealthCheck, settings

from tests.support.grouping import GroupScheduling, group_of
from tests.support.processes import hear_signals
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes depends on what else the machine does; all else stays as hypothesis has it here or there.
settings.register_profile("patient", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.register_profile("quick", settings(settings.get_profile("patient"), max_examples=20))
settings.load_profile("patient")


hear_signals()

# An existing archive of Spark's JVM halves each of the many starts; to make one is no work for a test.
os.environ.setdefault("SYPHON_JVM_ARCHIVE", "use")


SLOW_FIRST = ("spark", "datasource", "worker", "faults", "acceptance", "operations", "status", "sender", "ledger")
"""The folders whose tests start Spark and other processes. If these came last, one process would run them at the end
while the others have nothing to do."""
DATA_SOURCE = ("test_source_", "test_row_messages", "test_message_fields")
"""How the names of test modules begin that are about Spark's data source API."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="fewer examples: for the minute between two edits")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)  # a hook of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts slow folders first, and gives tests on Spark more time: its start may take minutes where others do the same.

    What only Spark 4 has is not tested on the oldest Spark: the data source, and tests with the marker.
    """
    items.sort(key=_place)
    is_old = int(version("pyspark").partition(".")[0]) < 4
    for item in items:
        if is_old and (item.get_closest_marker("spark4") or item.path.name.startswith(DATA_SOURCE)):
            item.add_marker(pytest.mark.skip(reason="needs Spark 4"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600))
            assert group_of(str(item.path.relative_to(ROOT))).startswith("on Spark"), f"{item.path}: see USES_SPARK"


def _place(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of a process: its start takes longer than most of them."""
    from syphon.config import PipelineSettings
    from syphon.spark.session import spark_session

    with spark_session(PipelineSettings(master="local[2]"), "syphon tests") as session:
        yield session


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node. Without it tests are skipped on a laptop, and fail on a build server."""
    found = shutil.which("node")
    if found is None and os.environ.get("CI"):
        pytest.fail("node is missing, and this is a build server: install nodejs and npm")
    if found is None:
        pytest.skip("node is missing: install nodejs and npm to run the JavaScript suite")
    return found


@pytest.fixture(scope="session", autouse=True)
def links_of_the_sdk_close_at_once() -> Iterator[None]:
    """A link of the SDK's has something beside it that looks each second whether half a minute of silence is over, and
    closing the link waits for the end of that second. No test is silent for so long, and hundreds of them close links.
    """

    async def nothing(client: object) -> None:
        """No test needs it."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AMQPClient, "_keep_alive", lambda client: None)  # noqa: ARG005
        patch.setattr(AMQPClientAsync, "_keep_alive_async", nothing)
        yield


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that is called within the test process sets up the logging for all of it: the next test has its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    before = {name: found.level for name, found in _loggers()}
    yield
    root.handlers[:] = [handler for handler in root.handlers if handler in handlers]
    root.setLevel(level)
    for name, found in _loggers():
        found.setLevel(before.get(name, logging.NOTSET))


def _loggers() -> list[tuple[str, logging.Logger]]:
    loggers = logging.Logger.manager.loggerDict
    return [(name, found) for name, found in loggers.items() if isinstance(found, logging.Logger)]
