"""Train or evaluate a model on an emulated wafer-scale cluster: ``python run.py --help``."""

import sys
from pathlib import Path

from modelzoo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(home=Path(__file__).resolve().parent))
