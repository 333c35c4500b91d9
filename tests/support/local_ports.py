"""What another user of this machine can see of a process: the TCP ports it listens on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LISTENS = "0A"


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    own = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed just now
            own.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == LISTENS and f"socket:[{inode}]" in own:
                found.add(int(local.rpartition(":")[2], 16))
    return found
