"""A client for the status server of a running worker, found by its settings file or URL."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from syphon.model import ExitCode, printable
from syphon.time_budget import STATUS_ANSWER_WITHIN

from .shared_options import default_config, load_settings

if TYPE_CHECKING:
    from syphon.config import Config

TOKEN = "SYPHON_STATUS_TOKEN"  # noqa: S105 - the name of a variable


class NoAnswer(click.ClickException):
    """No worker answers. click prints the message and ends the command with the exit code."""

    exit_code = ExitCode.UNAVAILABLE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.format_message(), file=file, err=file is None)


class WorkerClient(NamedTuple):
    """The address and the token of a worker's status server."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"WorkerClient({self.url})"

    def ask(self, path: str, change: dict[str, Any] | None = None) -> bytes:
        """Return the worker's answer. Raises NoAnswer; if the worker rejects the request, print why and exit."""
        headers = {"X-Syphon": "command"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if change is None else json.dumps(change).encode()
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310 - http and https alone, see below
        try:
            with _opener().open(request, timeout=STATUS_ANSWER_WITHIN) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            said = error.read(1000).decode(errors="replace").strip()
            refused = error.code in (401, 403)
            click.echo(f"The worker at {self.url} rejected the request: {printable(said)}", err=True)
            if error.code == 401:
                click.echo(
                    f"Set the token with status.token in -c FILE, or with the environment variable {TOKEN}.", err=True
                )
            code = (
                ExitCode.NOT_AUTHORIZED
                if refused
                else ExitCode.USAGE
                if error.code in (400, 404)
                else ExitCode.UNAVAILABLE
            )
            raise SystemExit(code) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            why = why.strerror or why if isinstance(why, OSError) else why
            raise NoAnswer(
                f"No answer from a worker at {self.url}: {why}. Is it running? Use --url for another address."
            ) from None


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c FILE` or `--url URL`."""
    url = click.option(
        "--url", metavar="URL", help=f"Address of the worker's status server; the token is read from {TOKEN}."
    )
    file = click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The worker's settings file, for address and token. Default as of `drain`.",
    )
    return file(url(command))


def find_worker(config_file: Path | None, url: str | None) -> WorkerClient:
    """The worker that the options select; without options the one at the default address."""
    token = os.environ.get(TOKEN, "")
    if config_file is None and url is None:
        config_file = default_config()
    config = load_settings(config_file) if config_file is not None else None
    if config is not None and config.status.token is not None:
        token = token or config.status.token.get_secret_value().strip()
    if url is None:
        url = _address(config) if config is not None else "http://127.0.0.1:8080"
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url} is not a URL: use the form http://127.0.0.1:8080")
    return WorkerClient(url.rstrip("/"), token)


def _address(config: Config) -> str:
    host, port = config.status.listen
    if port == 0:
        raise click.UsageError(
            "status.listen has port 0, so the port is unknown: use --url with the address that the worker logged."
        )
    if host in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _opener() -> urllib.request.OpenerDirector:
    """An opener without proxies, which would see the token, and without redirects, which would leak it."""
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
