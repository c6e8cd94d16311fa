"""Run the programs and write their table; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import scripts.programs
from scripts.programs.catalogue import PROGRAMS
from scripts.programs.page import with_outcomes
from scripts.programs.runs import compare


def main() -> int:
    """Run the programs of the catalogue; return the exit code."""
    parser = argparse.ArgumentParser(description=scripts.programs.__doc__, allow_abbrev=False)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--only", help="programs whose names begin so")
    parser.add_argument("--out", type=Path, default=Path("program_runs"))
    parser.add_argument("--page", type=Path, help="the page whose table is written anew")
    typed = parser.parse_args()
    chosen = [each for each in PROGRAMS if each.name.startswith(typed.only or "")]
    outcomes = []
    for program in chosen:
        outcomes.append(compare(program, typed.checkouts.resolve(), typed.out.resolve()))
        print(program.name, f"{outcomes[-1].distance:.1e}", *outcomes[-1].handed_over, flush=True)
    if typed.page is not None:
        typed.page.write_text(with_outcomes(typed.page.read_text(), outcomes))
    return 0 if all(each.is_good for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
