"""Signs the messages between a slot and the driver: HMAC-SHA256 with the secret of the run, which is never sent.

A listener between nodes learns no key, and can neither make a message nor change one. Nor can it send one again: the
reports of an attempt are numbered, and an order is signed for the one report that it answers.

A signature has two parts, the digest of the content and the code over that digest. So the server recognises a stranger
before it reads the stranger's message.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum


class Purpose(StrEnum):
    """What a signature is for. One that was made for a report is not valid for an order."""

    REPORT = "report"
    ORDER = "order"


def signature(secret: str, purpose: Purpose, content: bytes, answers: str = "") -> str:
    """Signs a message. `answers` is the signature of the message that this one answers."""
    digest = hashlib.sha256(content).hexdigest()
    return f"{digest}.{_code(secret, purpose, digest, answers)}"


def is_made_with(secret: str, purpose: Purpose, signed: str, answers: str = "") -> bool:
    """Whether somebody who knows the secret has made this signature, for whichever content."""
    digest, _, code = signed.partition(".")
    return hmac.compare_digest(code.encode(), _code(secret, purpose, digest, answers).encode())


def fits(signed: str, content: bytes) -> bool:
    """Whether a signature is that of this content."""
    return hmac.compare_digest(signed.partition(".")[0].encode(), hashlib.sha256(content).hexdigest().encode())


def _code(secret: str, purpose: Purpose, digest: str, answers: str) -> str:
    return hmac.new(secret.encode(), f"{purpose}\n{answers}\n{digest}".encode(), hashlib.sha256).hexdigest()
