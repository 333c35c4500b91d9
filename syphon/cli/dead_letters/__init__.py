"""`syphon dead-letters`: lists, shows, exports and replays messages that could not be forwarded."""

from __future__ import annotations

import click

from .export import export
from .import_ import import_letters
from .list import list_letters
from .replay import replay
from .show import show


@click.group("dead-letters", short_help="List, show, export and replay dead letters.")
def dead_letters() -> None:
    """Work with the dead letters of the backlog queues: messages that could not be forwarded, each with its reason.

    \b
      syphon dead-letters list -c config.yaml
      syphon dead-letters show -c config.yaml --queue 0 --sequence-number 17
      syphon dead-letters replay --reason 'Dest*' --to backlog --dry-run
      syphon dead-letters replay --set-path orders --to destination
      syphon dead-letters export -c config.yaml letters.jsonl
      syphon dead-letters import -c config.yaml letters.jsonl --to backlog

    list, show and export only peek; they lock and change nothing, except `export --remove`.
    """


for command in (list_letters, show, replay, export, import_letters):
    dead_letters.add_command(command)

__all__ = ["dead_letters"]
