"""The Spark session: started once, small, and quiet; or the one that is there already, on a managed cluster.

Settings reach Spark through a file that only we can read, and not through the command line of the JVM: they may hold
the key of the ledger's storage account. What Spark and its JVM write to stderr goes to the log `syphon.spark`.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from syphon.config import PipelineSettings
from syphon.model import SyphonError

from .java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("syphon.spark")

PACKAGE = Path(__file__).parents[1]
SMALL_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms48m -XX:MaxNewSize=48m "
    "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
)
"""The driver plans small jobs, and waits. By itself Java would take a sixty-fourth of the machine to begin with."""
JVM_ENDS_WITHIN = 10.0
TASK_FAILURES = 4
"""How often a task may fail: in local mode Spark forgives none by itself, and a killed worker would end the job."""


class SparkNotStarted(SyphonError):
    """Spark could not be started."""


def cores_of(master: str) -> int | None:
    """How many tasks a local master runs at once; None for a cluster, which knows by itself.

    A pump waits as much as it works, so that `local[*]` takes twice the cores, and four on the smallest machine.
    """
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[(\*|\d+)(?:,\s*(?:\*|\d+))?\]", master)
    if found is None:
        return None
    return max(4, 2 * (os.cpu_count() or 1)) if found[1] == "*" else int(found[1])


def spark_master(master: str) -> str:
    """The master as Spark is given it: a local one forgives a worker that dies."""
    cores = cores_of(master)
    return master if cores is None or master.count(",") else f"local[{cores},{TASK_FAILURES}]"


def spark_settings(pipeline: PipelineSettings, name: str) -> dict[str, str]:
    """All settings of the session: ours, and over them the operator's."""
    settings = {
        "spark.master": spark_master(pipeline.master),
        "spark.app.name": name,
        "spark.scheduler.mode": "FAIR",  # a queue that rings need not wait for the end of another's job
        "spark.speculation": "false",  # a second copy of a pump would be a second receiver
        "spark.task.maxFailures": str(TASK_FAILURES),
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # Told to Python workers by their environment, it would take a second daemon for those that have no use for it.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # Rows are kept for the moment until they are in the ledger: packing them costs a tenth of a job's speed.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.pyspark.python": sys.executable,
    }
    if cores_of(pipeline.master) is not None:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "syphon.spark.daemon",
        }
    return settings | {key: value.get_secret_value() for key, value in pipeline.spark.items()}


@contextmanager
def spark_session(pipeline: PipelineSettings, name: str = "syphon") -> Iterator[SparkSession]:
    """A session to work with. One that is active already is used as it is, and left running."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    session = active or _start(spark_settings(pipeline, name))
    with tempfile.TemporaryDirectory(prefix="syphon-") as folder:
        try:
            _ship(session, Path(folder))
            yield session
        finally:
            if active is None:
                _stop(session)


def _start(settings: dict[str, str]) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # PySpark looks for the executors' Python in the environment alone, whatever the setting says.
    os.environ |= {"PYSPARK_PYTHON": settings["spark.pyspark.python"], **java_environment(os.environ)}
    said = _Stderr()
    with _properties_file(settings) as file:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {file} pyspark-shell"
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                popen_kwargs={"stderr": said.writer, "stdout": said.writer}
            )
            context = SparkContext(gateway=gateway)
        except Exception as error:
            raise SparkNotStarted(said.why(error, settings["spark.master"])) from error
        finally:
            said.close_writer()
            del os.environ["PYSPARK_SUBMIT_ARGS"]
    return SparkSession(context)


def _stop(session: SparkSession) -> None:
    """Ends Spark, and its JVM with it: by itself PySpark keeps that until Python ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(JVM_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _properties_file(settings: dict[str, str]) -> Iterator[str]:
    """Settings in Java's format, for our eyes only, for as long as Spark needs to read them."""
    with tempfile.NamedTemporaryFile("w", prefix="syphon-", suffix=".properties", encoding="ascii") as file:
        for key, value in settings.items():
            file.write(f"{_escaped(key)}={_escaped(value)}\n")
        file.flush()
        yield file.name


def _escaped(text: str) -> str:
    """Java reads Latin-1 and gives a meaning to these characters."""
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in "._-/[],*")
        else "".join(
            f"\\u{int.from_bytes(char.encode('utf-16-be')[at : at + 2], 'big'):04x}"
            for at in range(0, len(char.encode("utf-16-be")), 2)
        )
        for char in text
    )


class _Stderr:
    """What the JVM says, as log lines. The last of them tell why it did not start."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._last: deque[str] = deque(maxlen=30)
        self._reader: IO[str] = os.fdopen(reader, encoding="utf-8", errors="replace")
        threading.Thread(target=self._read, name="spark's stderr", daemon=True).start()

    def _read(self) -> None:
        with self._reader:
            for line in self._reader:
                text = line.rstrip()
                self._last.append(text)
                log.debug("%s", text)

    def close_writer(self) -> None:
        os.close(self.writer)

    def why(self, error: Exception, master: str) -> str:
        # The JVM's own words are the reason; py4j only says that there is no gateway.
        words = [line for line in self._last if "Exception" in line or "Error" in line or "ERROR" in line]
        reason = words[-1] if words else str(error).partition("\n")[0]
        return (
            f"Spark could not be started on {master}: {reason} "
            "(more with --verbose). Check pipeline.master, pipeline.spark and JAVA_HOME."
        )


def _ship(session: SparkSession, folder: Path) -> None:
    """The code of syphon goes to the executors of a cluster by itself; what it depends on must be there."""
    if cores_of(str(session.sparkContext.master)) is not None:
        return
    place = folder / "syphon-package.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, Path("syphon") / file.relative_to(PACKAGE))
    session.sparkContext.addPyFile(str(place))
