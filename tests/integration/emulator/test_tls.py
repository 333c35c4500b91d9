"""The certificates of `--tls`, tried with real handshakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from syphon.emulator.tls import CA_LIFE, SERVER_LIFE, ServerTls, default_directory, server_tls

NOW = datetime.now(UTC)


def make(directory: Path, namespaces: Iterable[str] = ("contoso",), now: datetime = NOW) -> ServerTls:
    return server_tls(directory, namespaces, now=now)


async def shake_hands(tls: ServerTls, ca_file: Path, name: str) -> str | None:
    """What a client that trusts `ca_file` and looks for `name` has to say of the server's certificate."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context)
    port = server.sockets[0].getsockname()[1]
    context = ssl.create_default_context(cafile=str(ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as newer Pythons do by themselves
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        writer.close()
        await writer.wait_closed()
        return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "::1", "localhost", "contoso", "contoso.servicebus.windows.net", "fabrikam"]
)
async def test_a_client_that_trusts_our_authority_trusts_each_name_of_the_server(tmp_path: Path, name: str) -> None:
    tls = make(tmp_path, ["contoso", "Fabrikam"])
    assert await shake_hands(tls, tls.ca_file, name) is None


async def test_another_name_is_not_trusted(tmp_path: Path) -> None:
    tls = make(tmp_path)
    assert "mismatch" in (await shake_hands(tls, tls.ca_file, "fabrikam.servicebus.windows.net") or "")


async def test_the_host_it_listens_on_can_be_added(tmp_path: Path) -> None:
    tls = server_tls(tmp_path, ["contoso"], hosts=["bus.test", "10.1.2.3", "0.0.0.0"])
    assert await shake_hands(tls, tls.ca_file, "bus.test") is None
    assert await shake_hands(tls, tls.ca_file, "10.1.2.3") is None


def test_keys_are_for_the_owner_alone(tmp_path: Path) -> None:
    make(tmp_path / "new" / "place")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new" / "place").iterdir()}
    assert set(modes) == {"ca.pem", "ca.key", "server.pem", "server.key"}
    assert modes["ca.key"] == modes["server.key"] == 0o600


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def changed(directory: Path, before: dict[str, bytes]) -> set[str]:
    return {name for name, text in content(directory).items() if before.get(name) != text}


def test_certificates_are_used_again_while_they_are_valid(tmp_path: Path) -> None:
    make(tmp_path, ["contoso", "fabrikam"])
    before = content(tmp_path)
    make(tmp_path, ["contoso"], NOW + timedelta(days=300))
    assert changed(tmp_path, before) == set()


async def test_a_new_namespace_gets_a_new_certificate_from_the_same_authority(tmp_path: Path) -> None:
    make(tmp_path)
    before = content(tmp_path)
    tls = make(tmp_path, ["contoso", "fabrikam"])
    assert changed(tmp_path, before) == {"server.pem", "server.key"}
    assert await shake_hands(tls, tls.ca_file, "fabrikam") is None


def test_a_certificate_that_is_about_to_run_out_is_made_again_in_time(tmp_path: Path) -> None:
    make(tmp_path)
    before = content(tmp_path)
    make(tmp_path, now=NOW + SERVER_LIFE - timedelta(days=1))
    assert changed(tmp_path, before) == {"server.pem", "server.key"}
    make(tmp_path, now=NOW + CA_LIFE - timedelta(days=1))
    assert changed(tmp_path, before) == {"server.pem", "server.key", "ca.pem", "ca.key"}


@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "server.pem", "server.key"])
@pytest.mark.parametrize("spoilt", [b"", b"not a certificate", None])
async def test_a_spoilt_or_missing_file_is_made_again(tmp_path: Path, name: str, spoilt: bytes | None) -> None:
    make(tmp_path)
    (tmp_path / name).unlink()
    if spoilt is not None:
        (tmp_path / name).write_bytes(spoilt)
    tls = make(tmp_path)
    assert await shake_hands(tls, tls.ca_file, "contoso") is None


async def test_a_server_certificate_of_another_authority_is_made_again(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    for name in ("server.pem", "server.key"):
        (tmp_path / "a" / name).write_bytes((tmp_path / "b" / name).read_bytes())
    tls = make(tmp_path / "a")
    assert await shake_hands(tls, tls.ca_file, "contoso") is None


def test_the_usual_place_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "syphon" / "emulator-tls"
