"""An HTTP proxy that opens tunnels (CONNECT), with Basic authentication if it is asked to.

It looks names up in a table of its own. So a client can be told that a namespace is at contoso.servicebus.windows.net,
port 443, as on Azure, and the tunnel ends at an emulator. All connections can be cut, or go silent.
"""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

CHUNK = 262_144


class ConnectProxy:
    """A proxy on a port of this machine: `with ConnectProxy({"contoso.servicebus.windows.net:443": port}) as proxy`."""

    def __init__(self, ports: Mapping[str, int], credentials: tuple[str, str] | None = None) -> None:
        self.requests: list[str] = []
        """The targets that were requested and let through."""
        self.refusals: list[str] = []
        """The targets that were requested and refused."""
        self._ports = ports
        self._expected: str | None = None
        if credentials is not None:
            self.require(*credentials)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []

    def __enter__(self) -> ConnectProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def require(self, username: str, password: str) -> None:
        """Lets only these credentials through from now on. Tunnels that are open stay."""
        self._expected = _basic(username, password)

    def cut(self) -> None:
        """Cuts all tunnels."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(near,), name="tunnel", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError), near.makefile("rb") as lines:
            method, target, _ = lines.readline().decode().split()
            headers: dict[str, str] = {}
            while line := lines.readline().decode().strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            status = self._judge(method, target, headers.get("proxy-authorization"))
            if status != "200 OK":
                self.refusals.append(target)
                near.sendall(f"HTTP/1.1 {status}\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n".encode())
                return
            self.requests.append(target)
            with socket.create_connection(("127.0.0.1", self._ports[target])) as far:
                near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                self._open += [near, far]
                back = threading.Thread(target=_pass_on, args=(far, near), name="tunnel", daemon=True)
                back.start()
                _pass_on(near, far)
                back.join()

    def _judge(self, method: str, target: str, credentials: str | None) -> str:
        if method != "CONNECT":
            return "405 Method Not Allowed"
        if self._expected is not None and credentials != self._expected:
            return "407 Proxy Authentication Required"
        return "200 OK" if target in self._ports else "502 Bad Gateway"


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(ports: Mapping[str, int], credentials: tuple[str, str] | None = None) -> Iterator[ConnectProxy]:
    """A proxy to namespaces by their first label: {"contoso": port} is port 443 of contoso.servicebus.windows.net."""
    targets = {f"{name}.servicebus.windows.net:443": port for name, port in ports.items()}
    with ConnectProxy(targets, credentials) as proxy:
        yield proxy
