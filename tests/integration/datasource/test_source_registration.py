"""`register_source`: the data source with options that every query of a session has, and that Spark writes nowhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_source import KEY, SourceBus, message

pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no data sources in Python")

from pyspark import cloudpickle

from syphon.datasource import register_source
from syphon.datasource.source import ServiceBusDataSource, source_with
from syphon.datasource.source_options import BadSourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(bus: SourceBus) -> dict[str, object]:
    names = {"primary": "contoso", "secondary": "contoso-dr"}
    sides = {
        side: {"connection_string": bus.emulator[name].connection_string_for("owner")} for side, name in names.items()
    }
    return {"pairs": [{"name": "contoso", **sides, "backlog_queue_count": 1}]}


def test_queries_name_only_what_differs(spark: SparkSession, bus: SourceBus) -> None:  # X6
    queue, target = bus.queue("registered"), bus.queue("registered-target")
    bus.put(queue, *(message(b"%d" % number) for number in range(4)))
    register_source(spark, connection_string=bus.string, entity=queue, bodies=True)
    rows = spark.read.format("servicebus").load()
    assert {bytes(row.body) for row in rows.collect()} == {b"0", b"1", b"2", b"3"}
    assert "body" not in spark.read.format("servicebus").option("bodies", False).load().columns
    rows.write.format("servicebus").option("Entity", target).mode("append").save()
    assert len(bus.payloads(target)) == 4
    rows.explain(True)


def test_settings_are_read_once_where_it_is_registered(spark: SparkSession, bus: SourceBus) -> None:  # X6
    queue = bus.queue("settings")
    bus.put(queue, message())
    register_source(spark, settings(bus), name="contoso_pair")
    read = spark.read.format("contoso_pair").options(side="primary", entity=queue)
    assert [row.entity for row in read.load().collect()] == [queue]
    with pytest.raises(Exception, match="'contoso/x-servicebus-transfer/0'"):
        spark.read.format("contoso_pair").load().count()  # the backlog queue of the secondary, which is not there


def test_a_table_of_the_catalog_is_read_and_written_by_sql(spark: SparkSession, bus: SourceBus, tmp_path: Path) -> None:
    queue = bus.queue("in-the-catalog")
    bus.put(queue, *(message() for _ in range(5)))
    register_source(spark, connection_string=bus.string, entity=queue, name="catalog_source")
    spark.sql(f"create table in_catalog using catalog_source location '{tmp_path}' comment 'x' tblproperties ('a'='b')")
    try:
        assert spark.sql("select * from in_catalog").count() == 5
        spark.sql("insert into in_catalog (message_id, subject) values ('new', 'sql')")
        assert str(bus.messages(queue)[5].properties().message_id) == "new"
        assert spark.sql("select * from in_catalog with (maxRowsPerTrigger = 1, first = 4)").count() == 3
    finally:
        spark.sql("drop table in_catalog")
    with pytest.raises(Exception, match="Spark passes OPTIONS of a table in its catalog to no query"):
        spark.sql("create table not_made using catalog_source options (first 3)")
    spark.sql("create temporary view of_queue using catalog_source options (first 3)")
    assert spark.sql("select * from of_queue").count() == 4


def test_mistakes_are_found_when_it_is_registered(spark: SparkSession, bus: SourceBus) -> None:
    with pytest.raises(BadSourceOptions, match=r"option\.bodys is not a known option; did you mean bodies\?") as caught:
        register_source(spark, connection_string=f"{bus.string};x", bodys=True)
    assert KEY not in str(caught.value)
    with pytest.raises(BadSourceOptions, match="write one of contoso"):
        register_source(spark, settings(bus), pair="none")
    register_source(spark, namespace="a.servicebus.windows.net", name="no_entity_yet")
    register_source(spark, bodies=True, name="no_namespace_yet")


def test_its_secrets_travel_pickled_and_are_in_no_text(bus: SourceBus) -> None:  # T11
    source = source_with("servicebus", {"connection_string": bus.string})
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    found = pickle.loads(dumps(source))({"ENTITY": "q", "Bodies": "true"})
    assert found.name() == "servicebus"
    assert found.of_query == {"entity", "bodies"}
    parsed = found._parsed()
    assert (parsed.entities, parsed.behaviour.bodies) == (("q",), True)
    assert KEY not in repr(found) + str(found) + repr(source) + repr(vars(source)) + repr(parsed)


def test_on_connect_only_the_secrets_of_a_query_are_refused(bus: SourceBus) -> None:  # T11
    source = source_with("servicebus", {"connection_string": bus.string}, on_connect=True)
    assert "entity" in source({"entity": "q"}).schema()
    with pytest.raises(BadSourceOptions, match="replace the secret that was in this query"):
        source(bus.options("q")).schema()


@pytest.mark.parametrize(("artifacts", "is_refused"), [("default", False), ("0b1e4c3a-session", True)])
def test_a_source_that_was_registered_without_options_knows_a_server_of_connect(
    bus: SourceBus, monkeypatch: pytest.MonkeyPatch, artifacts: str, is_refused: bool
) -> None:
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", artifacts)
    source = ServiceBusDataSource(bus.options("q"))
    if is_refused:
        with pytest.raises(BadSourceOptions, match="register_source"):
            source.schema()
    else:
        assert "entity" in source.schema()
