"""Spark: where slots run. The session, jobs, the task that Spark runs, and Java.

Its names are loaded when they are first used. A task on an executor imports this package, too, and has no use for most
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .classic import Launch as Launch
    from .connect import warn_of_plain_connection as warn_of_plain_connection
    from .jobs import JobResult as JobResult
    from .jobs import Jobs as Jobs
    from .jobs import PythonUnusable as PythonUnusable
    from .jobs import check_python as check_python
    from .jobs import new_job as new_job
    from .session import active_session as active_session
    from .session import check_session as check_session
    from .session import check_start as check_start
    from .session import prepare_start as prepare_start
    from .session import session_for_queries as session_for_queries
    from .session import spark_session as spark_session
    from .session_access import CONNECT as CONNECT
    from .session_access import EndingGuard as EndingGuard
    from .session_access import SparkLost as SparkLost
    from .session_access import SparkWatch as SparkWatch
    from .session_access import access_to as access_to
    from .session_access import cores_of as cores_of
    from .session_access import is_connect as is_connect
    from .session_access import shown_master as shown_master
else:
    _MODULES = {
        "classic": ("Launch",),
        "connect": ("warn_of_plain_connection",),
        "jobs": ("JobResult", "Jobs", "PythonUnusable", "check_python", "new_job"),
        "session": (
            "active_session",
            "check_session",
            "check_start",
            "prepare_start",
            "session_for_queries",
            "spark_session",
        ),
        "session_access": (
            "CONNECT",
            "EndingGuard",
            "SparkLost",
            "SparkWatch",
            "access_to",
            "cores_of",
            "is_connect",
            "shown_master",
        ),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
