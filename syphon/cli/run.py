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

from .exit_codes import ExitCode
from .options import config_option, load_settings
from .signals import interruptible, stop_on_signal

if TYPE_CHECKING:
    from syphon.config import Config
    from syphon.model import SyphonError
    from syphon.worker import Worker

log = logging.getLogger("syphon")


@click.command(short_help="Listen to the backlog queues, and move their messages.")
@config_option
@click.option("--no-provision", is_flag=True, help="Expect the backlog queues to exist: needs no Manage claim.")
@click.option("-v", "--verbose", is_flag=True, help="Log more than the settings say, with the output of Spark.")
def run(config_file: Path, no_provision: bool, verbose: bool) -> None:
    """Serve all pairs of the settings until told to stop.

    Creates the backlog queues that do not exist, listens to each with long polls of 15 minutes (40 receives an hour for
    ten queues), and starts a Spark job when a message comes. The worker waits for the end of an outage. A pair with a
    namespace that cannot be used any more (credentials refused, for example) is faulted: it is closed and set up again
    after 30 seconds, doubling to 5 minutes, and the other pairs go on. When all pairs are faulted, or the only one, the
    worker ends with exit code 70, so that a service manager starts it again.

    \b
      syphon run -c config.yaml
      syphon run -c config.yaml --no-provision      the queues exist, and syphon may only listen and send

    \b
    SIGTERM, Ctrl-C  finish or give back the messages in hand, and leave; a second one leaves at once
    SIGHUP           reload rate, rate_share, destinations and log.level, and set up faulted pairs at once

    \b
    Exit codes: 0 told to stop · 69 the status port is taken · 70 all pairs have faulted · 77 not authorized ·
    78 the settings are wrong
    """
    from syphon.config import LogLevel
    from syphon.ops import set_up_logging

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else config.log.level, config.log.format)
    raise SystemExit(_serve(config, config_file, not no_provision))


def _serve(config: Config, config_file: Path, makes_queues: bool) -> ExitCode:
    from syphon.ledger import avoid_loading_pandas
    from syphon.model import SyphonError
    from syphon.ops import OtlpMissing, PortTaken, running_ops
    from syphon.worker import StateUnreadable, Worker, running_engine

    avoid_loading_pandas()
    try:
        with ExitStack() as stack:
            # The status server starts first: a port in use is reported at once, and not after Spark has started.
            ops = stack.enter_context(running_ops(config))
            log.info("status on http://%s", ops.address)
            log.info("starting Spark on %s", config.pipeline.master)
            with interruptible("The worker was starting: no message was moved."):
                ready = stack.enter_context(running_engine(config.pipeline, ops.pauses))
                ready.jobs.warm_up()
            # All that is loaded now stays: to collect garbage among it would stop all threads for a tenth of a second.
            gc.freeze()
            worker = Worker(
                config, ready.jobs, ready.control_server, makes_queues, ops.pauses, ready.ending, ready.watch
            )
            # After Spark has started: Spark sets a handler of its own.
            stop_on_signal(worker.stop, "Stopping: messages in hand are finished or given back.")
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
    except (StateUnreadable, OtlpMissing) as error:
        log.error("%s", error)
        return ExitCode.CONFIG
    except SyphonError as error:
        reason = error
    if reason is not None:
        log.error("%s", reason)
    return _exit_code(reason)


def _reload(worker: Worker, config_file: Path) -> None:
    from syphon.config import load_config
    from syphon.ops import set_up_logging
    from syphon.yaml_settings import SettingsError

    try:
        config = load_config(config_file)
    except SettingsError as error:
        log.error("the settings stay as they are: %s", error)
        return
    worker.reload(config)
    set_up_logging(config.log.level)
    log.info("read %s again: rates, destinations and log level are taken over", config_file)


def _exit_code(reason: SyphonError | None) -> ExitCode:
    from syphon.model import NotAuthorized

    if reason is None:
        return ExitCode.OK
    return ExitCode.NOT_AUTHORIZED if isinstance(reason, NotAuthorized) else ExitCode.FAULTED
