"""The command line: a module for each command, and what they share.

Commands import what they need when they run, not before, so that `syphon --help` answers at once.
"""

from syphon.cli.exit_codes import ExitCode
from syphon.cli.root import main

__all__ = ["main", "ExitCode"]
