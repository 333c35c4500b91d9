"""Spark Connect: drain, inspect and report as a client of a server, which has neither syphon nor our disks (X6)."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.connect_server import IS_IN_THE_PACKAGE, ConnectServer, connect_server
from tests.support.processes import DESTINATIONS, EmulatedPair, Running, aliased, descendants_of, emulated_pair
from tests.support.scripts import run_script
from tests.support.tools import ROOT
from tests.support.waiting import eventually

pytest.importorskip("grpc", reason="Spark Connect needs syphon-servicebus[connect]")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.nightly,
    pytest.mark.skipif(not IS_IN_THE_PACKAGE, reason="this Spark comes without a Connect server"),
]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


def config_on(pair: EmulatedPair, server: ConnectServer, **pipeline: Any) -> Path:
    return pair.config(pipeline={"master": server.url, **pipeline})


def key_of(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


@dataclass(frozen=True)
class Incident:
    """What the commands have answered, one after the other, on the server."""

    pair: EmulatedPair
    inspected: dict[str, Any]
    foreseen: dict[str, Any]
    drained: dict[str, Any]
    progress: str
    report: dict[str, Any]


@pytest.fixture(scope="module")
def incident(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    with emulated_pair(tmp_path_factory.mktemp("incident")) as pair:
        pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(60)])
        pair.put([aliased(60, "$nowhere")], index=1)
        config = str(config_on(pair, server))
        ran = []
        for command in (["inspect"], ["drain", "--dry-run"], ["drain", "--yes"], ["report"]):
            running = pair.start(*command, "-c", config, "--json")
            code, out = running.end()
            assert code == (0 if command == ["inspect"] else 1), running.said
            ran.append((json.loads(out), running.said))
        (inspected, _), (foreseen, _), (drained, progress), (report, _) = ran
        yield Incident(pair, inspected, foreseen, drained, progress, report)


def test_the_commands_work_on_a_server_that_the_settings_name(incident: Incident) -> None:  # X6
    assert sum(found["messages"] for found in incident.inspected["destinations"]) == 61
    assert (incident.foreseen["messages"], incident.foreseen["exit_code"]) == (61, 1)
    drained = incident.drained
    assert drained["verdict"] == "The backlog is empty: 60 forwarded; 1 dead-lettered."
    assert (drained["account"]["killed"], drained["account"]["unaccounted"], drained["ledger_error"]) == (0, 0, "")
    assert '"moved": 61' in incident.progress  # slots have reported to this process
    assert incident.pair.arrived(*DESTINATIONS) == Counter(f"m{number}" for number in range(60))
    assert incident.report["transfers"]["received"] == 61


def test_secrets_are_in_no_log_of_the_server(incident: Incident, server: ConnectServer) -> None:  # T11
    """The plan carries them to the server: there they are in its memory, and nowhere in what it writes down."""
    written = b"".join(file.read_bytes() for file in (server.log, *server.events.rglob("*")) if file.is_file())
    assert b"MapInArrow" in written  # the jobs of the incident are in it
    for secret in (key_of(incident.pair.primary), key_of(incident.pair.secondary)):
        assert secret.encode() not in written


def test_queries_are_refused_with_a_way_out(pair: EmulatedPair, server: ConnectServer) -> None:
    pair.put([aliased(1, "orders")])
    asked = pair.start("inspect", "-c", str(config_on(pair, server)), "--sql", "select * from backlog")
    code, _ = asked.end()
    assert code == 69
    assert "Queries on the backlog need a classic session" in asked.said


def test_a_ledger_that_connect_cannot_write_is_an_error_before_a_message_is_received(
    pair: EmulatedPair, server: ConnectServer
) -> None:
    pair.put([aliased(1, "orders")])
    drain = pair.drain(config=config_on(pair, server, ledger="abfss://ledger@contoso.dfs.core.windows.net/syphon"))
    code, _ = drain.end()
    assert code == 69
    assert "can write a ledger only to a path of this machine" in drain.said
    assert pair.in_backlog(0) == Counter(["m1"])


def test_a_server_that_is_not_there_is_an_error_at_once(pair: EmulatedPair) -> None:
    pair.put([aliased(1, "orders")])
    drain = pair.drain(config=pair.config(pipeline={"master": "sc://localhost:1/;user_id=me"}))
    code, _ = drain.end()
    assert code == 69
    assert "No Spark Connect server can be reached at sc://localhost:1: " in drain.said
    assert "Starting Spark on sc://localhost:1 …" in drain.said


def test_a_server_that_is_killed_ends_the_drain_with_one_line_and_nothing_is_lost(
    pair: EmulatedPair, server: ConnectServer, tmp_path: Path
) -> None:  # X6
    pair.put([aliased(number, "orders") for number in range(100)])
    with connect_server(tmp_path / "mortal") as mortal:
        drain = pair.drain("--rate", "10/s", "--json", config=config_on(pair, mortal))
        eventually(lambda: drain.progress().get("moved"), what=lambda: drain.said)
        workers = descendants_of(mortal.process.pid)
        mortal.kill()
        code, out = drain.end()
    assert code == 69, drain.said
    assert "The Spark Connect server is unreachable" in drain.said
    assert "Traceback" not in drain.said
    result = json.loads(out)
    assert result["account"]["forwarded"] > 0
    for pid in workers:  # a slot that outlives its server stops by itself
        eventually_gone(pid)
    drain = pair.drain(config=config_on(pair, server))
    assert drain.end()[0] == 0, drain.said
    assert set(pair.arrived("orders")) == {f"m{number}" for number in range(100)}


def eventually_gone(pid: int) -> None:
    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return bool(re.search(r"\) Z ", Path(f"/proc/{pid}/stat").read_text()))

    eventually(is_gone, what=f"process {pid} has ended")


FUNCTIONS = """
import json, sys
import syphon
from pyspark.sql import SparkSession

def place(batches):
    import pyarrow, syphon
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [syphon.__file__]})

spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
overview = syphon.inspect(sys.argv[1], spark)
foreseen = syphon.dry_run(sys.argv[1], spark)
first = syphon.drain(sys.argv[1], spark, limit=10)
second = syphon.drain(sys.argv[1])  # the active session
report = syphon.report(sys.argv[1], spark)
print(json.dumps([
    overview.messages, foreseen.messages, first.account.forwarded, second.verdict, report.verdict,
    spark.range(3).count(), type(spark).__module__,
    spark.range(0, 1, 1, 1).mapInArrow(place, "place string").first()[0],
]))
"""


def test_the_functions_work_on_a_remote_session_and_leave_it(pair: EmulatedPair, server: ConnectServer) -> None:  # X6
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(30)])
    check_functions(run_script(pair, "functions", FUNCTIONS, str(pair.config()), server.url))


def test_the_functions_work_with_a_server_that_pyspark_starts(pair: EmulatedPair) -> None:  # X6
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(30)])
    # With SPARK_TESTING the server takes any free port, and not always 15002.
    check_functions(run_script(pair, "functions", FUNCTIONS, str(pair.config()), "local[2]", SPARK_TESTING="1"))


def check_functions(process: Running) -> None:
    code, out = process.end()
    assert code == 0, process.said
    found = json.loads(out)
    assert found[:3] == [30, 30, 10]
    assert found[3] == "The backlog is empty: 20 forwarded."
    assert found[4] == "All 30 messages arrived. Every delivery is accounted for."
    assert found[5:7] == [3, "pyspark.sql.connect.session"]
    assert re.search(r"/syphon-[0-9a-f]{12}\.zip/syphon/__init__\.py$", found[7])  # tasks run the code of the client


CANCELLED = """
import dataclasses, json, sys
import syphon
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
spark.addTag("nightly")  # the drain's jobs run in other threads, and have it all the same

def cancel(progress):
    if progress.moved > 200:
        spark.interruptTag("nightly")

summary = syphon.drain(sys.argv[1], spark, rate="300/s", progress=cancel)
(queue,) = summary.queues
print(json.dumps([queue.state, queue.error, dataclasses.asdict(summary.account)]))
"""


def test_a_drain_whose_job_is_interrupted_by_a_tag_of_the_caller_stops_and_counts_every_message(
    server: ConnectServer, tmp_path: Path
) -> None:
    with emulated_pair(tmp_path, queues=1) as pair:
        pair.put([aliased(number, "orders") for number in range(3000)])
        process = run_script(pair, "cancelled", CANCELLED, str(pair.config()), server.url)
        code, out = process.end()
        assert code == 0, process.said
        state, error, account = json.loads(out)
        arrived = sum(pair.arrived("orders").values())
    assert (state, "was cancelled in Spark" in error) == ("stopped", True)
    assert account["forwarded"] <= arrived <= account["forwarded"] + account["unaccounted"]
    assert account["received"] == account["forwarded"] + account["left"] + account["unaccounted"]


REMOTE_LEDGER = """
import sys
import syphon
from pyspark.sql import SparkSession
from syphon.ledger import Ledger, SparkReader, query_report
from syphon.ledger.filesystems import ReadOnlyFiles

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
ledger = Ledger(spark, sys.argv[2])
ledger.__dict__["files"] = ReadOnlyFiles(lambda: spark, sys.argv[2])
print(query_report(SparkReader(ledger)).verdict)
"""


def test_a_ledger_that_only_the_server_reaches_is_read_by_it(incident: Incident, server: ConnectServer) -> None:
    """The server's disk is this one, so the test names a path of its own as one that only the server has."""
    ledger = (incident.pair.folder / "ledger").as_uri()
    process = run_script(incident.pair, "remote_ledger", REMOTE_LEDGER, server.url, ledger)
    code, out = process.end()
    assert (code, out.strip()) == (0, incident.report["verdict"]), process.said
    assert out.startswith("60 of 61 messages arrived.")


def test_ctrl_c_stops_a_drain_in_order(pair: EmulatedPair, server: ConnectServer) -> None:
    pair.put([aliased(number, "orders") for number in range(100)])
    drain = pair.drain("--rate", "10/s", "--json", config=config_on(pair, server))
    drain.until('"state": "moving"')
    code, out = drain.stop(signal.SIGINT)
    result = json.loads(out)
    assert code == 1, drain.said
    account = result["account"]
    assert (account["killed"], account["unaccounted"]) == (0, 0)
    assert result["remaining"] == 100 - account["forwarded"]


def test_the_code_of_the_documents_works_as_printed(pair: EmulatedPair, server: ConnectServer) -> None:
    section = (ROOT / "docs" / "clusters.md").read_text().partition("## Spark Connect\n")[2].partition("\n## ")[0]
    (printed,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert "sc://localhost:15002" in printed
    pair.put([aliased(number, "orders") for number in range(3)])
    pair.config("config.yaml")
    process = run_script(pair, "printed", printed.replace("sc://localhost:15002", server.url))
    assert process.end() == (0, "The backlog is empty: 3 forwarded.\n0\n"), process.said
