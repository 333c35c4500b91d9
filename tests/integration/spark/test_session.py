"""The Spark session: how many tasks a master runs at once, and which sessions are refused."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from syphon.config import PipelineSettings
from syphon.ledger import packed_file
from syphon.spark.classic import ClassicAccess, _environment
from syphon.spark.session import LARGEST_DIRECT_RESULT, SparkUnusable, check_session, spark_settings
from syphon.spark.session_access import cores_of
from syphon.worker.pair_worker import MOST_OUTCOMES
from tests.support.ledger_rows import ORIGIN, outcome
from tests.support.waiting import eventually
from tests.unit.spark.test_container_limits import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[5, 1]", 5)])
def test_a_local_master_says_how_many_tasks_it_runs(master: str, cores: int) -> None:
    assert cores_of(master) == cores


@pytest.mark.parametrize(
    ("cores", "quota", "memory", "slots"),
    [
        (64, "500000 100000", "max", 5),
        (64, "max 100000", f"{1024**3}", 3),
        (7, "max 100000", "max", 7),
    ],
)
def test_a_star_is_what_the_container_allows(
    cores: int, quota: str, memory: str, slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # X8
    write(tmp_path, "proc/meminfo", "MemTotal:       67108864 kB\n")
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", f"{quota}\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{memory}\n")
    monkeypatch.setenv("SYPHON_SYSTEM_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTHON_CPU_COUNT", str(cores))
    assert cores_of("local[*]") == slots
    assert spark_settings(PipelineSettings(master="local[*]"), "test")["spark.master"] == f"local[{slots},4]"


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_knows_by_itself(master: str) -> None:
    assert cores_of(master) is None


def test_a_ledger_on_a_file_system_of_hadoop_respects_the_umask() -> None:  # T7
    before = os.umask(0o027)
    try:
        settings = spark_settings(PipelineSettings(master="local[2]"), "test")
        assert os.umask(0o027) == 0o027, "it is as it was"
    finally:
        os.umask(before)
    assert settings["spark.hadoop.fs.permissions.umask-mode"] == "027"


def test_the_rows_of_a_slot_do_not_wait_on_its_executor(spark: SparkSession) -> None:  # D9
    """Spark sends them with the end of the task if they are smaller than both: its setting, and the largest message."""
    jvm: Any = spark.sparkContext._jvm
    spark_itself = jvm.org.apache.spark
    setting = getattr(getattr(spark_itself.internal.config, "package$"), "MODULE$").TASK_MAX_DIRECT_RESULT_SIZE()
    assert spark.sparkContext.getConf().get(setting.key()) == f"{LARGEST_DIRECT_RESULT}m"
    largest_message = spark_itself.util.RpcUtils.maxMessageSizeBytes(spark.sparkContext._jsc.sc().conf())
    assert largest_message > LARGEST_DIRECT_RESULT * 1024**2
    long_ids = [outcome(number, message_id=f"{Random(number).getrandbits(4 * 128):0128x}") for number in range(2000)]
    rows_of_a_slot = len(packed_file(long_ids, ORIGIN)) * MOST_OUTCOMES / len(long_ids)
    assert rows_of_a_slot < LARGEST_DIRECT_RESULT * 1024**2


def session(**settings: str) -> Any:
    """A session, as far as its settings are read."""
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: settings))


@pytest.mark.parametrize("value", ["true", "TRUE", " True "])
def test_a_session_with_speculation_is_refused_with_the_reason_and_the_remedy(value: str) -> None:  # X1
    with pytest.raises(SparkUnusable, match=r"second copy of a slot.*Set spark\.speculation to false"):
        check_session(session(**{"spark.speculation": value}))


@pytest.mark.parametrize(("setting", "slots"), [("false", 3), ("TRUE", 6)])
def test_more_slots_than_places_make_spark_ask_for_executors_where_it_may(setting: str, slots: int) -> None:
    core = SimpleNamespace(
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: "default"),
        maxNumConcurrentTasks=lambda profile: 3 if profile == "default" else 0,
    )
    found = session(**{"spark.dynamicAllocation.enabled": setting})
    vars(found.sparkContext).update(_jsc=SimpleNamespace(sc=lambda: core), master="yarn", startTime=0)
    assert ClassicAccess(found).most_slots() == slots


def test_a_cluster_without_authentication_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:  # T9
    with caplog.at_level(logging.WARNING):
        check_session(session(**{"spark.master": "spark://host:7077", "spark.authenticate": "True"}))
        assert not caplog.records
        check_session(session(**{"spark.master": "spark://host:7077"}))
    assert "can read connection strings. Set spark.authenticate" in caplog.text


def test_an_ordinary_session_is_fine(caplog: pytest.LogCaptureFixture) -> None:
    check_session(session(**{"spark.speculation": "false"}))
    assert not caplog.records


def test_the_environment_of_the_caller_is_as_before_when_spark_has_started(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller may start a Spark of its own afterwards, on a cluster that must not look for it on 127.0.0.1."""
    names = ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYTHONSAFEPATH", "MALLOC_ARENA_MAX")
    monkeypatch.setenv("PYTHONSAFEPATH", "0")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    before = {name: os.environ.get(name) for name in names}
    with _environment("python", "a file", is_local=True):
        assert (os.environ["PYTHONSAFEPATH"], os.environ["SPARK_LOCAL_IP"]) == ("1", "127.0.0.1")
    assert {name: os.environ.get(name) for name in names} == before
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ  # a session has been started in this process


def described(spark: SparkSession, **of_caller: str) -> dict[str, str | None]:
    """What Spark knows of a job of ours whose caller has set these properties in its own thread."""
    context, access = spark.sparkContext, ClassicAccess(spark)
    names = ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool", "spark.job.tags")
    for name in of_caller:
        context.setLocalProperty(name, of_caller[name])
    try:
        access.inherit()
    finally:
        for name in of_caller:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def of_job() -> dict[str, str | None]:
        access.describe_job("contoso", "2 queues of contoso")
        return {name: context.getLocalProperty(name) for name in names}

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(of_job).result()


def test_a_job_has_a_group_and_a_pool_of_its_pair_and_says_what_it_is_for(spark: SparkSession) -> None:
    assert described(spark) == {
        "spark.jobGroup.id": "syphon contoso",
        "spark.job.description": "syphon: 2 queues of contoso",
        "spark.scheduler.pool": "contoso",
        "spark.job.tags": None,
    }


def test_a_job_keeps_the_group_the_tags_and_the_description_of_its_caller(spark: SparkSession) -> None:
    of_caller = {"spark.jobGroup.id": "nightly", "spark.job.tags": "a,b", "spark.scheduler.pool": "own"}
    assert described(spark, **of_caller, **{"spark.job.description": "The nightly drain"}) == {
        **of_caller,
        "spark.job.description": "The nightly drain – syphon: 2 queues of contoso",
    }


def test_what_spark_warns_of_is_a_warning_here(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    jvm: Any = spark.sparkContext._jvm
    loggers = jvm.org.apache.logging.log4j.LogManager
    loggers.getLogger("org.apache.spark.scheduler.FairSchedulableBuilder").warn("a pool that no file describes")
    logger = loggers.getLogger("org.apache.spark.Cluster")
    logger.warn("no resources")
    logger.error("an executor is lost")
    eventually(lambda: "an executor is lost" in caplog.text)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ["Spark: Cluster: no resources", "Spark: Cluster: an executor is lost"]
