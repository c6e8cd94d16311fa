"""Run the command as ``python -m waferstream``."""

import sys

from waferstream.cli.entry import run

if __name__ == "__main__":
    sys.exit(run())
