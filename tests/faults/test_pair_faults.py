"""The five-second rule with real processes: two emulators, an owner of the pair, a kill, a changed key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syphon.model import ExitCode
from tests.support.cli_process import Syphon, syphon

KEYS = ("the-first-key", "the-second-key")


@dataclass
class Site:
    """A namespace in its own process, which can be killed and restarted on its port, with another key."""

    name: str
    folder: Path
    port: int = 0
    connection_string: str = ""

    @contextmanager
    def running(self, key: str) -> Iterator[Syphon]:
        config = self.folder / f"{self.name}.yaml"
        config.write_text(
            f"namespaces:\n  - name: {self.name}\n    amqp_port: {self.port}\n    http_port: 0\n"
            f"    policies: [{{name: owner, key: {key}}}]\n"
        )
        with syphon("emulator", "--json", "--config", str(config)) as process:
            (found,) = json.loads(process.stdout_until("\n"))["namespaces"]
            self.connection_string = found["connection_string"]
            self.port = int(self.connection_string.split(";")[0].rpartition(":")[2])
            yield process


@dataclass
class Owner:
    """The process that owns the pair, and the lines that it has printed."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def tells(self, side: str, state: str) -> dict[str, Any]:
        """Waits for a new line with this state."""
        while True:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, f"it ended with {self.process.wait()}, before {side} was {state}: {self.lines}"
            self.lines.append(json.loads(line))
            if (self.lines[-1]["side"], self.lines[-1]["is"]) == (side, state):
                return self.lines[-1]


def test_the_open_side_is_faulted_five_seconds_after_its_partner(tmp_path: Path) -> None:  # C1, C2, C3
    primary, secondary = Site("contoso", tmp_path), Site("contoso-dr", tmp_path)
    with ExitStack() as stack:
        first = stack.enter_context(primary.running(KEYS[0]))
        stack.enter_context(secondary.running(KEYS[0]))
        owner = stack.enter_context(owner_of(primary, secondary))
        owner.tells("primary", "opened")
        owner.tells("secondary", "opened")

        first.stop(signal.SIGKILL)  # an outage, not a fault
        owner.tells("primary", "unreachable")
        second = stack.enter_context(primary.running(KEYS[0]))
        owner.tells("primary", "opened")

        second.stop(signal.SIGKILL)
        owner.tells("primary", "unreachable")
        stack.enter_context(primary.running(KEYS[1]))
        fault = owner.tells("primary", "faulted")
        assert "credentials were refused" in fault["why"]
        consequence = owner.tells("secondary", "faulted")

        assert consequence["at"] - fault["at"] >= 4.9  # how late it may be, the simulation asks on its own clock
        assert f":{primary.port}" in consequence["why"]
        assert f":{secondary.port}" in consequence["why"]
        assert owner.process.wait(20) == ExitCode.FAULTED
        assert not any(key in str(owner.lines) for key in KEYS)


@contextmanager
def owner_of(primary: Site, secondary: Site) -> Iterator[Owner]:
    environment = {**os.environ, "PRIMARY": primary.connection_string, "SECONDARY": secondary.connection_string}
    command = [sys.executable, "-m", "tests.faults.pair_owner"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Owner(process)
        finally:
            if process.poll() is None:
                process.kill()
