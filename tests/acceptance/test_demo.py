"""What the README promises of `make demo`."""

from __future__ import annotations

import subprocess
import sys


def test_the_demo_moves_every_message_and_says_so() -> None:
    command = [sys.executable, "-m", "syphon", "demo", "--messages", "90"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "91 received = 90 forwarded + 1 dead-lettered + 0 left" in done.stdout
    assert "90 of 90 arrived; sessions and time to live are as the senders set them" in done.stdout
    assert "x-ms-path" in done.stdout
    assert "Nothing was lost." in done.stdout
    assert done.stderr == ""
