"""The loop in JavaScript: `@azure/service-bus` in node, written as in its samples. See node/loop.cjs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.task import Task
from bench.watch import Watch

SOURCE = Path(__file__).parent / "node"
PACKAGES = Path(__file__).parents[1] / ".tools" / "bench-node"


def missing() -> str:
    """Why it cannot run here; empty if it can."""
    if not (shutil.which("node") and shutil.which("npm")):
        return "node or npm is not installed"
    try:
        _packages()
    except subprocess.SubprocessError:
        return "npm could not get its packages"
    return ""


def node(task: Task, watch: Watch) -> None:
    environment = {**task.environment(), "NODE_PATH": str(_packages() / "node_modules")}
    command = ["node", str(SOURCE / "loop.cjs")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        for line in process.stdout:
            word, _, reason = line.strip().partition(" ")
            if word == "ready":
                watch.begin(process.pid)
            elif word in ("done", "stopped"):
                watch.stopped = reason
                watch.end()
                break
            else:
                watch.add(int(word))
        process.communicate()


def _packages() -> Path:
    """The folder of the npm packages. They are installed again only if the lock file changes."""
    lock = (SOURCE / "package-lock.json").read_bytes()
    stamp = PACKAGES / ".installed"
    if not stamp.exists() or stamp.read_bytes() != lock:
        PACKAGES.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / name, PACKAGES)
        command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        subprocess.run(command, cwd=PACKAGES, stdout=subprocess.DEVNULL, check=True, timeout=200)  # noqa: S603
        stamp.write_bytes(lock)
    return PACKAGES
