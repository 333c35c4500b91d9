"""Runs the scenario with several versions of the official clients against emulator processes, and prints a table.

`make clients`, or `make clients ARGS="javascript go"` for some languages. Each version has a folder of its own below
.clients, which stays for the next run; `newest` is checked each time. A language whose toolchain is missing is skipped
with a line that says so, and fails where CI=true. At the end messages of the newest version of each language go through
a backlog queue and a drain (`through_backlog.py`); with `backlog` among the languages that is all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.integration.emulator.clients import through_backlog

HERE = Path(__file__).parent
FOLDERS = Path(".clients").absolute()
NEWEST = "newest"
LONGEST = 240
"""Seconds that one scenario may take."""

Place = dict[str, Any]
"""What a scenario needs to find the emulator: connection_string, host, port, ca_file, policy and key."""


@dataclass(frozen=True)
class Client:
    """The official client of one language."""

    language: str
    package: str
    versions: tuple[str, ...]
    tools: tuple[str, ...]
    install: Callable[[Path, str], str]
    """Installs a version into a folder and returns which one it is."""
    command: Callable[[Path, Place], list[str]]
    parts: int = 8
    flavours: tuple[str, ...] = ("",)

    @property
    def folder(self) -> Path:
        """The folder of the newest version."""
        return FOLDERS / f"{self.language}-{self.versions[-1]}"

    @property
    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


# --- languages -------------------------------------------------------------------------------------------------------


def install_python(folder: Path, version: str) -> str:
    # setuptools: some of these versions import pkg_resources.
    return install_from_pypi(folder, "azure-servicebus", version, "aiohttp", "setuptools<80")


def install_proton(folder: Path, version: str) -> str:
    return install_from_pypi(folder, "python-qpid-proton", version)


def install_from_pypi(folder: Path, package: str, version: str, *others: str) -> str:
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, clear=True)
    wanted = package if version == NEWEST else f"{package}=={version}"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", wanted, *others)
    return run(python, "-c", f"from importlib.metadata import version; print(version({package!r}))")


def install_javascript(folder: Path, version: str) -> str:
    wanted = "latest" if version == NEWEST else version
    run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, f"@azure/service-bus@{wanted}")
    package = folder / "node_modules" / "@azure" / "service-bus" / "package.json"
    return str(json.loads(package.read_text())["version"])


def install_rhea(folder: Path, version: str) -> str:
    wanted = "latest" if version == NEWEST else version
    run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, f"rhea@{wanted}")
    return str(json.loads((folder / "node_modules" / "rhea" / "package.json").read_text())["version"])


def install_java(folder: Path, version: str) -> str:
    shutil.copy(HERE / "java" / "pom.xml", folder)
    shutil.rmtree(folder / "lib", ignore_errors=True)
    run(
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DoutputDirectory=lib",
        f"-Dservicebus.version={version}",
        cwd=folder,
    )
    (jar,) = (folder / "lib").glob("azure-messaging-servicebus-*.jar")
    return jar.stem.removeprefix("azure-messaging-servicebus-")


def install_go(folder: Path, version: str) -> str:
    module = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
    shutil.copy(HERE / "go" / "scenario.go", folder)
    if not (folder / "go.mod").exists():
        run("go", "mod", "init", "scenario", cwd=folder)
    run("go", "get", f"{module}@{'latest' if version == NEWEST else 'v' + version}", cwd=folder)
    run("go", "build", "-o", "scenario", ".", cwd=folder)
    return run("go", "list", "-m", "-f", "{{.Version}}", module, cwd=folder).removeprefix("v")


CLIENTS = (
    Client(
        "python",
        "azure-servicebus",
        ("7.0.0", "7.4.0", "7.9.0", "7.10.0", "7.12.3", "7.14.3", NEWEST),
        (),
        install_python,
        lambda folder, place: [str(folder / "bin" / "python"), str(HERE / "scenario.py"), json.dumps(place)],
        flavours=("sync", "asyncio"),
    ),
    Client(
        "javascript",
        "@azure/service-bus",
        ("7.0.0", "7.3.0", "7.5.1", "7.7.3", "7.8.1", "7.9.0", NEWEST),
        ("node", "npm"),
        install_javascript,
        lambda folder, place: ["node", str(HERE / "scenario.js"), str(folder), json.dumps(place)],
    ),
    Client(
        "java",
        "azure-messaging-servicebus",
        ("7.17.13", "7.17.20"),  # named: Maven's newest may be a beta
        ("java", "mvn"),
        install_java,
        lambda folder, place: [
            "java",
            "-cp",
            f"{folder / 'lib'}/*",
            str(HERE / "java" / "Scenario.java"),
            place["connection_string"],
        ],
        parts=9,
    ),
    Client(
        "go",
        "azservicebus",
        ("1.8.0", NEWEST),
        ("go",),
        install_go,
        lambda folder, place: [str(folder / "scenario"), place["connection_string"]],
    ),
    Client(
        "proton",
        "python-qpid-proton",
        (NEWEST,),
        (),
        install_proton,
        lambda folder, place: [str(folder / "bin" / "python"), str(HERE / "generic.py"), json.dumps(place)],
        parts=4,
    ),
    Client(
        "rhea",
        "rhea",
        (NEWEST,),
        ("node", "npm"),
        install_rhea,
        lambda folder, place: ["node", str(HERE / "generic.js"), str(folder), json.dumps(place)],
        parts=5,
    ),
)


# --- runs ------------------------------------------------------------------------------------------------------------


@contextmanager
def emulator() -> Iterator[Place]:
    """A fresh emulator process with the entities of the scenario."""
    queues = [{"name": "orders"}, {"name": "bills"}, {"name": "chats", "requires_session": True}]
    settings = {"namespaces": [{"name": "contoso", "amqp_port": 0, "http_port": 0, "queues": queues}]}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "emulator.yaml"
        config.write_text(yaml.safe_dump(settings))
        start = [sys.executable, "-c", "from syphon.cli import main; main()"]
        with subprocess.Popen(
            [*start, "emulator", "--json", "--tls", "--config", str(config)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                ready = json.loads(process.stdout.readline())
                (namespace,) = ready["namespaces"]
                yield place_of(namespace, ready["ca_file"])
            finally:
                process.terminate()


def place_of(namespace: dict[str, Any], ca_file: str) -> Place:
    rights = dict(part.split("=", 1) for part in namespace["connection_string"].split(";") if part)
    return {
        "connection_string": namespace["connection_string"],
        "host": "127.0.0.1",
        "port": namespace["amqp_port"],
        "ca_file": ca_file,
        "policy": rights["SharedAccessKeyName"],
        "key": rights["SharedAccessKey"],
    }


def results_of(client: Client, folder: Path, flavour: str) -> dict[str, str | None]:
    """The error of each part, or None. A scenario that ends without a result is one error."""
    with emulator() as place:
        command = client.command(folder, place)
        if flavour:
            command.insert(-1, flavour)
        environment = os.environ | {"NODE_EXTRA_CA_CERTS": place["ca_file"]}
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=LONGEST, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return {"start": f"no result within {LONGEST} s"}
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        return {"start": (ended.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    results: dict[str, str | None] = json.loads(lines[-1])
    return results


def passes(client: Client) -> bool:
    """Runs all versions of a client, prints a line for each, and returns whether all parts passed."""
    all_passed = True
    for version in client.versions:
        folder = FOLDERS / f"{client.language}-{version}"
        folder.mkdir(parents=True, exist_ok=True)
        installed = client.install(folder, version)
        for flavour in client.flavours:
            results = results_of(client, folder, flavour)
            errors = "".join(f"  {part}: {error}" for part, error in results.items() if error is not None)
            passed = sum(error is None for error in results.values())
            all_passed = all_passed and passed == client.parts
            name = f"{client.package} {flavour}".strip()
            print(f"{name:<28}{installed:<10}{passed} of {client.parts}{errors}", flush=True)
    return all_passed


def passes_backlog(clients: list[Client]) -> bool:
    """Sends messages with the newest version of each client through a backlog queue, and prints a line for each."""
    errors: dict[str, list[str]] = {}
    counts: dict[str, str] = {}
    with through_backlog.pair() as pair:
        place = place_of(pair.ready["namespaces"][0], pair.ready["ca_file"])
        for client in clients:
            client.folder.mkdir(parents=True, exist_ok=True)
            client.install(client.folder, client.versions[-1])
            command = client.command(client.folder, place)
            command.insert(-1, "types")
            error = through_backlog.send(command, place["ca_file"])
            sent = pair.take(client.language)
            counts[client.language] = f"{len(sent)} messages, {through_backlog.property_count(sent)} properties"
            errors[client.language] = [error] if error else [] if sent else ["sent nothing"]
        for language, problems in pair.drain().items():
            errors[language] += problems
    for client in clients:
        found = "; ".join(errors[client.language]) or "byte-equal after the drain"
        print(f"{client.package:<28}{'backlog':<10}{counts[client.language]}: {found}", flush=True)
    return not any(errors.values())


def main(languages: list[str]) -> int:
    print(f"{'client':<28}{'version':<10}parts passed")
    passed, only_backlog = True, "backlog" in languages
    languages = [language for language in languages if language != "backlog"]
    able = []
    for client in CLIENTS:
        if languages and client.language not in languages:
            continue
        if client.missing:
            print(f"{client.package:<28}skipped: {' and '.join(client.missing)} not found", flush=True)
            passed = passed and not os.environ.get("CI")
            continue
        able.append(client)
        if not only_backlog:
            passed = passes(client) and passed
    passed = passes_backlog(able) and passed
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
