"""Certificates for `--tls`: a certificate authority of our own, and a server certificate that it signs.

Clients are configured to trust `ca.pem` once. So the authority stays while it is valid. A server certificate that has
expired or does not name all namespaces is replaced under the same authority, and clients need no change.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=397)  # browsers and some clients accept no longer one
RENEW_BEFORE = timedelta(days=7)
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class ServerTls:
    """The TLS context of the server, and the certificate that clients trust."""

    context: ssl.SSLContext
    ca_file: Path


@dataclass(frozen=True)
class _KeyPair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def server_tls(
    directory: Path, namespaces: Iterable[str], hosts: Iterable[str] = (), now: datetime | None = None
) -> ServerTls:
    """Creates a TLS context for the sockets, with certificates in `directory` (created if they are missing).

    The certificate is valid for localhost, each of `hosts`, and each namespace by its name and as
    NAME.servicebus.windows.net.
    """
    now = now or datetime.now(UTC)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    names = _subject_names(namespaces, hosts)
    authority = _load(directory, "ca", now)
    if authority is None:
        authority = _make_authority(now)
        _store(directory, "ca", authority)
    server = _load(directory, "server", now)
    if server is None or not _serves(server, authority, names):
        server = _make_server(authority, names, now)
        _store(directory, "server", server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    return ServerTls(context, directory / "ca.pem")


def default_directory() -> Path:
    """The default directory of the certificates: one authority per user."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "syphon" / "emulator-tls"


def _subject_names(namespaces: Iterable[str], hosts: Iterable[str]) -> list[x509.GeneralName]:
    namespaces = list(namespaces)
    wanted = ["localhost", "127.0.0.1", "::1", *namespaces, *(f"{name}.servicebus.windows.net" for name in namespaces)]
    names: dict[str, x509.GeneralName] = {}
    for host in (*wanted, *hosts):
        try:
            names[host.lower()] = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            names[host.lower()] = x509.DNSName(host.lower())
    return list(names.values())


def _serves(server: _KeyPair, authority: _KeyPair, names: list[x509.GeneralName]) -> bool:
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
        held = server.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return set(names) <= set(held)


def _make_authority(now: datetime) -> _KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("syphon emulator CA (for development and tests only)")
    usage = _key_usage(signs_certificates=True)
    certificate = (
        _builder(name, name, key, now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _KeyPair(certificate, key)


def _make_server(authority: _KeyPair, names: list[x509.GeneralName], now: datetime) -> _KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    issuer_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(_name("syphon emulator"), issuer.subject, key, now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _KeyPair(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(directory: Path, name: str, now: datetime) -> _KeyPair | None:
    """Loads a certificate and its key. None if they are missing, damaged, do not match, or expire soon."""
    try:
        certificate = x509.load_pem_x509_certificate((directory / f"{name}.pem").read_bytes())
        key = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    lasts = certificate.not_valid_before_utc <= now and now + RENEW_BEFORE < certificate.not_valid_after_utc
    return _KeyPair(certificate, key) if lasts else None


def _store(directory: Path, name: str, identity: _KeyPair) -> None:
    key = identity.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The key first: if the process is stopped in between, the two do not match and both are made again.
    _write(directory / f"{name}.key", key, 0o600)
    _write(directory / f"{name}.pem", identity.certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Writes a file atomically, and a key so that other users can never read it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)
