"""`syphon` itself: the commands, and what it says about them."""

import click

from syphon import __version__
from syphon.cli.check import check
from syphon.cli.cost import cost
from syphon.cli.dead_letters import dead_letters
from syphon.cli.demo import demo
from syphon.cli.drain import drain
from syphon.cli.emulator import emulator
from syphon.cli.inspect import inspect
from syphon.cli.pause import pause, resume
from syphon.cli.provision import provision
from syphon.cli.report import report
from syphon.cli.run import run
from syphon.cli.status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="syphon")
def main() -> None:
    """Carries messages home: from the backlog queues of a secondary Service Bus namespace to their primary.

    \b
    Try it, with nothing but this machine:
      syphon demo                an outage and its end
      syphon emulator            two local namespaces, contoso and contoso-dr
      syphon COMMAND --help      what a command does, with examples

    \b
    Exit codes, the same for every command:
       0  done                          70  the pair has faulted
       1  something was left            77  not authorized
       2  usage                         78  the settings are wrong
      69  a namespace or port is unavailable
    """


COMMANDS = (
    demo, emulator, check, provision, run, status, pause, resume, drain, inspect, dead_letters, report, cost,
)  # fmt: skip

for command in COMMANDS:
    main.add_command(command)
