"""`syphon init`: writes a first settings file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

EMULATED = """\
# Settings of a syphon worker for the two namespaces of `syphon emulator`. They run as they are:
#   syphon check -c {file}
# The emulator's key is no secret. config.example.yaml shows every setting.
pairs:
  - name: contoso
    primary:
      connection_string: "{primary}"
    secondary:
      connection_string: "{secondary}"
pipeline:
  ledger: ./ledger     # `syphon report -c {file}` reads it
status:
  listen: 127.0.0.1:8080
"""
EMULATOR = (
    "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
    "UseDevelopmentEmulator=true;"
)
PORTS = 5672, 5673
"""The ports of `syphon emulator`: of contoso and of contoso-dr."""
AZURE = """\
# Settings of a syphon worker. config.example.yaml shows every setting. Before the first start:
#   syphon check -c {file}
pairs:
  - name: {name}
    primary:
      namespace: {primary}
      credential: default        # azure-identity: az login, environment, managed identity …
    secondary:
      namespace: {secondary}
      credential: default
      # or, instead of these two lines, a connection string in a file: connection_string: ${{file:secrets/secondary}}
pipeline:
  ledger: ./ledger     # `syphon report -c {file}` reads it
status:
  listen: 127.0.0.1:8080
"""
SUFFIX = ".servicebus.windows.net"


@click.command(short_help="Write a first settings file: for the emulator, or for a pair in Azure.")
@click.argument("file", default="config.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--azure", is_flag=True, help="For a pair in Azure: asks for both namespaces.")
@click.option("--primary", metavar="HOST", help="The primary namespace in Azure; contoso is enough.")
@click.option("--secondary", metavar="HOST", help="The secondary namespace in Azure.")
def init(file: Path, azure: bool, primary: str | None, secondary: str | None) -> None:
    """Write FILE (config.yaml) with the settings of a worker, for you alone to read. A file that exists stays as it is.

    Without options the settings are for the two namespaces of `syphon emulator`, and work as they are. With --azure
    the command asks for a pair in Azure. It writes no secret: access is by azure-identity.

    \b
      syphon init
      syphon init --azure
      syphon init worker.yaml --primary contoso --secondary contoso-dr

    \b
    Exit codes: 0 written · 2 the file exists, or a name is wrong
    """
    if azure or primary or secondary:
        primary = _host(primary or click.prompt("Primary namespace", err=True))
        secondary = _host(secondary or click.prompt("Secondary namespace", err=True))
        if primary == secondary:
            raise click.UsageError(f"{primary} is both: the secondary must be available when the primary is not.")
        name = primary.partition(".")[0]
        text = AZURE.format(file=file, name=name, primary=primary, secondary=secondary)
    else:
        sides = [EMULATOR.format(port=port) for port in PORTS]
        text = EMULATED.format(file=file, primary=sides[0], secondary=sides[1])
    _write(file, text)
    click.echo(f"{file} was written. Next: syphon check -c {file}")


def _host(text: str) -> str:
    """The host name of a namespace; its first part is enough."""
    host = text.strip().lower()
    host = host if "." in host else f"{host}{SUFFIX}"
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?(?:\.[a-z0-9-]+)+", host):
        raise click.UsageError(f"'{text}' is not a namespace: write contoso, or contoso{SUFFIX}.")
    return host


def _write(file: Path, text: str) -> None:
    try:
        # For its owner alone: people add keys to it.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.UsageError(f"{file} exists, and is not overwritten: name another file.") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}.") from None
