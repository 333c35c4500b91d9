"""`syphon check`: finds problems before a worker runs into them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, Extra
from syphon.option_declarations import DURATION, RATE
from syphon.time_budget import WAIT_SILENTLY

from .shared_options import Reads, config_option, load_settings
from .signals import interruptible
from .tables import FindingLine, finding_lines, show_findings, silence_sdk_logs

if TYPE_CHECKING:
    from syphon.backlog import Finding, PreflightCheck
    from syphon.config import PipelineSettings

AT_ONCE = 16
"""How many checks run concurrently."""

OPEN_FILE = (
    "warning: {file} contains a key and is readable by every user of this machine. Use ${{file:PATH}} instead, "
    "or run: chmod o-r {file}"
)


@click.command(short_help="Check settings, access and queues (read-only).")
@config_option
@click.option(
    "--no-provision", is_flag=True, help="Check for `run --no-provision` and `drain`, which need no Manage claim."
)
@click.option("--offline", is_flag=True, help="Check the settings only, without the network: for a build server.")
@click.option("--spark", "starts_spark", is_flag=True, help="Also start Spark once, and run a task.")
@click.option(
    "--outage", type=Reads(DURATION), help="Also check that the backlog has room for an outage of this length …"
)
@click.option("--rate", type=Reads(RATE), help="… at this rate of your senders, per pair. Needed with --outage.")
@click.option(
    "--size", type=click.IntRange(min=0), default=1024, show_default=True, metavar="BYTES", help="… of such messages."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON (docs/commands.md).")
def check(
    config_file: Path,
    no_provision: bool,
    offline: bool,
    starts_spark: bool,
    outage: float | None,
    rate: float | None,
    size: int,
    as_json: bool,
) -> None:
    """Check the settings, credentials, claims, backlog queues and destinations of every pair, and the ledger.

    The check is read-only: it creates no queue, and sends and receives no message. It reports all problems at once and
    takes about a minute at most, even if a namespace does not answer. A worker starts Spark with the first message:
    with --spark, a missing Java or too little memory is found before the outage and not in it.

    \b
      syphon check -c config.yaml
      syphon check -c config.yaml --spark
      syphon check -c config.yaml --outage 8h --rate 200/s
      syphon check -c config.yaml --no-provision
      syphon check -c config.yaml --offline
      syphon check -c config.yaml --json | jq .exit_code

    \b
    The first word of each line, and its exit code (the highest wins):
      ok            0  fine
      warning       0  works, but perhaps not as expected
      problem       1  will not work: missing, disabled or unusable
      unreachable  69  no answer; may work later
      denied       77  credentials refused, or a claim is missing
                   78  invalid settings; nothing else was checked
    """
    from syphon.backlog import ExpectedOutage, preflight_checks
    from syphon.config import exposes_keys
    from syphon.ledger import check_ledger

    silence_sdk_logs()
    if offline and starts_spark:
        raise click.UsageError("--offline and --spark exclude each other.")
    if (outage is None) != (rate is None):
        raise click.UsageError("--outage and --rate belong together: how long, and how many messages per second.")
    if starts_spark:
        Extra.SPARK.require("`syphon check --spark`")
    config = load_settings(config_file, as_json)
    if exposes_keys(config_file):
        click.echo(OPEN_FILE.format(file=config_file), err=True)
    if offline:
        valid = json.dumps({"exit_code": ExitCode.OK, "settings": [], "findings": []}, indent=2)
        click.echo(valid if as_json else f"{config_file} is valid: {_counted(len(config.pairs), 'pair')}.")
        return
    slots = threading.Semaphore(AT_ONCE)
    expected = None if outage is None or rate is None else ExpectedOutage(outage, rate, size)
    checks = [
        each for pair in config.pairs for each in preflight_checks(pair, not no_provision, config.pairs, expected)
    ]
    running = [_RunningCheck(each, slots) for each in checks]
    findings: list[Finding] = []
    with interruptible("Nothing was changed."):
        for check_run in running:
            check_run.start()
        for check_run in running:
            found = check_run.wait()
            findings += found
            if not as_json:
                click.echo(f"{check_run.check}")
                show_findings(finding_lines((each.level.value, each.entity, each.text) for each in found))
                click.echo()
        ledger = check_ledger(config.pipeline.ledger)
        if not as_json:
            click.echo(f"ledger {ledger.path}")
            show_findings([FindingLine(ledger.level.value, [], ledger.text)])
            click.echo()
        spark = _check_spark(config.pipeline, as_json) if starts_spark else None
    levels = [*(finding.level.value for finding in findings), ledger.level.value, *([spark["level"]] if spark else [])]
    code = _exit_code(levels)
    if as_json:
        records = [asdict(finding) for finding in findings]
        result = {"exit_code": code, "settings": [], "findings": records, "ledger": ledger._asdict()}
        result |= {} if spark is None else {"spark": spark}
        click.echo(json.dumps(result, indent=2))
    else:
        click.echo(_verdict(levels))
    raise SystemExit(code)


def _check_spark(pipeline: PipelineSettings, as_json: bool) -> dict[str, str]:
    """Start Spark as a worker does, and stop it."""
    from syphon.model import SyphonError
    from syphon.spark import check_start, shown_master

    master = shown_master(pipeline.master)
    if not as_json:
        click.echo(f"Spark {master}")
    try:
        found = {"level": "ok", "text": check_start(pipeline)}
    except SyphonError as error:
        found = {"level": "problem", "text": str(error)}
    if not as_json:
        show_findings([FindingLine(found["level"], [], found["text"])])
        click.echo()
    return {"master": master} | found


class _RunningCheck(threading.Thread):
    """Runs one check in its own thread; `wait` returns its findings."""

    def __init__(self, check: PreflightCheck, slots: threading.Semaphore) -> None:
        super().__init__(name=str(check), daemon=True)
        self.check = check
        self._slots = slots
        self._found: list[Finding] = []
        self._bug: BaseException | None = None

    def run(self) -> None:
        with self._slots:
            try:
                self._found = list(self.check.findings())
            except BaseException as bug:  # `wait` raises it
                self._bug = bug

    def wait(self) -> list[Finding]:
        self.join(WAIT_SILENTLY)
        if self.is_alive():
            click.echo(f"Waiting for {self.check} …", err=True)
            self.join()
        if self._bug is not None:
            raise self._bug
        return self._found


def _verdict(levels: Sequence[str]) -> str:
    warnings = levels.count("warning")
    wrong = len(levels) - warnings - levels.count("ok")
    return f"{_counted(wrong, 'problem').capitalize()}, {_counted(warnings, 'warning')}."


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _exit_code(levels: Sequence[str]) -> ExitCode:
    if "denied" in levels:
        return ExitCode.NOT_AUTHORIZED
    if "unreachable" in levels:
        return ExitCode.UNAVAILABLE
    return ExitCode.LEFT if "problem" in levels else ExitCode.OK
