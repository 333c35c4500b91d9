"""`python -m syphon` is `syphon`."""

from syphon.cli import main

main(prog_name="syphon")
