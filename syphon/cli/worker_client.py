"""A client of a running worker: finds it by the settings or by its URL, and asks its status server."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syphon.model import printable

from .exit_codes import ExitCode
from .options import load_settings

if TYPE_CHECKING:
    from syphon.config import Config

TOKEN = "SYPHON_STATUS_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT = 10.0
"""Seconds to wait for an answer."""


class WorkerClient(NamedTuple):
    """The address and the token of a worker's status server."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"WorkerClient({self.url})"

    def ask(self, path: str, change: dict[str, str] | None = None) -> bytes:
        """Returns the worker's answer. Without one, prints why on stderr and exits."""
        headers = {"X-Syphon": "command"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if change is None else json.dumps(change).encode()
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310 - http and https alone, see below
        try:
            with _opener().open(request, timeout=TIMEOUT) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            said = error.read(1000).decode(errors="replace").strip()
            refused = error.code in (401, 403)
            click.echo(f"The worker at {self.url} refuses the request: {printable(said)}", err=True)
            if error.code == 401:
                click.echo(f"The token comes from status.token of -c FILE, or from the variable {TOKEN}.", err=True)
            code = ExitCode.NOT_AUTHORIZED if refused else ExitCode.USAGE if error.code == 404 else ExitCode.UNAVAILABLE
            raise SystemExit(code) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            click.echo(f"No worker answers at {self.url}: {why}. Is it running? --url names another address.", err=True)
            raise SystemExit(ExitCode.UNAVAILABLE) from None


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c FILE` or `--url URL`."""
    url = click.option("--url", metavar="URL", help=f"The address of its status server. {TOKEN} may hold the token.")
    file = click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The worker's settings file: it holds the address and the token.",
    )
    return file(url(command))


def find_worker(config_file: Path | None, url: str | None) -> WorkerClient:
    """The worker that the options name. Without options it is the worker at the default address."""
    token = os.environ.get(TOKEN, "")
    config = load_settings(config_file) if config_file is not None else None
    if config is not None and config.status.token is not None:
        token = token or config.status.token.get_secret_value().strip()
    if url is None:
        url = _address(config) if config is not None else "http://127.0.0.1:8080"
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url} is not an address: write it like http://127.0.0.1:8080")
    return WorkerClient(url.rstrip("/"), token)


def _address(config: Config) -> str:
    host, port = config.status.listen
    if port == 0:
        raise click.UsageError(
            "status.listen has port 0, and the system chose one: give --url with the address that the worker logged."
        )
    if host in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _opener() -> urllib.request.OpenerDirector:
    """An opener without proxies, which would see the token, and without redirects, which would take it elsewhere."""
    handlers = [
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ]
    opener = urllib.request.OpenerDirector()
    for handler in handlers:
        opener.add_handler(handler)
    return opener
