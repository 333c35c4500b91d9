"""Access control: shared access policies, the tokens they sign, and the rights those tokens give.

A token is valid for an address and everything below it. Until it expires it carries the claims of the policy that
signed it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, unquote, urlsplit

from .descriptions import AuthorizationRule, Claim
from .refusals import Unauthorized

EVERYTHING = frozenset(Claim)


@dataclass(frozen=True, slots=True)
class Policy:
    """A named key with its claims. Manage includes the other two."""

    name: str
    key: str
    claims: frozenset[Claim]

    def __repr__(self) -> str:
        return f"Policy(name={self.name!r}, claims={sorted(self.claims)})"  # the key must not reach a log

    def grants(self) -> frozenset[Claim]:
        return EVERYTHING if Claim.MANAGE in self.claims else self.claims


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights a token gives: claims on a path and all paths below it (the empty path is the namespace), until a time
    in seconds."""

    path: str
    claims: frozenset[Claim]
    expires_at: float

    def covers(self, path: str, claim: Claim) -> bool:
        return claim in self.claims and is_below(path.lower(), self.path)


def is_below(path: str, root: str) -> bool:
    return root == "" or path == root or path.startswith(root + "/")


class Access:
    """The policies of a namespace, and those of its entities."""

    def __init__(
        self,
        hosts: Iterable[str] | None,
        policies: Iterable[Policy],
        accept_any_jwt: bool,
        rules_of: Callable[[str], tuple[AuthorizationRule, ...]],
        seconds: Callable[[], float] = time.time,
    ) -> None:
        self.seconds = seconds
        self.policies = {policy.name: policy for policy in policies}
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._accept_any_jwt = accept_any_jwt
        self._rules_of = rules_of

    def plain(self, name: str, key: str) -> Grant:
        """Checks the policy name and key of SASL PLAIN. The grant lasts as long as the connection."""
        policy = self.policies.get(name)
        if policy is None or not hmac.compare_digest(policy.key.encode(), key.encode()):
            raise Unauthorized(f"There is no policy '{name}' with that key.")
        return Grant("", policy.grants(), float("inf"))

    def token(self, token: str, address: str) -> Grant:
        """Checks that a token is genuine, current and meant for that address, and returns what it grants."""
        if not token.startswith("SharedAccessSignature "):
            return self._jwt(token, address)
        fields, raw = _parts(token)
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name) or name not in raw]
        if missing:
            raise Unauthorized(f"InvalidSignature: the token lacks {', '.join(missing)}.")
        audience = self._path_of(unquote(fields["sr"]), "audience")
        if not is_below(self._path_of(address, "address"), audience):
            raise Unauthorized(f"InvalidAudience: the token is for '{unquote(fields['sr'])}', not for '{address}'.")
        policy = self._policy(fields["skn"], audience, fields["sig"], f"{raw['sr']}\n{raw['se']}")
        return Grant(self._path_of(address, "address"), policy.grants(), self._expiry(fields["se"]))

    def _expiry(self, text: str) -> float:
        try:
            expires_at = float(text)
        except ValueError:
            expires_at = math.nan
        if not math.isfinite(expires_at):
            raise Unauthorized(f"InvalidToken: '{text:.100}' is no expiry in seconds since 1970.")
        if expires_at <= self.seconds():
            raise Unauthorized("ExpiredToken: the token has expired.")
        return expires_at

    def _policy(self, name: str, audience: str, signature: str, signed: str) -> Policy:
        candidates = [self.policies[name]] if name in self.policies else []
        for rule in self._rules_of(audience):
            if rule.key_name == name:
                claims = frozenset(rule.rights)
                candidates += [Policy(name, rule.primary_key, claims), Policy(name, rule.secondary_key, claims)]
        for policy in candidates:
            if hmac.compare_digest(_signature(policy.key, signed), signature.replace(" ", "+")):
                return policy
        raise Unauthorized(f"InvalidSignature: the token's signature is not one of policy '{name}'.")

    def _jwt(self, token: str, address: str) -> Grant:
        if not self._accept_any_jwt:
            raise Unauthorized("This emulator takes shared access signatures only, unless accept_any_jwt is set.")
        expires_at = self.seconds() + 3600
        try:
            body = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            expires_at = float(claims.get("exp", expires_at))
        except (IndexError, ValueError, binascii.Error, AttributeError, TypeError):
            pass  # the emulator accepts any JWT, also one without claims: that one lasts an hour
        return Grant(self._path_of(address, "address"), EVERYTHING, self._expiry(str(expires_at)))

    def _path_of(self, uri: str, what: str) -> str:
        try:
            # Some clients sign for the bare host: the JavaScript client does for the target of a forwarding.
            parts = urlsplit(uri if "://" in uri else f"//{uri}")
            host = (parts.hostname or "").lower()
        except ValueError:  # such as half an IPv6 address
            raise Unauthorized(f"InvalidAudience: the {what} '{uri}' is no address.") from None
        if self._hosts is not None and host not in self._hosts:
            raise Unauthorized(f"InvalidAudience: the {what} '{uri}' names '{host}', which is not this namespace.")
        return parts.path.strip("/").lower()


def key_name(token: str) -> str | None:
    """The name of the policy that a shared access signature says it was signed with."""
    return _parts(token)[0].get("skn") if token.startswith("SharedAccessSignature ") else None


@lru_cache(1000)
def _parts(token: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of a shared access signature, and the same as they were written. Clients use a token many times."""
    text = token.partition(" ")[2]
    fields = {key: values[0] for key, values in parse_qs(text, strict_parsing=False).items()}
    return fields, dict(part.partition("=")[::2] for part in text.split("&"))


@lru_cache(1000)
def _signature(key: str, signed: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), signed.encode(), hashlib.sha256).digest()).decode()
