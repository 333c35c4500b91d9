"""A pump in its own process, to be signalled and killed: `python -m tests.faults.pump_process OPTIONS`.

It does the work of a slot, without Spark. Connection strings are in PRIMARY and SECONDARY, their transport is in
TRANSPORT, options are JSON. SIGTERM stops it gracefully. At its end it prints its counters as a line of JSON, and exits
with the code of a command.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from syphon.config import SideSettings, Transport
from syphon.model import EntityPath, ExitCode
from syphon.model.errors import DestinationError, Faulted, NotAuthorized, SyphonError
from syphon.model.outcomes import Outcome
from syphon.servicebus import wire_session
from syphon.servicebus.factory import namespace_of
from syphon.transfer import MovePlan, destination
from syphon.transfer.pump import PERMANENT, Ended, Pump, PumpOptions
from tests.faults.environment import PRIMARY, SECONDARY

FOREVER = 1e9
WINDOW = 200
"""The messages that it may have in flight. When it is killed, no more than these can arrive twice."""


def main(options: dict[str, Any]) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("azure").setLevel(logging.ERROR)
    if "silence" in options:  # the default is a minute, which is too long for a test
        vars(wire_session)["WIRE_SILENCE"] = vars(destination)["SEND_ANSWER_WITHIN"] = options["silence"]
    reasons: Counter[str] = Counter()

    def record(outcome: Outcome) -> None:
        reasons[outcome.reason] += bool(outcome.reason)

    queue, transport = options["queue"], Transport(os.environ["TRANSPORT"])
    primary, secondary = (
        namespace_of(SideSettings(connection_string=SecretStr(os.environ[side]), transport=transport), entity)
        for side, entity in (("PRIMARY", ""), ("SECONDARY", queue))
    )
    bounds = PumpOptions(
        window=options.get("window", WINDOW),
        quiet=FOREVER,
        lease=None,
        grace=10.0,
        linger=FOREVER,
        lock=options["lock"],
        move=move_to(options["move"]) if "move" in options else None,
        permanent=PERMANENT | {type(DestinationError(name).error("")) for name in options.get("give_up", ())},
    )
    pump = Pump(secondary, primary, record, bounds)
    pump.serve(queue)
    pump.rate = options.get("rate")
    signal.signal(signal.SIGTERM, lambda *_: pump.stop())
    print("ready", file=sys.stderr, flush=True)
    error: SyphonError | None = None
    missed: set[str] = set()
    try:
        for _ in pump.turns():
            served = pump.queues[queue]
            if not served.is_served and served.ended is Ended.PRIMARY_UNREACHABLE:
                pump.serve(queue)  # as a worker does: the primary may take long to return
            elif not served.is_served:
                pump.stop()
            for name, side in ((PRIMARY, primary), (SECONDARY, secondary)):
                if side.error is not None and name not in missed:
                    missed.add(name)
                    print(f"{name} is unreachable", file=sys.stderr, flush=True)
    except SyphonError as caught:
        error = caught
    for side in (secondary, primary):
        side.close()
    counters = {field.name: getattr(pump.counters, field.name) for field in fields(pump.counters)}
    print(json.dumps({**counters, "reasons": reasons, "error": str(error or ""), "megabytes": megabytes()}), flush=True)
    return exit_code(error)


def move_to(target: str) -> MovePlan:
    """A move of all messages to one entity, as they are."""
    return MovePlan("source", EntityPath.of(target))


def megabytes() -> int:
    """The peak memory of this process. getrusage would include the process that it was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def exit_code(error: SyphonError | None) -> ExitCode:
    if error is None:
        return ExitCode.OK
    if isinstance(error, NotAuthorized):
        return ExitCode.NOT_AUTHORIZED
    return ExitCode.FAULTED if isinstance(error, Faulted) else ExitCode.UNAVAILABLE


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
