"""docs/spark.md works as printed, in a session of its own; and no secret is in its plans, logs or output (X6)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from syphon.datasource.backlog_frames import BACKLOG_SCHEMA
from syphon.datasource.columns import COLUMNS
from syphon.datasource.source_options import Behaviour
from syphon.emulator import QueueDescription
from syphon.emulator.broker.message import BrokeredMessage
from tests.support.quick_java import quick_java
from tests.support.spark_source import KEY, SourceBus, message, source_bus
from tests.support.tools import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text()
OURS = PAGE.partition("## Drain and inspect from Python")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", OURS, re.DOTALL)
BACKLOG = "contoso/x-servicebus-transfer/0"
FRAME = """
import contextlib, io, json, os, runpy, sys, traceback, urllib.request
from pydantic import SecretStr
from syphon.config import PipelineSettings
from syphon.datasource import ServiceBusDataSource
from syphon.spark import spark_session

settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:" + os.path.abspath("events"),
            "spark.eventLog.compress": "false", "spark.ui.enabled": "true", "spark.ui.port": "0"}
pipeline = PipelineSettings(master="local[2]", spark={key: SecretStr(value) for key, value in settings.items()})

def show(frame):
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    execution = frame._jdf.queryExecution()
    print(execution.toString(), frame, repr(frame), frame.schema.json())
    if not frame.isStreaming:
        for plan in (execution.logical(), execution.analyzed(), execution.optimizedPlan(), execution.executedPlan()):
            print(plan.toJSON())

def fails(what):
    try:
        what()
    except Exception:
        print("error:", traceback.format_exc())
    else:
        raise AssertionError("this should fail")

def show_pages(url):
    def page(path):
        return urllib.request.urlopen(url + path, timeout=60).read().decode(errors="replace")
    application = "/api/v1/applications/" + json.loads(page("/api/v1/applications"))[0]["id"]
    queries = json.loads(page(application + "/sql?details=true&length=1000"))
    paths = ["environment", "jobs", "stages?details=true", "storage/rdd", "sql?details=true&length=1000"]
    for path in [application + "/" + path for path in paths] + ["/environment/", "/SQL/", "/StreamingQuery/"]:
        print(path, page(path))
    print(page("/SQL/execution/?id=" + str(queries[-1]["id"])), "pages:", len(queries))

with spark_session(pipeline) as spark:
    for block in BLOCKS:
        print("##", block)
        exec(block, globals())
    for frame in (orders, dead, new_messages):
        show(frame)
    query.explain(True)
    print(query.lastProgress, query.recentProgress, query.status)

    sys.argv[1:] = ["news/Subscriptions/all,lagg*", "lagging"]
    runpy.run_path(os.environ["EXAMPLE"], run_name="__main__")

    # The same secrets as options of queries.
    spark.dataSource.register(ServiceBusDataSource)
    string = os.environ["SERVICEBUS"]
    namespace = {"connection_string": string}
    typed = spark.read.format("servicebus").options(**namespace, entity="orders").load()
    typed.createOrReplaceTempView("typed")
    spark.sql(f"create temporary view by_sql using servicebus options (entity 'orders', connection_string '{string}')")
    for query in ("describe extended typed", "describe extended by_sql", "explain extended select * from by_sql",
                  "select count(*) from by_sql", "show views", "set -v"):
        print(spark.sql(query).collect())
    show(typed)
    show(spark.sql("select subject from by_sql"))
    stream = spark.readStream.format("servicebus").options(**namespace, entity="orders").load()
    into = stream.writeStream.format("servicebus").options(**namespace, entity="archive")
    query = into.option("checkpointLocation", "checkpoints/typed").trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress)
    def read(**options):
        return spark.read.format("servicebus").options(**{**namespace, **options}).load().count()
    for options in ({"entity": "no-such-entity"}, {"entitty": "orders"}, {"entity": string}, {"config": string},
                    {"entity": "orders", "first": string}, {"entity": "orders", "proxy": string},
                    {"entity": "orders", "connection_string": string.replace("SharedAccessKey=", "SharedAcessKey=")},
                    {"entity": "orders", "connection_string": string.replace("=owner", "=nobody")}):
        fails(lambda: read(**options))
    rows = spark.createDataFrame([("six",)], "n string")
    rows = rows.selectExpr("map('n', n) as properties", "map('n', 'int') as property_types")
    writer = rows.write.format("servicebus").options(**namespace, entity="orders").mode("append")
    fails(writer.save)
    fails(rows.write.format("servicebus").options(**namespace, entity="orders").mode("overwrite").save)
    writer.option("bad_rows", "skip").save()
    show_pages(spark.sparkContext.uiWebUrl)
    print("end of the page")
"""


@pytest.fixture(scope="module")
def bus() -> Iterator[SourceBus]:
    with source_bus() as bus:
        bus.queue("orders")
        bus.queue("archive")
        bus.subscription("news", "all")
        bus.put("orders", *(message(b"%d" % number, subject="new") for number in range(60)))
        bus.put("orders/$DeadLetterQueue", message(b"dead", {"DeadLetterReason": "Expired"}))
        bus.put("news/Subscriptions/all", message(b"news"))
        bus.queue("lagging")
        bus.put("lagging", *(message() for _ in range(1200)))
        yield bus


@pytest.fixture(scope="module")
def run(bus: SourceBus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Runs the whole page in a process of its own: its folder, its output, and the log of Spark."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "events").mkdir()
    secondary = bus.emulator["contoso-dr"]
    bus.emulator.call(lambda: secondary.namespace.create_queue(QueueDescription(BACKLOG)))
    bus.emulator.call(
        lambda: secondary.namespace.message_queue(BACKLOG).enqueue([_waiting(number) for number in range(3)])
    )
    (folder / "config.yaml").write_text(
        f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{bus.string}'}}\n"
        f"    secondary: {{connection_string: '{secondary.connection_string_for('owner')}'}}\n"
        "    backlog_queue_count: 1\n"
    )
    script = folder / "page.py"
    script.write_text(f"BLOCKS = {BLOCKS!r}\n{FRAME}")
    command = [sys.executable, "-c", "import logging, runpy; logging.basicConfig(level=10); runpy.run_path('page.py')"]
    environment = {
        **os.environ,
        **quick_java(),
        "SERVICEBUS": bus.string,
        "EXAMPLE": str(ROOT / "examples" / "stream_to_parquet.py"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return folder, done.stdout, done.stderr


def _waiting(number: int) -> BrokeredMessage:
    return BrokeredMessage.parse(message(b"x", {"x-ms-path": "orders"}, message_id=f"b{number}"))


@pytest.mark.nightly
@pytest.mark.spark4
@pytest.mark.timeout(600)
def test_every_block_of_the_page_works_as_printed(run: tuple[Path, str, str], bus: SourceBus) -> None:
    folder, output, _ = run
    assert len(BLOCKS) == 10
    assert output.endswith("end of the page\n")
    assert re.search(r"\|\s*new\s*\|\s*active\s*\|\s*60\s*\|", output)
    assert re.search(r"orders/\$DeadLet\S*\s*\|\s*Expired\s*\|\s*dead\s*\|", output)
    assert re.search(r"\|\s*orders\s*\|\s*NULL\s*\|\s*3\s*\|", output)
    assert len(bus.payloads("orders")) == 160
    assert len(bus.payloads("archive")) == 320  # by the stream of the page, and by the one with options of its own
    assert list((folder / "seen").glob("*.parquet"))


@pytest.mark.nightly
@pytest.mark.spark4
@pytest.mark.timeout(600)
def test_the_example_of_a_stream_shows_its_lag(run: tuple[Path, str, str]) -> None:
    folder, output, _ = run
    assert list((folder / "lagging").glob("*.parquet"))
    if find_spec("pyspark.sql.streaming.datasource") is None:
        return  # Spark 4.0 and 4.1 have neither limits nor a lag
    assert "batch 0: 1000 rows, left to read: {'news/subscriptions/all': 0, 'lagging': 201}" in output
    assert "batch 1: 201 rows, left to read: {'news/subscriptions/all': 0, 'lagging': 0}" in output


@pytest.mark.nightly
@pytest.mark.spark4
@pytest.mark.timeout(600)
def test_no_secret_is_in_plans_event_logs_output_or_logs(run: tuple[Path, str, str]) -> None:
    folder, output, log = run
    events = [file for file in (folder / "events").rglob("*") if file.is_file()]
    logged = "\n".join(file.read_text(errors="replace") for file in events)
    assert "SparkListenerSQLExecutionStart" in logged
    assert "servicebus" in logged
    assert "error:" in output
    assert "no-such-entity" in output
    assert "did you mean entity?" in output
    assert "entity is a connection string" in output
    assert "'n': 'six' is not a valid int" in output
    assert re.search(r"pages: \d\d", output), "Spark's own pages are among the output"
    for text in (output, log, logged):
        assert KEY not in text
        assert "SharedAccessKey=" not in text
    kept = [file for place in ("checkpoints", "seen") for file in (folder / place).rglob("*") if file.is_file()]
    assert kept
    assert not [file for file in kept if KEY.encode() in file.read_bytes()]
    assert "'n': 'six' is not a valid int" in log, "skipped rows are named in the driver's log"


def test_the_page_names_every_column_and_every_option() -> None:
    for name in (*COLUMNS, "connection_string", "namespace", "credential", "config", "side"):
        assert f"`{name}`" in OURS, name
    for name in Behaviour.model_fields:  # `starting_offsets` is `startingOffsets` there, as other connectors write it
        assert f"`{name.replace('_', '')}`" in OURS.replace("_", "").lower(), name
    for part in BACKLOG_SCHEMA.split(", "):
        assert f"`{part.split()[0]}`" in OURS, part
