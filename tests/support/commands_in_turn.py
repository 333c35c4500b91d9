"""Commands one after the other in one process, which starts Spark once.

`python -m tests.support.commands_in_turn FILE JSON`
They are the real commands, and use an existing session as they do on a managed cluster.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from syphon.cli import main
from syphon.config import load_config
from syphon.spark.session import spark_session

MARK = "@@@ "


def run(config: Path, commands: dict[str, list[str]]) -> None:
    with spark_session(load_config(config).pipeline):
        for label, arguments in commands.items():
            print(f"{MARK}{label}", flush=True)
            try:
                main(arguments)
            except SystemExit as end:
                print(f"{MARK}exit code {end.code}", flush=True)


def parts(said: str) -> dict[str, tuple[str, int]]:
    """The output of each command, and its exit code."""
    found: dict[str, tuple[str, int]] = {}
    pieces = said.replace("\r\n", "\n").split(MARK)[1:]
    for output, end in zip(pieces[::2], pieces[1::2], strict=True):
        label, _, text = output.partition("\n")
        found[label] = text, int(end.partition("\n")[0].removeprefix("exit code "))
    return found


if __name__ == "__main__":
    run(Path(sys.argv[1]), json.loads(sys.argv[2]))
