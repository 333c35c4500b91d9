"""CPU time, memory, files and sockets of a process and its descendants, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PARENT, USER, SYSTEM, ENDED_CHILDRENS_SYSTEM = 1, 11, 12, 14
"""Positions in /proc/PID/stat after the name. From USER on: four times, of the process and its children."""


@dataclass(frozen=True)
class Usage:
    """The sum over a process and its descendants at one moment."""

    processes: int
    megabytes: float
    """Proportional: a page that several processes share counts once."""
    descriptors: int
    sockets: int


def usage(pid: int) -> Usage:
    found = tree(pid)
    files = [file for process in found for file in _files(process)]
    sockets = sum(file.startswith("socket:") for file in files)
    return Usage(len(found), sum(map(_proportional, found)) / 1024, len(files), sockets)


def cpu(pid: int) -> float:
    """CPU seconds so far. The time of ended children counts if their parents waited for them, and is lost otherwise."""
    return sum(_seconds(process, ENDED_CHILDRENS_SYSTEM) for process in tree(pid))


def own_cpu(pid: int) -> float:
    """CPU seconds of the process without its descendants."""
    return _seconds(pid, SYSTEM)


def peak_megabytes(pid: int) -> float:
    """The sum of the peaks of all processes. A page that several of them share counts for each."""
    return sum(_field(process, "status", "VmHWM") for process in tree(pid)) / 1024


def tree(pid: int) -> list[int]:
    children = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children[int(stat[PARENT])].append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children[parent]
    return found


def _seconds(pid: int, last: int) -> float:
    return sum(map(int, _stat(pid)[USER : last + 1])) / TICKS


def _stat(pid: int) -> list[str]:
    """The fields after the name; empty if the process has ended."""
    return _read(lambda: (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split())


def _files(pid: int) -> list[str]:
    folder = PROC / str(pid) / "fd"
    return [target for name in _read(lambda: os.listdir(folder)) for target in _link(folder / name)]


def _link(file: Path) -> list[str]:
    return _read(lambda: [os.readlink(file)])


def _proportional(pid: int) -> int:
    return _field(pid, "smaps_rollup", "Pss")


def _field(pid: int, file: str, name: str) -> int:
    """Kilobytes; 0 if the process has ended."""
    lines = _read(lambda: (PROC / str(pid) / file).read_text().splitlines())
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _read(read: Callable[[], list[str]]) -> list[str]:
    try:
        return read()
    except OSError:
        return []
