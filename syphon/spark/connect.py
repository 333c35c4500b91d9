"""A session of Spark Connect: this process is a client, and Spark's driver is a server that may be anywhere.

There is no `sparkContext` and no JVM. So a job is a DataFrame with `mapInArrow` instead of an RDD (`jobs`), the
code of syphon travels as an artifact, a small job finds the number of slots, and `ConnectWatch` notices the loss of the
server by asking it.
Scheduler pools and job descriptions do not exist: jobs of several pairs share the server's own scheduling. Tags do.

The plan of a job carries the pickled task to the server, connection strings included (docs/clusters.md).
"""

from __future__ import annotations

import logging
import os
import re
import socket
import tempfile
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from syphon.config import PipelineSettings
from syphon.control import SlotControl
from syphon.model import Extra, is_this_machine
from syphon.time_budget import (
    CONNECT_ANSWER_LATE,
    CONNECT_ASK_EVERY,
    CONNECT_SILENT_AFTER,
    JVM_IS_GONE_WITHIN,
    SPARK_CHECK_EVERY,
)

from .classic import SparkNotStarted
from .session_access import ControlHost, SparkLost, SparkWatch, cores_of, package_zip, shown_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CONSEQUENCE = "No message is lost: those in flight are redelivered."


def ask(session: SparkSession) -> None:
    """Asks the server something that it must know. Raises what PySpark raises, if need be after minutes.

    PySpark keeps the answers of some calls, the version of Spark among them; it asks for a setting each time.
    """
    session.conf.get("spark.sql.session.timeZone")


class ConnectWatch(SparkWatch):
    """Says whether the server is unreachable or has dropped the session."""

    def __init__(self, session: SparkSession, endpoint: tuple[str, int] | None) -> None:
        """`endpoint` is None if it is not known: then an unreachable server is noticed when it has been silent."""
        super().__init__()
        self._session = session
        self._endpoint = endpoint
        self._asked_at: float | None = None
        self._failure: SparkLost | None = None
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("ask Spark Connect", self._ask), ("Spark Connect watch", self._check))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> SparkLost | None:
        return None if self._over.is_set() else self._failure

    def wait_for_failure(self, seconds: float = JVM_IS_GONE_WITHIN) -> SparkLost | None:
        """The same, for a caller whose call of Spark has just failed: the watch checks twice per second."""
        deadline = time.monotonic() + seconds + CONNECT_ANSWER_LATE
        while self.failure is None and not self._over.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.failure

    def _ask(self) -> None:
        while not self._over.is_set():
            self._asked_at = time.monotonic()
            try:
                ask(self._session)
            except Exception as error:
                self._lose(f"ended the session: {str(error).strip().partition(chr(10))[0].rstrip('.')}.")
                return
            self._asked_at = None
            self._over.wait(CONNECT_ASK_EVERY)

    def _check(self) -> None:
        while not self._over.wait(SPARK_CHECK_EVERY) and self._failure is None:
            asked_at = self._asked_at
            waited = 0.0 if asked_at is None else time.monotonic() - asked_at
            if waited > CONNECT_SILENT_AFTER:
                self._lose(f"has not answered for {CONNECT_SILENT_AFTER:.0f} seconds.")
            elif waited > CONNECT_ANSWER_LATE and (why := self._refusal()):
                self._lose(f"is unreachable: {why}.")

    def _refusal(self) -> str:
        """The connection error, or "" if the port accepts connections or the probe timed out."""
        if self._endpoint is None:
            return ""
        try:
            socket.create_connection(self._endpoint, CONNECT_ANSWER_LATE).close()
        except TimeoutError:
            return ""
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _lose(self, how: str) -> None:
        if self._failure is None:
            self._failure = SparkLost(f"The Spark Connect server {how} {CONSEQUENCE}")


log = logging.getLogger("syphon.spark")

PORT = 15002
"""The port of a Connect server if its address names none."""
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of a setting
REACHED_WITHIN, ANSWERS_WITHIN = 10.0, 60.0
MOST_PARTITIONS = 10_000
"""Rows of the job that asks how many partitions Spark makes by itself: no cluster runs more tasks at once."""
OF_OUR_SESSION = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1"}


class Endpoint(NamedTuple):
    """Where a Connect server listens."""

    host: str
    port: int


def endpoint_of(url: str) -> Endpoint:
    """The endpoint in an address as in sc://host:15002/;use_ssl=true."""
    found = re.fullmatch(r"sc://(?:\[([^\]]+)\]|([^:/;\s]+))(?::(\d{1,5}))?(?:/.*)?", url)
    if found is None:
        raise SparkNotStarted(
            f"{shown_master(url)} is not the address of a Spark Connect server: write sc://host:15002."
        )
    return Endpoint(found[1] or found[2], int(found[3] or PORT))


def connect_session(pipeline: PipelineSettings) -> SparkSession:
    """Opens a session on the server that `pipeline.master` names. Raises SparkNotStarted in reasonable time.

    PySpark itself would try for ten minutes to reach a server that does not exist.
    """
    endpoint = endpoint_of(pipeline.master)
    Extra.CONNECT.require("Spark Connect")  # PySpark itself would end the process, with exit code 0
    try:
        socket.create_connection(endpoint, REACHED_WITHIN).close()
    except OSError as error:
        place = shown_master(pipeline.master)
        raise SparkNotStarted(
            f"No Spark Connect server can be reached at {place}: {error}. Check pipeline.master."
        ) from None
    opened = _Opening(pipeline)
    opened.start()
    opened.join(ANSWERS_WITHIN)
    if opened.session is None:
        why = opened.error or f"it has not answered for {ANSWERS_WITHIN:.0f} seconds"
        raise SparkNotStarted(f"The Spark Connect server at {shown_master(pipeline.master)} opened no session: {why}")
    return opened.session


class _Opening(threading.Thread):
    """Opens a session in a thread, because a call of a server that does not answer lasts for minutes."""

    def __init__(self, pipeline: PipelineSettings) -> None:
        super().__init__(name="open a Connect session", daemon=True)
        self._settings = {key: value.get_secret_value() for key, value in pipeline.spark.items()}
        token = self._settings.get(TOKEN)
        self._url = pipeline.master if token is None else _with_parameter(pipeline.master, "token", token)
        self.session: SparkSession | None = None
        self.error = ""

    def run(self) -> None:
        from pyspark.sql import SparkSession

        try:
            session = SparkSession.builder.remote(self._url).getOrCreate()
            chosen = {key: value for key, value in self._settings.items() if key.startswith("spark.sql.")}
            for key, value in (OF_OUR_SESSION | chosen).items():
                session.conf.set(key, value)
            self.session = session
        except Exception as error:
            self.error = str(error).strip().partition("\n")[0]


def _with_parameter(url: str, name: str, value: str) -> str:
    head, found, rest = url.partition("/;")
    return f"{head.rstrip('/')}/;{rest + ';' if found else ''}{name}={value}"


def warn_of_plain_connection(session: Any) -> None:
    """Warns if the plans of jobs, which hold connection strings, pass a network without encryption."""
    builder = getattr(session.client, "_builder", None)
    host = str(getattr(builder, "host", "localhost"))
    if not getattr(builder, "secure", True) and not is_this_machine(host):
        log.warning(
            "the connection to the Spark Connect server at %s is not encrypted: anyone on the network path can read "
            "connection strings. Add use_ssl=true to its address",
            host,
        )


class ConnectAccess:
    """The access to a session of Spark Connect."""

    def __init__(self, session: SparkSession) -> None:
        self._session: Any = session  # its client is not declared on the classic class
        self._inherited: frozenset[str] = frozenset()

    def setting(self, key: str, default: str) -> str:
        from pyspark.errors import PySparkException

        try:
            return str(self._session.conf.get(key, default))
        except PySparkException:
            return default  # a managed server may not tell

    def ship(self) -> None:
        """As an artifact of the session, which keeps it."""
        with tempfile.TemporaryDirectory() as own:
            self._session.addArtifacts(str(package_zip(Path(own))), pyfile=True)

    def most_slots(self) -> int:
        from pyspark.sql import functions as f

        parts = self._session.range(0, MOST_PARTITIONS).select(f.spark_partition_id().alias("part"))
        found = int(parts.agg(f.max("part")).collect()[0][0]) + 1
        # A user may have set any number of partitions. Of a cluster, nothing else is known here.
        return min(found, cores_of(self.setting("spark.master", "")) or found)

    def inherit(self) -> None:
        self._inherited = frozenset(self._session.getTags())

    def describe_job(self, pair: str, what: str) -> None:  # noqa: ARG002
        """Connect has neither pools nor descriptions. It has tags: `interruptTag` stops the jobs of a pair."""
        for tag in {*self._inherited, f"syphon-{pair}"}:
            self._session.addTag(tag)

    def watched(self, control: SlotControl, job: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Connect shows neither the stages nor the executors of its server."""
        return nullcontext()

    def is_lost(self) -> bool:
        """Asks the server. If it is unreachable, that takes minutes: the watch notices sooner, and ends the drain."""
        try:
            ask(self._session)
        except Exception:
            return True
        return False

    def watch(self) -> ConnectWatch:
        return ConnectWatch(self._session, self._endpoint())

    def control_host(self, pipeline: PipelineSettings) -> ControlHost:
        """Executors report to this process: `spark.driver.host` in the settings says where they find this machine.

        Without it, it is the address by which this machine reaches the server.
        """
        chosen = {key: value.get_secret_value() for key, value in pipeline.spark.items()}
        host = chosen.get("spark.driver.host") or self._own_address()
        return ControlHost(host, chosen.get("spark.driver.bindAddress", host))

    def _own_address(self) -> str:
        endpoint = self._endpoint()
        if endpoint is None or is_this_machine(endpoint.host):
            return "127.0.0.1"
        family, kind, protocol, _, address = socket.getaddrinfo(*endpoint, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as route:
            route.connect(address)  # sends nothing
            return str(route.getsockname()[0])

    def _endpoint(self) -> Endpoint | None:
        """Where the server is, as far as this version of PySpark says."""
        builder = getattr(self._session.client, "_builder", None)
        found = str(getattr(builder, "endpoint", ""))
        with suppress(SparkNotStarted):
            return endpoint_of(f"sc://{found}")
        return None

    def stop(self, within: float) -> None:
        stopping = threading.Thread(target=self._stop, name="stop Spark Connect", daemon=True)
        stopping.start()
        stopping.join(within)
        # PySpark would take every later session of this process for one of Connect.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)

    def _stop(self) -> None:
        with suppress(Exception):
            self._session.stop()
