"""What syphon needs of a Spark session, whichever kind it is: a classic one (`classic`), or Spark Connect (`connect`).

A classic session shares this process with its driver's JVM. A Connect session is a client of a server: it has no
`sparkContext` and no JVM, so it does without scheduler pools, job descriptions and the watch of a process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from syphon.config import PipelineSettings
from syphon.control import Ending, SlotControl
from syphon.model import SyphonError
from syphon.time_budget import JVM_IS_GONE_WITHIN, SPARK_CHECK_EVERY

from .container_limits import this_container

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TASK_FAILURES = 4
"""How often a task may fail. The default of local mode is one failure: a killed worker would end the job."""
CONNECT = "sc://"
"""How the address of a Spark Connect server begins."""
TOO_LONG = "shutdown took too long and was aborted; no message is lost: those in flight are redelivered"


class ControlHost(NamedTuple):
    """Where slots find the control server, and the address that it listens on."""

    host: str
    listen: str


class SparkAccess(Protocol):
    """What syphon asks of a Spark session. Classic sessions and Spark Connect implement it."""

    def setting(self, key: str, default: str) -> str:
        """A setting of the session."""

    def ship(self) -> None:
        """Makes the code of syphon available to tasks, as often as it is called. Their dependencies must be installed
        where they run.
        """

    def most_slots(self) -> int:
        """How many tasks run at once, with the executors that Spark has at the time of the call."""

    def inherit(self) -> None:
        """Remembers what the calling thread has set for its jobs: group, tags, pool, description. It may cancel ours by
        them, although they run in other threads.
        """

    def describe_job(self, pair: str, what: str) -> None:
        """Says what the next job of this thread is for. Jobs of different pairs must not wait for each other."""

    def watched(self, control: SlotControl, job: str) -> AbstractContextManager[None]:
        """Watches the job that this thread runs meanwhile: for Spark's UI, and for executors that leave."""

    def is_lost(self) -> bool:
        """Whether the session can no longer be used."""

    def watch(self) -> SparkWatch:
        """Makes the watch that notices the loss of Spark while nothing calls it."""

    def control_host(self, pipeline: PipelineSettings) -> ControlHost:
        """Where the control server of this process listens, and the address that slots find it at."""

    def stop(self, within: float) -> None:
        """Ends a session that syphon has started. Never raises, and never takes longer."""


def is_connect(session: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def access_to(session: SparkSession) -> SparkAccess:
    """The access to a session."""
    if is_connect(session):
        from .connect import ConnectAccess

        return ConnectAccess(session)
    from .classic import ClassicAccess

    return ClassicAccess(session)


# --- masters ---------------------------------------------------------------------------------------------------------


def cores_of(master: str) -> int | None:
    """How many tasks a local master runs at once; None for a cluster, which decides itself.

    `local[*]` is as many as the container has cores and memory for.
    """
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[(\*|\d+)(?:,\s*(?:\*|\d+))?\]", master)
    if found is None:
        return None
    return this_container().slots if found[1] == "*" else int(found[1])


def spark_master(master: str) -> str:
    """The master as Spark gets it: a local one with several failures allowed for each task."""
    cores = cores_of(master)
    return master if cores is None or master.count(",") else f"local[{cores},{TASK_FAILURES}]"


def shown_master(master: str) -> str:
    """The master for people: the address of a Connect server may have parameters, a token among them."""
    return master.partition("/;")[0] if master.startswith(CONNECT) else master


# --- the loss of Spark -----------------------------------------------------------------------------------------------


class SparkLost(SyphonError):
    """Spark has stopped without being told to."""


class SparkWatch:
    """Says whether Spark is lost."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to watch, if that takes a thread."""

    def stop(self) -> None:
        """Spark is about to be ended on purpose: that is no loss."""
        self._over.set()

    @property
    def failure(self) -> SparkLost | None:
        """Why Spark can no longer work; None while it can, as far as is known."""
        return None

    def wait_for_failure(self, seconds: float = JVM_IS_GONE_WITHIN) -> SparkLost | None:  # noqa: ARG002
        """The same, for a caller whose call of Spark has just failed: the reason may show a moment later."""
        return self.failure

    def kill(self) -> None:
        """Ends what this process has started and would leave behind."""


class EndingGuard:
    """Ends this process if its own shutdown takes too long."""

    def __init__(self, ending: Ending, kill: Callable[[], None]) -> None:
        """`kill` ends the Spark that this process would leave behind."""
        self._ending = ending
        self._kill = kill
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="ending guard", daemon=True).start()

    def stop(self) -> None:
        """There is nothing more to guard, unless the process was told to end: its time is still watched."""
        self._over.set()

    def _run(self) -> None:
        while not self._ending.is_overdue:
            time.sleep(SPARK_CHECK_EVERY)
            if self._over.is_set() and not self._ending.has_begun:
                return
        self._kill()
        # In another thread: whatever holds up the ending may hold the log as well.
        said = threading.Thread(target=log.error, args=(TOO_LONG,), daemon=True)
        said.start()
        said.join(SPARK_CHECK_EVERY)
        os._exit(self._ending.exit_code)


# --- the code of syphon, for executors that do not have it -----------------------------------------------------------


PACKAGE = Path(__file__).parents[1]


def package_zip(folder: Path) -> Path:
    """Writes the package into a folder. Equal code gives an equal file, wherever and whenever it was installed.

    Its name has a digest of the code: a session keeps a file, and refuses another one of the same name.
    """
    place = folder / "syphon.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            info = zipfile.ZipInfo(str(Path("syphon") / file.relative_to(PACKAGE)))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.read_bytes())
    digest = hashlib.sha256(place.read_bytes()).hexdigest()[:12]
    return place.rename(place.with_name(f"syphon-{digest}.zip"))
