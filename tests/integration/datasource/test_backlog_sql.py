"""`inspect --sql` answers one query over the view of the backlog, and does nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syphon.datasource.backlog_sql import SUBSTITUTION, VIEW, BadQuery, answer_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALL = "reflect('java.lang.System', 'getenv', 'HOME')"
WITH_FILES = [
    f"{call}, map('rowValidationXSDPath', '{place}'))"
    for call in ("schema_of_xml('<a>1</a>'", "from_xml('<a>1</a>', 'a int'")
    for place in ("/etc/passwd", "http://127.0.0.1:1/")
]


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with a view of five rows, a view of somebody else, and a table."""
    place = tmp_path_factory.mktemp("stored")
    spark.range(5).selectExpr("id", "cast(id as string) as name", "array(1, 2) as numbers").createOrReplaceTempView(
        VIEW
    )
    spark.range(1).createOrReplaceTempView("other")
    spark.sql(f"create table stored using parquet location '{place}/files' as select 1 as id")
    yield spark
    spark.catalog.dropTempView(VIEW)
    spark.catalog.dropTempView("other")
    spark.sql("drop table stored")


@pytest.mark.parametrize(
    "query",
    [
        "select * from backlog",
        "SELECT id FROM Backlog b WHERE id > 1 ORDER BY id LIMIT 2 OFFSET 1",
        "table backlog",
        pytest.param("from backlog |> where id > 2 |> select id", marks=pytest.mark.spark4),
        "values (1), (2)",
        "select name, count(*) from backlog group by rollup(name) having count(*) > 0 order by 2",
        "with x as (select * from backlog), y as (select id from x) select x.* from x join y using (id)",
        "select (select max(id) from backlog), id in (select id from backlog) from backlog b "
        "where exists (select 1 from backlog c where c.id = b.id)",
        "select row_number() over w from backlog window w as (partition by name order by id)",
        "select id from backlog union select 1 except select 2 intersect select 3",
        "select * from backlog lateral view explode(numbers) t as number",
        "select * from backlog, lateral (select id + 1)",
        "select * from backlog pivot (count(*) for name in ('1', '2'))",
        "select * from (select id, id as other from backlog) unpivot (value for kind in (id, other))",
        "select transform(numbers, x -> x + 1), to_json(struct(*)) from backlog tablesample (50 percent)",
        "select * from range(3) join explode(array(1, 2))",
        pytest.param(
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select * from r",
            marks=pytest.mark.spark4,
        ),
        "select /*+ broadcast(b) */ * from backlog b distribute by id sort by id",
    ],
)
def test_a_query_on_the_view_is_answered(asked: SparkSession, query: str) -> None:  # X6
    assert answer_query(asked, query).collect() is not None


@pytest.mark.parametrize(
    "query",
    [
        "create table t as select 1",
        "create temporary view v as select 1",
        "insert into stored select id from backlog",
        "drop view backlog",
        "set spark.sql.ansi.enabled = false",
        "set",
        "reset",
        "add jar '/tmp/x.jar'",
        "cache table backlog",
        "use system",
        "declare variable v int",
        "explain select 1",
        "show tables",
        "execute immediate 'select 1'",
        "execute immediate 'drop view ' || 'backlog'",
        "begin select 1; end",
        "select 1; select 2",
        "select transform(id) using 'cat' from backlog",
        "select * from text.`/etc/passwd`",
        "select (select count(*) from text.`/etc/passwd`)",
        "with x as (select * from csv.`/etc/passwd`) select * from x",
        "select * from identifier('text.`/etc/passwd`')",
        "select * from identifier('te' || 'xt.`/etc/passwd`')",
        "select * from spark_catalog.default.stored",
        "select * from stored",
        "select * from backlog where id in (select id from stored)",
        "select * from other",
        f"select {CALL}",
        f"select id from backlog where id in (select length({CALL}) from backlog)",
        f"select max({CALL}) over () from backlog",
        f"select aggregate(numbers, 0, (x, y) -> x, x -> {CALL}) from backlog",
        f"from backlog |> select {CALL}",
        f"select explode(array({CALL.replace('reflect', 'try_reflect')}))",
        f"select {CALL.replace('reflect', 'java_method')} from backlog",
        f"select identifier('reflect'){CALL.removeprefix('reflect')}",
        f"select identifier('ref' || 'lect'){CALL.removeprefix('reflect')}",
        f"select system.builtin.{CALL}",
        *(f"select {call}" for call in WITH_FILES),
        *(f"select from_json('1', {call})" for call in WITH_FILES),
        *(f"select identifier('schema_of_' || 'xml'){call.partition('xml')[2]}" for call in WITH_FILES),
        "select from_avro(cast('a' as binary), '\"string\"', map('avroSchemaUrl', 'http://127.0.0.1:1/'))",
        "select from_protobuf(cast('a' as binary), 'M', '/etc/passwd')",
    ],
)
def test_anything_else_is_refused_before_it_runs(asked: SparkSession, query: str) -> None:  # T8
    with pytest.raises(BadQuery) as caught:
        answer_query(asked, query)
    assert "\n" not in str(caught.value)
    assert [row.n for row in asked.sql("select count(*) as n from backlog").collect()] == [5]
    assert {table.name for table in asked.catalog.listTables()} == {"backlog", "other", "stored"}


def test_functions_of_python_are_refused(asked: SparkSession) -> None:  # T8
    asked.udf.register("mine", lambda: 1, "int")
    try:
        with pytest.raises(BadQuery, match="not allowed"):
            answer_query(asked, "select mine() from backlog")
    finally:
        asked.sql("drop temporary function mine")


@pytest.mark.parametrize("name", ["env:HOME", "system:user.home", "spark.app.name", "hiveconf:spark.master"])
def test_a_query_shows_neither_the_environment_nor_settings(asked: SparkSession, name: str) -> None:  # T8
    before = asked.conf.get(SUBSTITUTION)
    text = f"${{{name}}}"
    assert answer_query(asked, f"select '{text}' as text").collect()[0].text == text
    with pytest.raises(BadQuery):
        answer_query(asked, f"select '{text}' from nowhere")
    assert asked.conf.get(SUBSTITUTION) == before, "the session is as it was"


def test_nothing_is_read_while_a_query_is_refused(asked: SparkSession) -> None:  # T8
    with socket.create_server(("127.0.0.1", 0)) as server:
        visits = []

        def hang_up_on_everybody() -> None:
            with suppress(OSError):
                while True:
                    visitor, address = server.accept()
                    visits.append(address)
                    visitor.close()

        threading.Thread(target=hang_up_on_everybody, daemon=True).start()
        place = f"http://127.0.0.1:{server.getsockname()[1]}/"
        # Spark computes a schema when it analyses the query.
        call = f"schema_of_xml('<a>1</a>', map('rowValidationXSDPath', '{place}'))"
        with pytest.raises(BadQuery, match="schema_of_xml is not allowed here"):
            answer_query(asked, f"select from_json('1', {call})")
        assert visits == []
        server.shutdown(socket.SHUT_RDWR)


def test_xml_in_a_query_opens_no_file(asked: SparkSession, tmp_path: Path) -> None:  # T8
    (tmp_path / "file").write_text("what is in the file")
    # Spark's own functions for XML do not follow such references.
    xml = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{tmp_path}/file">]><a>&x;</a>'
    rows = answer_query(asked, f"select xpath_string('{xml}', 'a') as text").collect()
    assert [row.text for row in rows] == [""]
