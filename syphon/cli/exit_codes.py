"""Exit codes: the same for every command, so that scripts and systemd can tell how a command ended.

The numbers from 69 on are those of BSD's sysexits.h.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    """Done, and nothing is left to do."""

    LEFT = 1
    """Finished, but something was left in the backlog or went to the dead letters."""

    USAGE = 2
    """The command line is not valid: see --help."""

    UNAVAILABLE = 69
    """A namespace cannot be reached, or a port is taken. Trying again later may help."""

    FAULTED = 70
    """The pair has faulted and cannot be used any more. A restart may help."""

    NOT_AUTHORIZED = 77
    """A namespace refused the credentials, or they lack a claim."""

    CONFIG = 78
    """The settings are wrong. Trying again does not help, and the systemd unit does not restart the worker."""
