"""The command line: one module for each command, and helpers that commands share.

A command imports what it needs when it runs, not before, so that `syphon --help` answers at once.
"""

from syphon.model import ExitCode

from .root import main

__all__ = ["main", "ExitCode"]
