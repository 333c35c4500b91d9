"""Parses connection strings and lists their mistakes. No error repeats a part of one: any part could be the key."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Flaw:
    """One mistake in a connection string, as the end of a sentence, and its remedy."""

    text: str
    remedy: str


class BadConnectionString(ValueError):
    """A connection string that cannot be used."""

    def __init__(self, flaws: list[Flaw]) -> None:
        super().__init__("; ".join(f"the connection string {flaw.text}: {flaw.remedy}" for flaw in flaws))
        self.flaws = flaws


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The contents of a connection string without its key: this may be printed."""

    host: str
    port: int | None
    key_name: str | None
    """None with a shared access signature, which contains no policy name."""
    emulator: bool

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Raises BadConnectionString with all flaws of the text."""
        flaws: list[Flaw] = []
        parts = _parts(text, flaws)
        if parts:
            _check_secrets(parts, flaws)
            _check_options(parts, flaws)
        host, port = _endpoint(parts, flaws)
        if flaws:
            raise BadConnectionString(flaws)
        return cls(host, port, parts.get(_KEY_NAME), parts.get(_EMULATOR) == "true")


_KEY_NAME, _KEY, _SIGNATURE = "sharedaccesskeyname", "sharedaccesskey", "sharedaccesssignature"
_EMULATOR = "usedevelopmentemulator"
_KNOWN = frozenset(
    {
        "endpoint",
        _KEY_NAME,
        _KEY,
        _SIGNATURE,
        "entitypath",
        _EMULATOR,
        # The retired .NET SDK wrote these. We do not use them, and they do no harm.
        "transporttype",
        "operationtimeout",
        "stsendpoint",
        "runtimeport",
        "managementport",
    }
)
_COPY = "copy it whole from the namespace's shared access policies"


def refuse_secret(name: str) -> None:
    """Raises InvalidOption for a name that may be a connection string. The error does not repeat it."""
    if re.search(r"endpoint=|sharedaccess|://", name, re.IGNORECASE):
        raise InvalidOption(
            "a connection string is no name, and other users see the command line: write env:VARIABLE or file:PATH "
            "in its place, or name the namespace in the settings."
        )


def _parts(text: str, flaws: list[Flaw]) -> dict[str, str]:
    parts: dict[str, str] = {}
    if not text.strip():
        flaws.append(Flaw("is empty", _COPY))
        return parts
    if "\n" in text.strip():
        flaws.append(Flaw("has several lines", "keep one connection string, on one line"))
        return parts
    if "=" not in text:
        flaws.append(Flaw("is no connection string", _COPY))
        return parts
    for place, part in enumerate(text.strip().rstrip(";").split(";"), start=1):
        name, equals, value = part.partition("=")
        key = name.lower()
        which = f"has a part (number {place})"
        if not equals or not value:
            flaws.append(Flaw(f"{which} that is not Name=Value", _COPY))
        elif name != name.strip() or value != value.strip():
            flaws.append(Flaw(f"{which} with white space around it", "remove the spaces and line breaks"))
        elif key not in _KNOWN:
            flaws.append(Flaw(f"{which} whose name is not known", "remove it, or correct its name"))
        elif key in parts:
            flaws.append(Flaw(f"{which} that occurs twice", "keep one of them"))
        parts[key.strip()] = value.strip()
    return parts


def _check_secrets(parts: dict[str, str], flaws: list[Flaw]) -> None:
    if _KEY in parts and _SIGNATURE in parts:
        flaws.append(Flaw("has SharedAccessKey and SharedAccessSignature", "keep one of them"))
    elif _KEY in parts and _KEY_NAME not in parts:
        flaws.append(Flaw("has SharedAccessKey, but no SharedAccessKeyName", "add the name of its policy"))
    elif _KEY_NAME in parts and _KEY not in parts:
        flaws.append(Flaw("has SharedAccessKeyName, but no SharedAccessKey", _COPY))
    elif _KEY not in parts and _SIGNATURE not in parts:
        flaws.append(Flaw("has neither SharedAccessKey nor SharedAccessSignature", _COPY))


def _check_options(parts: dict[str, str], flaws: list[Flaw]) -> None:
    if "entitypath" in parts:
        flaws.append(Flaw("is valid for one entity only (EntityPath)", "use one from a policy of the namespace"))
    if parts.get(_EMULATOR, "false") not in ("true", "false"):  # the SDK reads True as false
        flaws.append(Flaw("has a UseDevelopmentEmulator that is neither true nor false", "write it in lower case"))


def _endpoint(parts: dict[str, str], flaws: list[Flaw]) -> tuple[str, int | None]:
    how = "write Endpoint=sb://contoso.servicebus.windows.net/"
    if "endpoint" not in parts:
        if parts:
            flaws.append(Flaw("has no Endpoint", how))
        return "", None
    try:
        url = urlsplit(parts["endpoint"])
        host, port = url.hostname or "", url.port
    except ValueError:
        url, host, port = urlsplit(""), "", None
    if url.scheme in ("http", "https", "amqp", "amqps"):
        flaws.append(Flaw(f"has an Endpoint with {url.scheme}://", "write sb:// instead"))
    elif url.scheme != "sb" or not is_host(host) or url.path not in ("", "/") or url.query or url.username is not None:
        flaws.append(Flaw("has an Endpoint that is not understood", how))
    return host.rstrip("."), port


def is_host(text: str) -> bool:
    """Whether a text is a host name or an IP address."""
    return _ip_address(text) is not None or (len(text) <= 253 and _HOST.fullmatch(text) is not None)


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine, so that traffic to it need not be encrypted."""
    address = _ip_address(host)
    return address.is_loopback if address is not None else host.lower() == "localhost"


def first_label(host: str) -> str | None:
    """`contoso` of contoso.servicebus.windows.net, with or without a port; an IP address or localhost has none."""
    if host.startswith("["):
        return None
    name = host if host.count(":") > 1 else host.partition(":")[0].lower().rstrip(".")
    if name in ("", "localhost") or name.endswith(".localhost") or _ip_address(name) is not None:
        return None
    return name.partition(".")[0]


def _ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
