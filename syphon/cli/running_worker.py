"""A worker that is running, as a command finds and asks it: over its status server."""

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
from .settings_file import load

if TYPE_CHECKING:
    from syphon.config import Config

TOKEN = "SYPHON_STATUS_TOKEN"  # noqa: S105 - the name of a variable
WITHIN = 10.0


class RunningWorker(NamedTuple):
    url: str
    token: str

    def __repr__(self) -> str:
        return f"RunningWorker({self.url})"

    def ask(self, path: str, change: dict[str, str] | None = None) -> bytes:
        """What it answers; or why there is no answer on stderr, and an exit code."""
        headers = {"X-Syphon": "command"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if change is None else json.dumps(change).encode()
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310 - http and https alone, see below
        try:
            with _opener().open(request, timeout=WITHIN) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            said = error.read(1000).decode(errors="replace").strip()
            refused = error.code in (401, 403)
            click.echo(f"The worker at {self.url} refuses: {printable(said)}", err=True)
            if error.code == 401:
                click.echo(f"The token is status.token of -c FILE, or what {TOKEN} holds.", err=True)
            code = ExitCode.NOT_AUTHORIZED if refused else ExitCode.USAGE if error.code == 404 else ExitCode.UNAVAILABLE
            raise SystemExit(code) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            click.echo(f"No worker answers at {self.url}: {why}. Is it running? --url names another address.", err=True)
            raise SystemExit(ExitCode.UNAVAILABLE) from None


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c FILE` or `--url URL`."""
    url = click.option("--url", metavar="URL", help=f"Where its status server is; {TOKEN} may hold its token.")
    file = click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The worker's settings: they say where it listens, and its token.",
    )
    return file(url(command))


def find_worker(config_file: Path | None, url: str | None) -> RunningWorker:
    """The worker that is meant. Without a word it is the one at the default address."""
    token = os.environ.get(TOKEN, "")
    config = load(config_file) if config_file is not None else None
    if config is not None and config.status.token is not None:
        token = token or config.status.token.get_secret_value().strip()
    if url is None:
        url = _address(config) if config is not None else "http://127.0.0.1:8080"
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url} is no address: write it as in http://127.0.0.1:8080")
    return RunningWorker(url.rstrip("/"), token)


def _address(config: Config) -> str:
    host, port = config.status.listen
    if port == 0:
        raise click.UsageError("status.listen leaves the port to chance: give --url, as the worker has logged it.")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _opener() -> urllib.request.OpenerDirector:
    """No proxy: it would see the token. No redirect: nobody here has a reason to send us elsewhere, with it."""
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
