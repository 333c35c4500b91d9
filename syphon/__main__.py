"""`python -m syphon` is `syphon`."""

import sys

if not sys.flags.safe_path:
    # Python has put the working directory first, and a module there would be imported in place of its namesake.
    del sys.path[0]

from syphon.cli import main

main(prog_name="syphon")
