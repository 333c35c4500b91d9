"""Exit codes: the same for every command, so that scripts and systemd can tell how a command ended.

The numbers from 69 on are those of BSD's sysexits.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from .errors import Faulted, Interrupted, NotAuthorized, SyphonError, Waits


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    """Done, and nothing is left to do."""

    LEFT = 1
    """Finished, but something was left in the backlog or went to the dead letters."""

    USAGE = 2
    """The command line is not valid: see --help."""

    UNAVAILABLE = 69
    """A namespace cannot be reached, or a port is taken. A later retry may help."""

    FAULTED = 70
    """A drain's pair, or all pairs of a worker, can no longer be used. A restart may help."""

    NOT_AUTHORIZED = 77
    """A namespace refused the credentials, or they lack a claim."""

    CONFIG = 78
    """The settings are wrong. A retry does not help, and the systemd unit does not restart the worker."""


def exit_code_for(errors: Iterable[SyphonError]) -> ExitCode:
    """The exit code of a command that could not reach some queues because of these errors."""
    code = ExitCode.OK
    for error in errors:
        if isinstance(error, NotAuthorized):
            code = max(code, ExitCode.NOT_AUTHORIZED)
        elif isinstance(error, Waits | Interrupted | Faulted):
            code = max(code, ExitCode.UNAVAILABLE)
        else:
            code = max(code, ExitCode.LEFT)
    return code
