"""`syphon run`: the worker."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode

from .shared_options import config_option, load_settings, needs_spark
from .signals import stop_on_signal

if TYPE_CHECKING:
    from syphon.config import Config
    from syphon.model import SyphonError
    from syphon.worker import Worker

log = logging.getLogger("syphon")


@click.command(short_help="Listen on the backlog queues and forward their messages.")
@config_option
@click.option("--no-provision", is_flag=True, help="Do not create backlog queues; needs no Manage claim.")
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level, with the output of Spark.")
@needs_spark
def run(config_file: Path, no_provision: bool, verbose: bool) -> None:
    """Serve all pairs in the settings until stopped.

    The worker creates missing backlog queues and listens on each with 15-minute long polls (40 receives per hour for
    ten queues). The first message starts Spark; Spark stops after 15 minutes without a job (pipeline.idle_shutdown).
    During an outage the worker waits. A pair faults when one of its
    namespaces becomes unusable, for example because the credentials are refused: the worker closes the pair and reopens
    it after 30 seconds, backing off to 5 minutes, while the other pairs continue. When all pairs have faulted, the
    worker exits with 70, so that the service manager restarts it.

    \b
      syphon run -c config.yaml
      syphon run -c config.yaml --no-provision    without the Manage claim

    \b
    SIGTERM, Ctrl-C  finish or abandon the messages in flight, and exit;
                     a second one exits immediately
    SIGHUP           reload rate, rate_share, destinations and log.level,
                     and reopen faulted pairs

    Exit codes: 0 stopped · 69 the status port is in use · 70 all pairs have faulted · 77 not authorized ·
    78 invalid settings
    """
    from syphon.config import LogLevel
    from syphon.status import set_up_logging

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else config.log.level, config.log.format)
    raise SystemExit(_serve(config, config_file, not no_provision))


def _serve(config: Config, config_file: Path, makes_queues: bool) -> ExitCode:
    from syphon.ledger import avoid_loading_pandas
    from syphon.model import InvalidSettings, SyphonError
    from syphon.status import PortTaken, serving_status
    from syphon.worker import StateUnreadable, Worker, engine_on_demand

    avoid_loading_pandas()
    try:
        with ExitStack() as stack:
            ops = stack.enter_context(serving_status(config, str(config_file.absolute())))
            log.info("status on http://%s", ops.address)
            ready = stack.enter_context(engine_on_demand(config.pipeline, ops.pauses))
            # Everything loaded so far stays: collecting garbage in it would stall all threads for 100 ms.
            gc.freeze()
            worker = Worker(
                config,
                ready.spark,
                ready.control_server,
                makes_queues=makes_queues,
                pauses=ops.pauses,
                ending=ready.ending,
            )
            stop_on_signal(worker.stop, "Stopping: finishing or abandoning messages in flight.")
            hung_up = threading.Event()
            signal.signal(signal.SIGHUP, lambda number, frame: hung_up.set())  # noqa: ARG005
            ops.attach(worker, ready.control_server, ready.ledger_writer)
            worker.start()

            def turned() -> None:
                ops.loop_turned()
                if hung_up.is_set():  # here, and not in the handler, which may interrupt a log call
                    hung_up.clear()
                    _reload(worker, config_file)

            reason = worker.run(turned)
            ready.ending.exit_code = _exit_code(reason)
    except PortTaken as error:
        log.error("%s", error)
        return ExitCode.UNAVAILABLE
    except (InvalidSettings, StateUnreadable) as error:
        log.error("%s", error)
        return ExitCode.CONFIG
    except SyphonError as error:
        reason = error
    if reason is not None:
        log.error("%s", reason)
    return _exit_code(reason)


def _reload(worker: Worker, config_file: Path) -> None:
    from syphon.config import load_config
    from syphon.status import set_up_logging
    from syphon.yaml_settings import SettingsError

    try:
        config = load_config(config_file)
    except SettingsError as error:
        log.error("reload rejected, keeping the current settings: %s", error)
        return
    worker.reload(config)
    set_up_logging(config.log.level)
    log.info("reloaded %s (rates, destinations, log level)", config_file)


def _exit_code(reason: SyphonError | None) -> ExitCode:
    from syphon.model import NotAuthorized

    if reason is None:
        return ExitCode.OK
    return ExitCode.NOT_AUTHORIZED if isinstance(reason, NotAuthorized) else ExitCode.FAULTED
