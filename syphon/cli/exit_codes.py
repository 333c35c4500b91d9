"""How a command ends, as a number: the same for every command, so that scripts and systemd can tell.

The numbers from 69 on are those of BSD's sysexits.h.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process leaves behind for whoever started it."""

    OK = 0
    """Done, and nothing is left to do."""

    LEFT = 1
    """Finished, but something was left in the backlog or went to the dead letters."""

    USAGE = 2
    """The command line makes no sense: try --help."""

    UNAVAILABLE = 69
    """A namespace cannot be reached, or a port is taken. Trying again later may help."""

    FAULTED = 70
    """The pair has faulted and cannot be used any more. A restart may help."""

    NOT_AUTHORIZED = 77
    """Credentials were refused, or lack a claim."""

    CONFIG = 78
    """The settings are wrong. Trying again will not help, and systemd is told not to."""
