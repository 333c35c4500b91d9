"""A process that owns a pair: it keeps both namespaces open, applies the five-second rule, and ends when both have.

`python -m tests.faults.pair_owner`, with connection strings in PRIMARY and SECONDARY. It prints state changes as JSON
lines, with its own monotonic times.
"""

from __future__ import annotations

import json
import os
import select
import time

from pydantic import SecretStr

from syphon.config import SideSettings
from syphon.model import ExitCode
from syphon.model.errors import Faulted
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.namespace import Namespace
from syphon.servicebus.pair import Pair


def main() -> ExitCode:
    primary, secondary = reach("PRIMARY"), reach("SECONDARY")
    pair = Pair(primary, secondary)
    printed: dict[Namespace, str] = {}
    while not pair.has_ended:
        for side in pair.sides:
            keep_open(side)
        pair.check()
        for name, side in (("primary", primary), ("secondary", secondary)):
            state = state_of(side)
            if state != printed.get(side):
                printed[side] = state
                print(json.dumps({"side": name, "is": state, "at": side.since, "why": str(side.reason)}), flush=True)
    return ExitCode.FAULTED if pair.fault is not None else ExitCode.OK


def reach(name: str) -> Namespace:
    return namespace_of(SideSettings(connection_string=SecretStr(os.environ[name])), "")


def keep_open(side: Namespace) -> None:
    try:
        connection = side.connection()
    except Faulted:
        return
    if connection is None:
        time.sleep(0.02)
        return
    connection.wire.flush()
    select.select([connection.wire], [], [], 0.02)
    connection.read()
    connection.tick()


def state_of(side: Namespace) -> str:
    if side.has_ended:
        return str(side.status)
    return "unreachable" if side.error is not None else "opened"


if __name__ == "__main__":
    raise SystemExit(main())
