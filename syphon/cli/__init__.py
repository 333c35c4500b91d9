"""The command line: a module for each command, and what they share.

Commands import what they need when they run, not before, so that `syphon --help` answers at once.
"""

from .exit_codes import ExitCode
from .root import main

__all__ = ["main", "ExitCode"]
