"""`syphon emulator`: runs a local Service Bus in the foreground until it is stopped."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode

if TYPE_CHECKING:
    from syphon.emulator import Emulator, EmulatorSettings, NamespaceSettings

STOP_WITHIN = 1.5
"""Seconds for an orderly stop. The process ends within two seconds after SIGTERM."""


@click.command(short_help="Run a local Service Bus.")
@click.option(
    "--namespace",
    "namespaces",
    metavar="NAME[:AMQP_PORT[:HTTP_PORT]]",
    multiple=True,
    help="A namespace to serve (repeatable). Port 0 picks a free port; the defaults are 5672 and 5300 for the first "
    "namespace, 5673 and 5301 for the next. With --config, adds a namespace or sets the ports of one in the file.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Initial namespaces, policies, queues, topics and rules: our YAML, or Microsoft's Config.json.",
)
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Store messages and entities in this directory, so that they survive a crash. [default: in memory]",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Serve TLS, with a newly created certificate authority that clients must trust.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The address that all namespaces listen on: 0.0.0.0 in a container. Whoever reaches it knows the default key. "
    "[default: as the settings file says, otherwise 127.0.0.1]",
)
@click.option("--page-changes", is_flag=True, help="Let the page of a namespace clear faults and move the clock.")
@click.option("--ready-line", metavar="TEXT", help="A last line to print when ready, for programs that wait for it.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when ready, instead of text.")
def emulator(
    namespaces: tuple[str, ...],
    config: Path | None,
    state: Path | None,
    tls: bool,
    host: str | None,
    page_changes: bool,
    ready_line: str | None,
    as_json: bool,
) -> None:
    """Run a local Service Bus for the official clients, without Azure.

    Prints a connection string per namespace when ready. Ctrl-C stops it. For development and tests only: it listens
    on 127.0.0.1, and its keys are public.

    \b
    Two namespaces, contoso on 5672 and contoso-dr on 5673:
      syphon emulator

    \b
    One namespace on free ports; the entities of Microsoft's Config.json:
      syphon emulator --namespace shop:0:0 --json
      syphon emulator --config Config.json

    \b
    Messages that survive a restart:
      syphon emulator --state ./state
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    settings = _settings(namespaces, config, state, tls=tls, host=host, page_changes=page_changes)

    def announce(running: Emulator) -> None:
        (_announce_json if as_json else _announce)(running)
        if ready_line is not None:
            click.echo(ready_line)
        sys.stdout.flush()

    raise SystemExit(_run(_serve(settings, announce)))


def _settings(
    options: tuple[str, ...],
    config: Path | None,
    state: Path | None,
    *,
    tls: bool,
    host: str | None,
    page_changes: bool,
) -> EmulatorSettings:
    from pydantic import ValidationError

    from syphon.emulator import (
        EmulatorSettings,
        default_settings,
        load_settings,
        parse_namespace_option,
        with_default_ports,
    )
    from syphon.yaml_settings import SettingsError

    try:
        named = [parse_namespace_option(option) for option in options]
        settings = load_settings(config) if config else default_settings()
        namespaces = _merged(settings.namespaces if config or not named else [], named)
        if host is not None:
            namespaces = [namespace.model_copy(update={"host": host}) for namespace in namespaces]
        return EmulatorSettings(
            namespaces=with_default_ports(namespaces),
            state=state or settings.state,
            tls=tls or settings.tls,
            page_changes=page_changes or settings.page_changes,
            seed=settings.seed,
        )
    except SettingsError as error:
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.CONFIG) from None
    except ValidationError as error:  # each namespace is valid, but two of them clash
        text = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.BadParameter(text, param_hint="--namespace") from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--namespace") from None


def _merged(listed: list[NamespaceSettings], named: list[NamespaceSettings]) -> list[NamespaceSettings]:
    """The namespaces of the file, with ports from the command line, followed by those that the command line adds."""
    ports = {namespace.name.lower(): namespace for namespace in named}
    merged = []
    for namespace in listed:
        override = ports.pop(namespace.name.lower(), None)
        chosen = override.model_dump(include={"amqp_port", "http_port"}, exclude_unset=True) if override else {}
        merged.append(namespace.model_copy(update=chosen))
    return merged + [namespace for namespace in named if ports.get(namespace.name.lower())]


async def _serve(settings: EmulatorSettings, announce: Callable[[Emulator], None]) -> ExitCode:
    from syphon.emulator import Emulator, Refusal, StateUnusable

    stop_requested = asyncio.Event()
    _on_signals(stop_requested)
    emulator = Emulator(settings)
    try:
        await emulator.start()
    except OSError as error:
        return _did_not_start(error)
    except StateUnusable as unusable:
        return _misconfigured(str(unusable))
    except Refusal as refusal:  # an entity of the settings clashes with one in the state
        return _misconfigured(refusal.description)
    announce(emulator)
    await stop_requested.wait()
    try:
        async with asyncio.timeout(STOP_WITHIN):
            await emulator.stop()
    except TimeoutError:
        # All acknowledged changes are on disk, so nothing is lost.
        click.echo(
            f"The emulator did not stop within {STOP_WITHIN} s and exits now; --state has all acknowledged messages.",
            err=True,
        )
        os._exit(ExitCode.OK)
    return ExitCode.OK


def _did_not_start(error: OSError) -> ExitCode:
    if error.filename is not None:
        return _misconfigured(
            f"Cannot use {error.filename}: {error.strerror}. Check its permissions, or choose another path."
        )
    click.echo(error.strerror or str(error), err=True)
    return ExitCode.UNAVAILABLE


def _misconfigured(text: str) -> ExitCode:
    click.echo(text, err=True)
    return ExitCode.CONFIG


def _on_signals(stop_requested: asyncio.Event) -> None:
    """The first signal starts a graceful stop. The second ends the process immediately."""

    def on_signal() -> None:
        if stop_requested.is_set():
            os._exit(ExitCode.OK)
        stop_requested.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))


def _announce(emulator: Emulator) -> None:
    click.echo("The local Service Bus is ready, for development and tests only. Ctrl-C stops it.")
    scheme = "https" if emulator.ca_file else "http"
    for namespace in emulator.namespaces:
        click.echo(f"\n{namespace.name}")
        click.echo(f"  connection string  {namespace.connection_string}")
        click.echo(f"  HTTP               {scheme}://{namespace.settings.reachable_as}:{namespace.http_port}")
    if emulator.ca_file:
        click.echo(f"\nClients must trust this certificate authority: {emulator.ca_file}")


def _announce_json(emulator: Emulator) -> None:
    ready: dict[str, Any] = {
        "namespaces": [
            {
                "name": namespace.name,
                "connection_string": namespace.connection_string,
                "amqp_port": namespace.amqp_port,
                "http_port": namespace.http_port,
            }
            for namespace in emulator.namespaces
        ]
    }
    if emulator.ca_file:
        ready["ca_file"] = str(emulator.ca_file)
    click.echo(json.dumps(ready, separators=(",", ":")))


def _run(main: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    try:
        import uvloop
    except ImportError:  # the extra `fast`, not for Windows and PyPy: asyncio's own loop works too, but is slower
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
