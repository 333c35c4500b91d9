"""Spark: where slots run. The session, jobs, the task that Spark runs, and Java.

Its names are loaded when they are first used. A task on an executor imports this package, too, and has no use for most
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .connect import warn_of_plain_connection
    from .jobs import JobResult, Jobs, new_job
    from .session import active_session, check_session, session_for_queries, spark_session
    from .session_access import (
        CONNECT,
        SparkAccess,
        SparkLost,
        SparkWatch,
        access_to,
        cores_of,
        is_connect,
        shown_master,
    )

_MODULES = {
    "connect": ("warn_of_plain_connection",),
    "jobs": (
        "JobResult",
        "Jobs",
        "new_job",
    ),
    "session": (
        "active_session",
        "check_session",
        "session_for_queries",
        "spark_session",
    ),
    "session_access": (
        "CONNECT",
        "SparkAccess",
        "SparkLost",
        "SparkWatch",
        "access_to",
        "cores_of",
        "is_connect",
        "shown_master",
    ),
}
__all__ = [
    "CONNECT",
    "JobResult",
    "Jobs",
    "SparkAccess",
    "SparkLost",
    "SparkWatch",
    "access_to",
    "active_session",
    "check_session",
    "cores_of",
    "is_connect",
    "new_job",
    "session_for_queries",
    "shown_master",
    "spark_session",
    "warn_of_plain_connection",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
