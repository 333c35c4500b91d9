"""`syphon config-schema`: prints the JSON schema of the settings file."""

from __future__ import annotations

import json

import click


@click.command("config-schema", short_help="Print the JSON schema of the settings file, for editors.")
def config_schema() -> None:
    """Print the JSON schema of the settings file, so that an editor completes keys and marks errors as you type.

    \b
      syphon config-schema > config.schema.json
    and as the first line of config.yaml:
      # yaml-language-server: $schema=config.schema.json

    The schema covers keys, types and limits. `syphon check` validates the rest.
    """
    from syphon.config import config_schema as schema

    click.echo(json.dumps(schema(), indent=2))
