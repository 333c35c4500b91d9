"""After a fork the child gets a clear error, and never uses the parent's connections."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.sender.conftest import PairedEmulator


@pytest.mark.parametrize("api", ["sync", "aio"])
def test_a_child_process_gets_a_clear_error_and_can_make_a_pair_of_its_own(paired: PairedEmulator) -> None:  # F1
    sides = (paired.emulator[name].connection_string for name in ("contoso", "contoso-dr"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.sender.forked_application", paired.api.name, *sides],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    bodies = [next(iter(message.body)) for message in paired.take("orders", 3)]
    assert sorted(bodies) == [b"after", b"before", b"child"]
    assert paired.sends("orders") == 3
    assert paired.in_backlog() == 0
