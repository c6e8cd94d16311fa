"""Type forty mistakes, and judge the answers.

    python -m scripts.mistakes [--only N ...] [--write]

Each is typed in a folder of its own, in a process of its own. An answer is good if it says what it
should (what, where, the value, the rule, the remedy), without a traceback, within two seconds of
processor time unless something must be computed to see the mistake, and leaves nothing. Full and
read-only disks are mounted, which takes the rights of root. ``--write`` keeps the answers in
``answers.json``, of which docs/mistakes.md is made.
Exit codes: 0 all answers are good, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys

from scripts.mistakes.answer import answer_of
from scripts.mistakes.catalogue import MISTAKES
from scripts.mistakes.page import keep, write_page


def main(words: list[str] | None = None) -> int:
    """Type the mistakes, print what their answers lack, and return the exit code."""
    parser = argparse.ArgumentParser(description="Type mistakes, and judge the answers.")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="their numbers")
    parser.add_argument("--write", action="store_true", help="keep the answers")
    given = parser.parse_args(words)
    is_good = True
    for mistake in MISTAKES:
        if given.only and mistake.number not in given.only:
            continue
        answers = [answer_of(typed) for typed in mistake.typed]
        for answer in answers:
            is_good = is_good and not answer.lacks
            verdict = "; ".join(answer.lacks) or "good"
            print(
                f"{mistake.number:2} {answer.cpu_s:5.1f} s  {answer.words}: {verdict}", flush=True
            )
        if given.write:
            keep(mistake.number, answers)
    if given.write:
        write_page()
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
