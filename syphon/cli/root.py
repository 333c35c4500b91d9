"""`syphon` itself: the list of commands, and the help text above them."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from syphon import __version__
from syphon.model import ExitCode, ExtraMissing

from .canary import canary
from .check import check
from .config_schema import config_schema
from .cost import cost
from .dead_letters import dead_letters
from .demo import demo
from .drain import drain
from .drill import drill
from .emulator import emulator
from .init import init
from .inspect import inspect
from .move import move
from .pause import pause, resume
from .provision import provision
from .rate import rate
from .report import report
from .retry import retry
from .run import run
from .signals import interruptible
from .status import status


def _completions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Command names that may follow the given words, for shell completion."""
    found = ctx.find_root().command
    for word in ctx.params.get("words") or ():
        found = found.commands.get(word, found) if isinstance(found, click.Group) else found
    names = found.commands if isinstance(found, click.Group) else {}
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help", short_help="Show the help of one command, or of all.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_completions)
@click.option("--all", "everything", is_flag=True, help="Show the help of every command, one after the other.")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command, like its --help. Without a name, list the commands.

    \b
      syphon help drain
      syphon help dead-letters replay
      syphon help --all | less
    """
    if everything and words:
        raise click.UsageError("Give either a command or --all, not both.")
    root = ctx.find_root()
    context = click.Context(root.command, info_name=root.info_name, **root.command.context_settings)
    for word in words:
        found = context.command.get_command(context, word) if isinstance(context.command, click.Group) else None
        if found is None:
            path = context.command_path
            raise click.UsageError(f"There is no command '{path} {word}'. `{path} --help` lists the commands.")
        context = click.Context(found, parent=context, info_name=word)
    click.echo("\n\n\n".join(_pages(context)) if everything else context.get_help())


def _pages(context: click.Context) -> list[str]:
    """The help of a command and all its subcommands."""
    found = [context.get_help()]
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None:
                found += _pages(click.Context(command, parent=context, info_name=name))
    return found


CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a disk that is full or must not be written to: they need a sentence, not a traceback."""


class _Commands(click.Group):
    """Exits with 130 on Ctrl-C, as a shell expects, with 78 if an extra is not installed, with 1 if a disk is full.

    click would print `Aborted!` for the first and exit with 1, and show a traceback for the others.
    """

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            if error.errno not in CANNOT_WRITE:
                raise
            what = f"{error.filename}: " if error.filename else "the output: "
            with suppress(OSError):
                click.echo(f"Cannot write {what}{error.strerror}.", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries to write the rest when it exits
            raise SystemExit(ExitCode.LEFT) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with interruptible("The command did not finish."):
                return super().invoke(ctx)
        except ExtraMissing as error:
            click.echo(str(error), err=True)
            raise SystemExit(ExitCode.CONFIG) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="syphon")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Forward messages from the backlog queues of a secondary Service Bus namespace to the primary.

    \b
    Try it on this machine, without Azure:
      syphon demo                an outage, and the drain after it
      syphon emulator            two local namespaces, contoso and contoso-dr
      syphon init                a settings file for them
      syphon help COMMAND        what a command does, with examples

    \b
    Exit codes, the same for every command:
       0  done                                  70  a namespace is unusable
       1  something was left or dead-lettered   77  not authorized
       2  wrong usage                           78  invalid settings
      69  a namespace or port is unavailable

    \b
    demo, run, drain, drill, move, inspect and report need Spark:
      pip install 'syphon-servicebus[spark]'
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False


COMMANDS = (
    demo,
    emulator,
    init,
    check,
    canary,
    provision,
    run,
    status,
    pause,
    resume,
    retry,
    rate,
    drain,
    drill,
    move,
    inspect,
    dead_letters,
    report,
    cost,
    config_schema,
    help_command,
)

for command in COMMANDS:
    main.add_command(command)
