"""What syphon needs of a Spark session, whichever kind it is: a classic one (`classic`), or Spark Connect (`connect`).

A classic session shares this process with its driver's JVM. A Connect session is a client of a server: it has no
`sparkContext` and no JVM, so scheduler pools, job descriptions and the watch of a process are done without there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from syphon.config import PipelineSettings
from syphon.control import Ending

from .watch import SparkWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        """How many tasks run at once."""

    def describe_job(self, pair: str, what: str) -> None:
        """Says what the next job of this thread is for. Jobs of different pairs must not wait for each other."""

    def is_lost(self) -> bool:
        """Whether the session cannot be used any more."""

    def watch(self, ending: Ending, ends_process: bool) -> SparkWatch:
        """What notices the loss of Spark while nothing calls it."""

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
