"""Arguments that several commands of the validation take."""

from __future__ import annotations

import argparse
from pathlib import Path

from validation.rows.reader import PUBLISHED


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add the files of the rows to a parser."""
    parser.add_argument(
        "--rows",
        nargs="+",
        type=Path,
        default=PUBLISHED,
        metavar="FILE",
        help="CSV files of published measurements (default: those of validation/data)",
    )
