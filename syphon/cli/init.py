"""`syphon init`: writes a first settings file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

EMULATED = """\
# Settings of a syphon worker for the two namespaces of `syphon emulator`; they work unchanged. Check them with:
#   syphon check -c {file}
# The emulator's key is public. config.example.yaml shows every setting.
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


@click.command(short_help="Write a settings file to start with, for the emulator or Azure.")
@click.argument("file", default="config.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--azure", is_flag=True, help="Write settings for a pair in Azure; prompts for both namespaces.")
@click.option("--primary", metavar="HOST", help="The primary namespace in Azure, full or short (contoso).")
@click.option("--secondary", metavar="HOST", help="The secondary namespace in Azure.")
def init(file: Path, azure: bool, primary: str | None, secondary: str | None) -> None:
    """Write the settings of a worker to FILE (config.yaml), readable only by you. Never overwrites a file.

    Without options the settings are for the two namespaces of `syphon emulator`, and work unchanged. With --azure the
    command prompts for a pair in Azure. It writes no secrets: access uses azure-identity.

    \b
      syphon init
      syphon init --azure
      syphon init worker.yaml --primary contoso --secondary contoso-dr

    Exit codes: 0 written · 2 the file exists, or a name is invalid
    """
    if azure or primary or secondary:
        primary = _host(primary or click.prompt("Primary namespace", err=True))
        secondary = _host(secondary or click.prompt("Secondary namespace", err=True))
        if primary == secondary:
            raise click.UsageError(
                f"Primary and secondary are both {primary}: the secondary must be another namespace."
            )
        name = primary.partition(".")[0]
        text = AZURE.format(file=file, name=name, primary=primary, secondary=secondary)
    else:
        sides = [EMULATOR.format(port=port) for port in PORTS]
        text = EMULATED.format(file=file, primary=sides[0], secondary=sides[1])
    _write(file, text)
    click.echo(f"Wrote {file}. Next: syphon check -c {file}")


def _host(text: str) -> str:
    """The host name of a namespace; its first part is enough."""
    host = text.strip().lower()
    host = host if "." in host else f"{host}{SUFFIX}"
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?(?:\.[a-z0-9-]+)+", host):
        raise click.UsageError(f"'{text}' is not a namespace: use contoso or contoso{SUFFIX}.")
    return host


def _write(file: Path, text: str) -> None:
    try:
        # Readable only by the owner, because people add keys to it.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.UsageError(f"{file} already exists; choose another file.") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}.") from None
