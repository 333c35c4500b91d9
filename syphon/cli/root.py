"""`syphon` itself: the list of commands, and the help text above them."""

from typing import Any

import click

from syphon import __version__

from .check import check
from .config_schema import config_schema
from .cost import cost
from .dead_letters import dead_letters
from .demo import demo
from .drain import drain
from .emulator import emulator
from .help import help_command
from .init import init
from .inspect import inspect
from .pause import pause, resume
from .provision import provision
from .report import report
from .run import run
from .signals import interruptible
from .status import status


class _Commands(click.Group):
    """A group that says of Ctrl-C what a shell expects: exit code 130. click would print `Aborted!`, and end with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        with interruptible("The command was not finished."):
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="syphon")
def main() -> None:
    """Moves messages from the backlog queues of a secondary Service Bus namespace to their primary.

    \b
    Try it on this machine alone:
      syphon demo                an outage, and the transfer after it
      syphon emulator            two local namespaces, contoso and contoso-dr
      syphon init                a settings file for them
      syphon help COMMAND        what a command does, with examples

    \b
    Exit codes, the same for every command:
       0  done                          70  all pairs have faulted
       1  not everything is in order    77  not authorized
       2  usage                         78  the settings are wrong
      69  a namespace or port is unavailable
    """


COMMANDS = (
    demo,
    emulator,
    init,
    check,
    provision,
    run,
    status,
    pause,
    resume,
    drain,
    inspect,
    dead_letters,
    report,
    cost,
    config_schema,
    help_command,
)

for command in COMMANDS:
    main.add_command(command)
