"""A classic session: Spark's driver is a JVM that syphon starts, small and quiet, or that another program has started.

Settings reach Spark through a file that only this user can read, and not through the command line of the JVM: they may
hold the key of the ledger's storage account. The stderr of Spark and its JVM goes to the log `syphon.spark`.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from syphon.config import PipelineSettings
from syphon.control import SlotControl
from syphon.model import SyphonError
from syphon.time_budget import (
    EXECUTORS_CHECK_EVERY,
    EXECUTORS_REGISTER_WITHIN,
    EXECUTORS_SETTLE,
    JVM_IS_GONE_WITHIN,
)

from . import jvm_archive
from .java import java_environment
from .job_watch import watched
from .security import PRIVATE, SAFE_PATH, private_folders
from .session_access import ControlHost, SparkLost, SparkWatch, cores_of, package_zip

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile
    from pyspark.sql import SparkSession


CONVERTERS = ("NumpyScalarConverter", "NumpyArrayConverter")
"""The converters of PySpark for what comes from NumPy."""


def avoid_loading_numpy() -> None:
    """Lets the converters for NumPy answer without NumPy. It may be called again."""
    import pyspark.sql.types  # noqa: F401  it registers the converters
    from py4j.protocol import INPUT_CONVERTER

    for converter in INPUT_CONVERTER:
        if type(converter).__name__ in CONVERTERS and not isinstance(converter.can_convert, partial):
            converter.can_convert = partial(_can_convert, converter.can_convert)


def _can_convert(ask: Callable[[object], bool], value: object) -> bool:
    return "numpy" in sys.modules and ask(value)


class JvmWatch(SparkWatch):
    """Says whether the JVM has ended."""

    def __init__(self, jvm: subprocess.Popen[bytes] | None) -> None:
        """`jvm` is None if another program started it: then only calls of Spark tell that it is gone."""
        super().__init__()
        self._jvm = jvm

    @property
    def failure(self) -> SparkLost | None:
        """Why Spark can no longer work; None while its JVM runs."""
        code = self._jvm.poll() if self._jvm is not None and not self._over.is_set() else None
        if code is None:
            return None
        how = f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"
        return SparkLost(f"Spark's JVM {how}. No message is lost: those in flight are redelivered.")

    def wait_for_failure(self, seconds: float = JVM_IS_GONE_WITHIN) -> SparkLost | None:
        """The same, for a caller whose call of Spark has just failed: a process that dies closes its sockets first."""
        if self._jvm is not None and not self._over.is_set():
            with suppress(subprocess.TimeoutExpired):
                self._jvm.wait(seconds)
        return self.failure

    def kill(self) -> None:
        if self._jvm is not None:
            with suppress(OSError):
                self._jvm.kill()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


log = logging.getLogger("syphon.spark")

SMALL_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms48m -XX:MaxNewSize=48m "
    "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
)
"""The driver plans small jobs, and waits. Without these options Java would start with a sixty-fourth of the memory."""
MALLOC_ARENAS = "2"
"""For the JVM and Python's workers: the C library would keep eight heaps for each core of the machine."""
STOP_PART = 0.6
"""The part of the time that Spark has to stop in order. In the rest, its JVM ends by itself or is killed."""


class SparkNotStarted(SyphonError):
    """Spark could not be started."""


class ClassicAccess:
    """The access to a classic session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._inherited: Any = None

    def setting(self, key: str, default: str) -> str:
        return str(self._session.sparkContext.getConf().get(key, default))

    def ship(self) -> None:
        """As a file of the session, kept as long as the session: an executor that starts later fetches it, too."""
        context = self._session.sparkContext
        if cores_of(str(context.master)) is not None:
            return
        from pyspark import SparkFiles

        kept = Path(SparkFiles.getRootDirectory()) / "of-syphon"  # only this user may enter it
        kept.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as own:
            made = package_zip(Path(own))
            file = kept / made.name
            if file.exists():
                return  # by an earlier call in this session
            made.rename(file)
        try:
            context.addPyFile(str(file))
        except Exception:
            file.unlink()  # the next call ships it
            raise

    def most_slots(self) -> int:
        """What the registered executors run at once. `defaultParallelism` may be any number that a user has set."""
        found, since = self._places(), time.monotonic()
        while self._is_new and (not found or time.monotonic() - since < EXECUTORS_SETTLE):
            time.sleep(EXECUTORS_CHECK_EVERY)
            if (places := self._places()) != found:
                found, since = places, time.monotonic()
        if self.setting("spark.dynamicAllocation.enabled", "false").strip().lower() == "true":
            found *= 2  # tasks that wait make Spark ask for executors
        return max(1, found)

    def _places(self) -> int:
        from py4j.protocol import Py4JError

        context = self._session.sparkContext
        try:
            core, profile = context._jsc.sc(), slot_profile(context)
            default = core.resourceProfileManager().defaultResourceProfile()
            return int(core.maxNumConcurrentTasks(profile._java_resource_profile if profile is not None else default))
        except Py4JError:  # a managed platform may forbid the call
            return int(context.defaultParallelism)

    @property
    def _is_new(self) -> bool:
        """Whether executors of a cluster may still be about to register for the first time."""
        context = self._session.sparkContext
        age = time.time() - context.startTime / 1000
        return cores_of(str(context.master)) is None and age < EXECUTORS_REGISTER_WITHIN

    def inherit(self) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError, AttributeError):  # a managed platform may forbid the call, or Spark has stopped
            self._inherited = self._session.sparkContext._jsc.sc().getLocalProperties().clone()

    def describe_job(self, pair: str, what: str) -> None:
        context = self._session.sparkContext
        if self._inherited is not None:
            context._jsc.sc().setLocalProperties(self._inherited.clone())
        # Each pair has a scheduler pool of its own: in the common pool, jobs wait for each other.
        for key, ours in (("spark.scheduler.pool", pair), ("spark.jobGroup.id", f"syphon {pair}")):
            if context.getLocalProperty(key) is None:
                context.setLocalProperty(key, ours)
        of_caller = context.getLocalProperty("spark.job.description")
        context.setJobDescription(f"{of_caller} – syphon: {what}" if of_caller else f"syphon: {what}")

    def watched(self, control: SlotControl, job: str) -> AbstractContextManager[None]:
        return watched(self._session.sparkContext, control, job)

    def is_lost(self) -> bool:
        from py4j.protocol import Py4JError

        try:
            return bool(self._session.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            return True

    def watch(self) -> JvmWatch:
        return JvmWatch(jvm_of(self._session))

    def control_host(self, pipeline: PipelineSettings) -> ControlHost:  # noqa: ARG002
        """Executors of a cluster reach the control server at the address of Spark's driver, so it listens there."""
        if cores_of(self.setting("spark.master", "local")) is not None:
            return ControlHost("127.0.0.1", self.setting("spark.driver.bindAddress", "127.0.0.1"))
        host = str(self._session.conf.get("spark.driver.host"))
        return ControlHost(host, self.setting("spark.driver.bindAddress", host))

    def stop(self, within: float) -> None:
        stop_session(self._session, within)


def slot_profile(context: SparkContext) -> ResourceProfile | None:
    """What a slot needs, where the session gives each task several cores (`spark.task.cpus`): one of them.

    None where that is what it has anyway, or where Spark has no such profiles: on this machine, and without a cluster
    manager that knows them.
    """
    from py4j.protocol import Py4JError

    if cores_of(str(context.master)) is not None or context.getConf().get("spark.task.cpus", "1") == "1":
        return None
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    try:
        profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build
        context._jsc.sc().resourceProfileManager().isSupported(profile._java_resource_profile)
    except (Py4JError, AttributeError):
        return None
    return profile


def jvm_of(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The process of the driver's JVM; None if another program has started it."""
    gateway = session.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


class Launch:
    """The start of a JVM, which another thread may end: the start then fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jvm: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    @contextmanager
    def of_gateway(self) -> Iterator[None]:
        """Finds the process that PySpark starts in this block: PySpark tells it only when the JVM has answered."""
        from pyspark import java_gateway

        popen = java_gateway.Popen  # type: ignore[attr-defined]

        def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            jvm: subprocess.Popen[bytes] = popen(*arguments, **options)
            with self._lock:
                self._jvm = jvm
                if self._is_ended:
                    jvm.kill()
            return jvm

        java_gateway.Popen = started  # type: ignore[attr-defined, assignment]
        try:
            yield
        finally:
            java_gateway.Popen = popen  # type: ignore[attr-defined]

    def kill(self) -> None:
        """Ends the JVM, also one that is started later."""
        with self._lock:
            self._is_ended = True
            if self._jvm is not None:
                self._jvm.kill()

    def clean_up(self) -> None:
        """Ends the JVM of a start that has failed, and takes it out of PySpark's variables."""
        self.kill()
        if self._jvm is not None:
            self._jvm.wait()
        _forget(None)


def start_session(settings: dict[str, str], folder: Path, launch: Launch | None = None) -> SparkSession:
    """Starts Spark. Only this user may enter the folder, which must stay until Spark has stopped."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    launch = launch or Launch()
    if settings["spark.driver.extraJavaOptions"] == SMALL_JVM:  # the operator has not chosen others
        settings = settings | {"spark.driver.extraJavaOptions": jvm_archive.options_for(SMALL_JVM)}
    is_local = cores_of(settings["spark.master"]) is not None
    if is_local:
        settings = private_folders(folder) | settings
    settings = {"spark.jars.ivy": f"{folder}/ivy"} | settings  # Spark wants a place for jars, also if it fetches none
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # at DEBUG, these log the token of the gateway
    avoid_loading_numpy()
    output = _Stderr()
    output.start()
    try:
        with _properties_file(settings) as file, _environment(settings["spark.pyspark.python"], file, is_local):
            with launch.of_gateway():
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    popen_kwargs={"stderr": output.writer, "stdout": output.writer, "umask": PRIVATE}
                )
            _log_in(gateway)
            context = SparkContext(gateway=gateway)
            _quieten(context)
            return SparkSession(context)  # fails if the cluster has refused the application meanwhile
    except SyphonError:
        raise
    except Exception as error:
        launch.clean_up()
        jvm_archive.distrust(settings["spark.driver.extraJavaOptions"])
        raise SparkNotStarted(output.why(error, settings["spark.master"])) from error
    finally:
        output.close_writer()


@contextmanager
def _environment(python: str, properties: str, is_local: bool) -> Iterator[None]:
    """The environment of the new JVM. Restores the caller's own afterwards: it may start a Spark of its own."""
    needed = {
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", MALLOC_ARENAS),
        # PySpark takes the Python of the executors from the environment alone, and ignores the setting.
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
        **java_environment(os.environ),
        **SAFE_PATH,
    }
    if is_local:  # Spark would resolve the name of the host, also if unused
        needed["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    before = {name: os.environ.get(name) for name in needed}
    os.environ |= needed
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _log_in(gateway: Any) -> None:
    """Gives Hadoop a user if the list of users does not have ours: its own log-in would fail for want of a name.

    OpenShift, for one, gives each namespace user ids of its own.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(os.environ.get("HADOOP_USER_NAME") or f"uid-{os.geteuid()}"))


def _quieten(context: SparkContext) -> None:
    """Keeps tracebacks off stderr when the JVM ends. The caller of Spark gets the error and prints one line."""
    logging.getLogger().addFilter(_is_not_of_py4j)  # it writes to the root logger, too
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *about: log.debug("no more updates of accumulators from Spark: %s", about[1:])


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def stop_session(session: SparkSession, within: float) -> None:
    """Ends Spark and its JVM, which PySpark alone would keep until Python ends. Never raises, and never takes longer.

    An error here would hide the reason of the ending, and a JVM that is frozen answers no call.
    """
    process = jvm_of(session)
    asked = threading.Thread(target=_ask_to_end, args=(session,), name="stop Spark", daemon=True)
    asked.start()
    asked.join(within * STOP_PART)
    if process is not None:
        _end_process(process, within * (1 - STOP_PART))
    _forget(session)


def _ask_to_end(session: SparkSession) -> None:
    gateway = session.sparkContext._gateway
    for step in (session.stop, gateway.shutdown if gateway is not None else None):
        try:
            if step is not None:
                step()
        except Exception:
            log.debug("error while Spark was stopped", exc_info=True)


def _end_process(process: subprocess.Popen[bytes], within: float) -> None:
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()  # the JVM ends when its stdin does
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        log.debug("Spark's JVM did not exit in time; killing it")
        process.kill()
        process.wait()


def _forget(session: SparkSession | None) -> None:
    """Takes the session out of PySpark's own variables: another session may start in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    if SparkSession._instantiatedSession is session:
        SparkSession._instantiatedSession = None
    if SparkSession._activeSession is session:
        SparkSession._activeSession = None


@contextmanager
def _properties_file(settings: dict[str, str]) -> Iterator[str]:
    """A file of settings in Java's format that only this user can read, while Spark needs it."""
    with tempfile.NamedTemporaryFile("w", prefix="syphon-", suffix=".properties", encoding="ascii") as file:
        for key, value in settings.items():
            file.write(f"{_escaped(key)}={_escaped(value)}\n")
        file.flush()
        yield file.name


def _escaped(text: str) -> str:
    """Escapes text for a properties file: Java reads Latin-1, and many characters have a meaning."""
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in "._-/[],*")
        else "".join(
            f"\\u{int.from_bytes(char.encode('utf-16-be')[at : at + 2], 'big'):04x}"
            for at in range(0, len(char.encode("utf-16-be")), 2)
        )
        for char in text
    )


_WARNING = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:WARN|ERROR|FATAL) (?!FairSchedulableBuilder:)(.+)")
"""A line of Spark's log, as it is set up by default. Spark warns of each scheduler pool that no file describes."""


class _Stderr:
    """Logs the stderr of the JVM. Its last lines say why the JVM did not start."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._last: deque[str] = deque(maxlen=30)
        self._reader: IO[str] = os.fdopen(reader, encoding="utf-8", errors="replace")
        self._thread = threading.Thread(target=self._read, name="spark stderr", daemon=True)
        self._has_started = False

    def start(self) -> None:
        self._thread.start()

    def _read(self) -> None:
        with self._reader:
            for line in self._reader:
                text = line.rstrip()
                self._last.append(text)
                found = _WARNING.match(text) if self._has_started else None
                if found is None:
                    log.debug("%s", text)
                else:
                    log.warning("Spark: %s", found[1])

    def close_writer(self) -> None:
        """Spark has started, or could not: what it warns of while it starts is the same each time."""
        self._has_started = True
        os.close(self.writer)

    def why(self, error: Exception, master: str) -> str:
        # The output of the JVM holds the reason; py4j only says that there is no gateway.
        words = [line for line in self._last if "Exception" in line or "Error" in line or "ERROR" in line]
        reason = words[-1] if words else str(error).partition("\n")[0]
        return (
            f"Spark could not be started on {master}: {reason} "
            "(more with --verbose). Check pipeline.master, pipeline.spark and JAVA_HOME."
        )
