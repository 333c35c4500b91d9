"""The image's entrypoint as an executor: a real driver gives it real work, as Spark on Kubernetes would."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark
import pytest
import yaml

from syphon.spark.java import java_environment
from tests.support.chart import manifests
from tests.support.tools import ROOT

SPARK = Path(pyspark.__file__).parent

# A driver whose cluster has no workers: its job waits until an executor turns up.
DRIVER = """
import json
import sys

from pyspark import SparkConf, SparkContext

conf = SparkConf().setMaster("local-cluster[0,1,1024]").setAppName("driver")
conf.set("spark.ui.enabled", "false").set("spark.driver.memory", "512m").set("spark.driver.host", "127.0.0.1")
conf.set("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
conf.setAll(json.loads(sys.argv[1]).items())
context = SparkContext(conf=conf)
settings = context.getConf()
print(settings.get("spark.driver.port"), context.applicationId, flush=True)
print(settings.get("spark.executor.extraJavaOptions"), flush=True)
print(context.parallelize(range(4), 2).map(lambda number: number * number).sum(), flush=True)
context.stop()
"""

SECRET = "known to both"


def protection() -> dict[str, str]:
    """The chart's settings by which driver and executors know each other and encrypt."""
    (text,) = (found for each in manifests("spark") if (found := each.get("data", {}).get("config.yaml")))
    spark: dict[str, str] = yaml.safe_load(text)["pipeline"]["spark"]
    found = {key: value for key, value in spark.items() if re.match(r"spark\.(authenticate|network|io)\b", key)}
    assert "spark.authenticate" in found
    return found


QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@pytest.mark.timeout(300)  # three JVMs start, on a machine that may be busy
def test_it_registers_with_its_driver_by_their_secret_and_does_its_work(tmp_path: Path) -> None:
    environment = {**os.environ, **java_environment(os.environ)}
    environment |= {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable}
    given = {**protection(), "spark.authenticate.secret": SECRET}
    with (
        (tmp_path / "log").open("w+") as log,
        started([sys.executable, "-c", DRIVER, json.dumps(given)], environment, log, stdout=subprocess.PIPE) as driver,
    ):
        assert driver.stdout is not None
        port, application = driver.stdout.readline().split()
        # The last one leaves a trace, and has a space in it: all are passed on, each as one, also after an empty one.
        options = [*QUICK, *shlex.split(driver.stdout.readline())]
        # Spark on Kubernetes passes the settings by which an executor gets to its driver as options, and its secret so:
        options += [f"-D{key}={value}" for key, value in protection().items()]
        options += ["", "-Xlog:gc*:file=two words.log"]
        settings = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
            "SPARK_APPLICATION_ID": application,
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_EXECUTOR_POD_NAME": "syphon-executor-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
        }
        command: list[str | Path] = ["sh", ROOT / "docker" / "entrypoint.sh", "executor"]
        with started(command, environment | settings | {"_SPARK_AUTH_SECRET": "a guess"}, log) as stranger:
            assert stranger.wait() != 0, log_of(log)
        with started(command, environment | settings | {"_SPARK_AUTH_SECRET": SECRET}, log) as executor:
            assert executor.wait() == 0, log_of(log)
            assert driver.stdout.readline() == "14\n", log_of(log)
    assert (tmp_path / "two words.log").exists()


@contextmanager
def started(
    command: list[str | Path], environment: dict[str, str], log: IO[str], stdout: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive its block."""
    with subprocess.Popen(
        command, env=environment, cwd=Path(log.name).parent, stdout=stdout or log, stderr=log, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def log_of(log: IO[str]) -> str:
    log.seek(0)
    return log.read()
