"""Train or evaluate a model on an emulated wafer-scale cluster: ``python run.py --help``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    try:
        from waferstream.cli.main import main
    except KeyboardInterrupt:  # from here on main() answers to it
        sys.exit(130)
    sys.exit(main(home=Path(__file__).resolve().parent))
