"""Run the command ``waferstream`` from a checkout: ``python run.py --help``."""

import sys
from pathlib import Path

from waferstream.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(home=Path(__file__).resolve().parent))
