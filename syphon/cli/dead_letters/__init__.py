"""`syphon dead-letters`: what the backlog queues could not bring home, and how to put it back."""

from __future__ import annotations

import click

from .listing import list_letters
from .replaying import replay
from .showing import show


@click.group("dead-letters", short_help="List, explain and put back dead letters.")
def dead_letters() -> None:
    """The dead letters of the backlog queues: messages that could not be brought home, each with the reason.

    \b
      syphon dead-letters list -c config.yaml
      syphon dead-letters show -c config.yaml --queue 0 --sequence-number 17
      syphon dead-letters replay -c config.yaml --reason DestinationMissing --to backlog --dry-run
      syphon dead-letters replay -c config.yaml --reason NoDestination --to destination --set-path orders

    list and show only look (by peek); nothing is locked or changed.
    """


for command in (list_letters, show, replay):
    dead_letters.add_command(command)

__all__ = ["dead_letters"]
