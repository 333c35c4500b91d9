"""The data source on Spark Connect: reads, writes and streams, and no secret in what the server writes down (X6)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.connect_server import IS_IN_THE_PACKAGE, ConnectServer
from tests.support.processes import EmulatedPair, aliased, emulated_pair
from tests.support.scripts import run_script
from tests.support.spark_source import message, source_bus
from tests.support.tools import ROOT

pytest.importorskip("grpc", reason="Spark Connect needs syphon-servicebus[connect]")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.nightly,
    pytest.mark.skipif(not IS_IN_THE_PACKAGE, reason="this Spark comes without a Connect server"),
]

TYPED = "a-key-that-was-typed-into-a-query"
QUERIES = """
import json, sys
from pyspark.sql import SparkSession
from syphon.datasource import ServiceBusDataSource, backlog, register_source

answer, sys.stdout = sys.stdout, sys.stderr  # plans are long, and only stderr is read meanwhile
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register_source(spark, "config.yaml", pair="contoso")
register_source(spark, name="primary_bus", connection_string=sys.argv[2], bodies=True)

waiting = spark.read.format("servicebus").load()
found = {"waiting": waiting.count(), "backlog": backlog(spark, "config.yaml").count()}
waiting.select("message_id", "properties").write.format("primary_bus").option("entity", "orders").mode("append").save()
orders = spark.read.format("primary_bus").option("entity", "orders").load()
found["orders"] = sorted(row.message_id for row in orders.collect())

stream = spark.readStream.format("primary_bus").option("entity", "orders").load()
def run(writer, name):
    query = writer.option("checkpointLocation", f"checkpoints/{name}").trigger(availableNow=True).start()
    query.awaitTermination(120)
    query.explain(True)
run(stream.writeStream.format("parquet").option("path", sys.argv[3]), "files")
found["streamed"] = spark.read.parquet(sys.argv[3]).count()
run(stream.writeStream.format("primary_bus").option("entity", "billing/invoices"), "bus")

for frame, mode in ((waiting, "extended"), (orders, "formatted"), (stream, "extended")):
    frame.explain(mode)
    print(repr(frame._plan), frame._plan.print())
print(repr(orders))

def failure(what):
    try:
        what()
    except Exception as error:
        return str(error)
read = lambda **options: spark.read.format("primary_bus").options(**options).load().count()
rows = spark.sql("select map('n', 'six') as properties, map('n', 'int') as property_types")
string = "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=" + sys.argv[4]
typed = {"connection_string": string, "entity": "orders"}
found["errors"] = [
    failure(lambda: read(entity="no-such-entity")),
    failure(lambda: rows.write.format("primary_bus").option("entity", "orders").mode("append").save()),
    failure(lambda: read(**typed)),
]
spark.dataSource.register(ServiceBusDataSource)
found["errors"].append(failure(lambda: spark.read.format("servicebus").options(**typed).load().count()))
print(json.dumps(found), file=answer)
"""


@dataclass(frozen=True)
class Queried:
    """What the script has answered, and all that it and the server have said."""

    pair: EmulatedPair
    found: dict[str, Any]
    texts: dict[str, str]


@pytest.fixture(scope="module")
def queried(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queried]:
    folder = tmp_path_factory.mktemp("queried")
    with emulated_pair(folder) as pair:
        pair.put([aliased(number, "orders") for number in range(30)])
        pair.config("config.yaml")
        files = (folder / "seen").as_uri()
        process = run_script(pair, "queries", QUERIES, server.url, pair.primary, files, TYPED)
        code, out = process.end(400)
        assert code == 0, process.said
        yield Queried(pair, json.loads(out), texts_of(server, out + process.said))


def texts_of(server: ConnectServer, output: str) -> dict[str, str]:
    kept = (server.log, *server.events.rglob("*"), *(server.log.parent / "checkpoints").rglob("*"))
    files = {str(file): file.read_text(errors="replace") for file in kept if file.is_file()}
    return {"output": output, **files}


def key_of(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def test_tables_and_streams_are_read_and_written_on_a_server(queried: Queried) -> None:  # X6
    found = queried.found
    assert (found["waiting"], found["backlog"], found["streamed"]) == (30, 30, 30)
    assert found["orders"] == sorted(f"m{number}" for number in range(30))
    assert queried.pair.arrived("orders", "billing/invoices") == Counter({f"m{number}": 2 for number in range(30)})


TABLES = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = [spark.read.table("dead_letters").count(), sorted(map(tuple, spark.read.table("reasons").collect()))]
for table in ("dead_letters", "reasons"):
    spark.sql(f"drop table {table}")
print(json.dumps(rows))
"""


@pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="Spark 4.0 has no pipelines")
def test_the_example_of_a_pipeline_reads_dead_letters_into_tables(server: ConnectServer, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "dead_letters_pipeline", tmp_path / "pipeline")
    file = tmp_path / "pipeline" / "spark-pipeline.yml"
    file.write_text(re.sub(r"file://\S+", (tmp_path / "storage").as_uri(), file.read_text()))

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **more}
        whole = [sys.executable, *command]
        return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False, timeout=300)

    with source_bus() as bus:
        bus.queue("orders")
        dead = [message(properties={"DeadLetterReason": reason}) for reason in ("Expired", "Broken", "Expired")]
        bus.put("orders/$DeadLetterQueue", *dead)
        secrets = {"SPARK_REMOTE": server.url, "SERVICEBUS": bus.string}
        ran = run("-m", "pyspark.pipelines.cli", "run", "--spec", str(file), **secrets)
    # The command of Spark 4.3.0 fails after the run: it does not know the answer that says what Python has counted.
    assert "Run is COMPLETED" in ran.stderr + ran.stdout, ran.stderr
    made = run("-c", TABLES, server.url)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == [3, [["Broken", 1], ["Expired", 2]]]


def test_errors_have_their_reason_and_the_code_comes_from_the_client(queried: Queried) -> None:
    missing, bad_row, *_ = queried.found["errors"]
    assert "no-such-entity" in missing
    assert "'n': 'six' is not a valid int" in bad_row
    assert re.search(r"/syphon-[0-9a-f]{12}\.zip/syphon/datasource/peek_read\.py", missing)  # on the driver
    assert re.search(r"/syphon-[0-9a-f]{12}\.zip/syphon/datasource/write\.py", bad_row)  # on an executor


def test_secrets_that_were_registered_are_in_no_plan_no_event_log_and_no_output(queried: Queried) -> None:  # T11
    logged = "".join(text for place, text in queried.texts.items() if "events" in place)
    assert "SparkListenerConnectOperationStarted" in logged
    assert "primary_bus" in logged
    for secret in (key_of(queried.pair.primary), key_of(queried.pair.secondary)):
        assert [place for place, text in queried.texts.items() if secret in text] == []


def test_a_secret_in_an_option_of_a_query_is_refused_because_the_server_writes_it_down(queried: Queried) -> None:  # T11
    """That is why: if the server wrote no options down, the refusal could go."""
    assert [place for place, text in queried.texts.items() if TYPED in text and "events" in place]
    for error in queried.found["errors"][2:]:
        assert "replace the secret that was in this query" in error
        assert TYPED not in error
