"""The exit codes of all commands. They are declared in `model`, because the results of the functions carry them."""

from syphon.model import ExitCode

__all__ = ["ExitCode"]
