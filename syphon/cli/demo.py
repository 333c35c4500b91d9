"""`syphon demo`: shows an outage from beginning to end, on this machine."""

from __future__ import annotations

import logging
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode

from .shared_options import needs_spark

if TYPE_CHECKING:
    from syphon.config import Config
    from syphon.worker import DrainProgress, DrainResult, Engine

    from .demo_traffic import Shop

QUEUES = 3
BACK_WITHIN = 30.0


@click.command(short_help="Watch an outage and the drain after it, on this machine.")
@click.option(
    "--messages", default=3000, show_default=True, type=click.IntRange(30, 200_000), help="How many messages to send."
)
@click.option(
    "--folder",
    default="syphon-demo",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the ledger and the report.",
)
@needs_spark
def demo(messages: int, folder: Path) -> None:
    """Send to a primary namespace, take it down, watch the messages pile up in the secondary, and forward them.

    Everything except Azure is real: two local namespaces, AMQP, the official client on both ends, a paired sender
    that fails over and back, and a drain on Spark. At the end the demo checks that every message has arrived.
    """
    from syphon.worker import running_engine

    from .demo_traffic import shop

    # The demo prints what happens; log lines would repeat it.
    logging.getLogger("syphon").setLevel(logging.CRITICAL)
    began = time.monotonic()
    with shop() as here:
        _say("Two local namespaces are up.", "contoso is the primary, contoso-dr the secondary. Starting Spark …")
        config = _settings(here, folder)
        with running_engine(config.pipeline) as ready:
            sent = _send_through_an_outage(here, messages)
            result = _drain(config, ready)
            problems = _find_all(here, sent)
            report = _report(ready, folder)
    raise SystemExit(_sum_up(result, problems, report, config.pipeline.ledger, time.monotonic() - began))


def _say(what: str, more: str = "") -> None:
    click.echo(click.style(what, bold=True) + (f"  {more}" if more else ""))


def _settings(here: Shop, folder: Path) -> Config:
    from syphon.config import Config

    pair = {
        "name": "contoso",
        "primary": {"connection_string": here.primary},
        "secondary": {"connection_string": here.secondary},
        "backlog_queue_count": QUEUES,
    }
    # A new ledger for each demo, so that the report covers this one only.
    ledger = folder / "ledger" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    return Config.model_validate({"pairs": [pair], "pipeline": {"ledger": str(ledger)}})


def _send_through_an_outage(here: Shop, count: int) -> set[str]:
    """Send messages. The primary goes down after a quarter of them, and is back after three quarters."""
    from syphon.sender import PairOptions, pair

    options = PairOptions(
        backlog_queue_count=QUEUES,
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(seconds=1),
        primary_name="contoso",
        on_change=_announced(),
    )
    with pair(*here.clients(), options) as client, here.senders(client) as send:
        _say("\nSending:", f"{count:,} messages to a queue, a session queue and a topic.")
        sent = send(range(count // 4))
        here.take_primary_down()
        _say("The primary goes down.", "The sender continues:")
        sent |= send(range(count // 4, count * 3 // 4))
        in_backlog = here.backlog_size()
        click.echo(f"  {in_backlog:,} messages are waiting in {QUEUES} backlog queues in contoso-dr")
        here.bring_primary_back()
        _say("The primary is back.")
        sent |= send(range(count * 3 // 4, count * 7 // 8))
        deadline = time.monotonic() + BACK_WITHIN
        while client.failed_over and time.monotonic() < deadline:
            time.sleep(0.1)
        sent |= send(range(count * 7 // 8, count))
        here.put_stray_into_backlog()
        click.echo(f"  {len(sent):,} sent, none failed; {here.backlog_size():,} waiting in the backlog")
    return sent


def _announced() -> Callable[[object], None]:
    """Print the state changes of the pair, except failed pings during the outage."""
    from syphon.sender import EntityPinged

    def announce(change: object) -> None:
        if not isinstance(change, EntityPinged):
            click.echo(f"  {textwrap.shorten(str(change), 100, placeholder=' …')}")

    return announce


def _drain(config: Config, ready: Engine) -> DrainResult:
    from syphon.backlog import select_queues
    from syphon.worker import Drain, DrainOptions, counts_of

    chosen = select_queues(config.pairs)
    counts = counts_of(chosen)
    _say("\nsyphon forwards the backlog:", "one Spark job for all its queues.")
    drain = Drain(chosen, DrainOptions(), counts)
    shown = 0

    def show(progress: DrainProgress) -> None:
        nonlocal shown
        if progress.moved != shown:
            shown = progress.moved
            click.echo(f"  {shown:,} of {sum(counts.values()):,} forwarded")

    drain.run(ready, show)
    result = drain.result()
    ready.ledger_writer.catch_up()
    for queue in result.queues:
        totals = queue.totals
        click.echo(
            f"  {queue.queue}: {queue.state}, {totals.forwarded:,} forwarded, {totals.dead_lettered} dead-lettered"
        )
    return result


def _find_all(here: Shop, sent: set[str]) -> list[str]:
    _say("\nChecking that every message has arrived:")
    found = here.arrivals()
    problems = found.problems + [f"{identity} is missing" for identity in sorted(sent - set(found.times))]
    problems += [f"{identity} arrived {times} times" for identity, times in found.times.items() if times > 1]
    as_sent = "" if problems else "; sessions, time to live and schedule as the sender set them"
    click.echo(f"  {len(found.times):,} of {len(sent):,} arrived{as_sent}")
    return problems


def _report(ready: Engine, folder: Path) -> Path:
    from syphon.ledger import LocalReader, html_page, query_report

    file = folder / "report.html"
    file.write_text(html_page(query_report(LocalReader(ready.ledger.path)), datetime.now(UTC)), "utf-8")
    return file


def _sum_up(result: DrainResult, problems: list[str], report: Path, ledger: str, seconds: float) -> ExitCode:
    totals = result.totals
    balance = totals.forwarded + totals.dead_lettered + totals.left + totals.unaccounted
    _say(
        "\nThe counts balance:" if totals.received == balance else "\nThe counts do not balance:",
        f"{totals.received:,} received = {totals.forwarded:,} forwarded + {totals.dead_lettered:,} dead-lettered "
        f"+ {totals.left:,} left in the backlog + {totals.unaccounted:,} unaccounted.",
    )
    if totals.dead_lettered:
        click.echo(
            "  One message named no destination and was dead-lettered. `syphon dead-letters` lists and replays those."
        )
    for problem in problems[:20]:
        click.echo(f"  {problem}", err=True)
    click.echo(f"  Report: {report}")
    click.echo(f"  Report in the terminal: syphon report --ledger {ledger}")
    is_complete = not problems and result.is_empty and totals.received == balance
    verdict = "No message was lost." if is_complete else f"{len(problems)} problems."
    click.secho(f"{verdict}", bold=True, fg="green" if is_complete else "red", nl=False)
    click.echo(f"  It took {seconds:.0f} s.")
    return ExitCode.OK if is_complete else ExitCode.LEFT
