"""How many cores and how much memory this process may use: the limits of its container, not those of the machine.

`os.cpu_count` sees all cores of a node, where a container has a quota of two. The limits of control groups (version 1
and 2) hold for a group and all groups below it, so the tightest one on the way from this process's group to the root
counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath

MIB = 1024 * 1024
DRIVER_MEMORY = 480 * MIB
"""The driver's Python (115 MB) and its JVM (330 MB) with ten queues, and the process that workers are forked from."""
SLOT_MEMORY = 150 * MIB
"""A Python worker that forwards: 106 MB once it has loaded what rows are made with, and its messages in flight."""
FEWEST_SLOTS = 2
"""One slot may be busy with a queue that is full; the other one serves queues that ring in the meantime."""
ROOT = "SYPHON_SYSTEM_ROOT"
"""The folder that has /proc and /sys, if it is not the root. Tests pretend with it to run in a container."""


@dataclass(frozen=True, slots=True)
class Container:
    """What this process may use."""

    cores: int
    memory: int
    """In bytes."""

    @property
    def slots(self) -> int:
        """How many slots `local[*]` runs at once: one for each core, and no more than the memory allows.

        A slot serves many queues. More slots than cores would only take memory.
        """
        by_memory = (self.memory - DRIVER_MEMORY) // SLOT_MEMORY
        return max(FEWEST_SLOTS, min(self.cores, by_memory))


def this_container(environ: Mapping[str, str] = os.environ) -> Container:
    """The limits of this process. PYTHON_CPU_COUNT overrides the number of cores, as it does in Python 3.13."""
    root = Path(environ.get(ROOT, "/"))
    told = environ.get("PYTHON_CPU_COUNT", "")
    cores = int(told) if told.isdigit() and int(told) else _usable_cores()
    quota = _cpu_quota(root)
    return Container(cores if quota is None else max(1, min(cores, ceil(quota))), _memory(root))


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on Linux
        return os.cpu_count() or 1


def _cpu_quota(root: Path) -> float | None:
    """The cores that all processes of the container may use together; None without a limit."""
    quotas = []
    for folder in _groups(root, "cpu"):
        words = _words(folder / "cpu.max") or [
            *_words(folder / "cpu.cfs_quota_us"),
            *_words(folder / "cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _memory(root: Path) -> int:
    """The memory limit, or the memory of the machine if that is less: "unlimited" is a large number in version 1."""
    limits = [
        int(words[0])
        for folder in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (words := _words(folder / name)) and words[0].isdigit()
    ]
    return min([*limits, _machine_memory(root)])


def _machine_memory(root: Path) -> int:
    words = _words(root / "proc/meminfo") or _words(Path("/proc/meminfo"))
    if "MemTotal:" in words:
        return int(words[words.index("MemTotal:") + 1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of all groups above it, those that exist.

    Inside a container the path of the group may be that on the host, which is not there; the container's own group is
    then what it sees as the root.
    """
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [root / "sys/fs/cgroup"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / name for name in (controllers, controller)]
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            yield from (mount / each for each in (group, *group.parents) if (mount / each).is_dir())


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()
