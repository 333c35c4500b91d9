"""Masters of Spark: which ones are on this machine, how many tasks they run at once, and how they are shown."""

from __future__ import annotations

import re

from .container_limits import this_container

TASK_FAILURES = 4
"""How often a task may fail. The default of local mode is one failure: a killed worker would end the job."""
CONNECT = "sc://"
"""How the address of a Spark Connect server begins."""


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
