"""`python -m syphon` is `syphon`."""

import signal
import sys

if not sys.flags.safe_path and __name__ == "__main__":
    # Python has put the working directory first, and a module there would be imported in place of its namesake.
    del sys.path[0]


def start() -> None:
    """Run the command line. Ctrl-C while it is being imported ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from syphon.cli import main

    signal.signal(signal.SIGINT, handler)
    main(prog_name="syphon")


if __name__ == "__main__":
    start()
