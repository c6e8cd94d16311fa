"""The page of mistakes, docs/mistakes.md, made of the answers that were kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.mistakes.answer import LIMIT_S, ROOT, Answer
from scripts.mistakes.catalogue import MISTAKES

ANSWERS = Path(__file__).parent / "answers.json"
PAGE = ROOT / "docs" / "mistakes.md"

_Kept = Mapping[str, Sequence[Mapping[str, Any]]]

_HEAD = """\
# Forty mistakes

What people type wrongly, and what they get. Each line was typed in a folder with a small, valid
run; the answers are what was printed, and seconds are of processor time.
`python -m scripts.mistakes --write` types all again and makes this page;
[Troubleshooting](troubleshooting.md) says by code what to do.

"""


def keep(number: int, answers: Sequence[Answer]) -> None:
    """Keep the answers to a mistake in the place of earlier ones."""
    kept = dict(kept_answers())
    kept[str(number)] = [answer.dump() for answer in answers]
    ordered = {key: kept[key] for key in sorted(kept, key=int)}
    ANSWERS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def kept_answers() -> _Kept:
    """Return the answers that were kept, by the numbers of their mistakes."""
    if not ANSWERS.exists():
        return {}
    kept: _Kept = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return kept


def write_page() -> None:
    """Write the page of all answers that were kept."""
    PAGE.write_text(page_text(), encoding="utf-8")


def page_text() -> str:
    """Return the page: a summary, a table, and every answer."""
    kept = kept_answers()
    known = [mistake for mistake in MISTAKES if str(mistake.number) in kept]
    rows = [_row(each.number, each.what, kept[str(each.number)]) for each in known]
    table = ["| | mistake | seconds | answer |", "|---:|---|---:|---|", *rows]
    answers = [
        line for each in known for line in _section(each.number, each.what, kept[str(each.number)])
    ]
    return f"{_HEAD}{_summary(kept)}\n\n" + "\n".join([*table, "", *answers])


def _row(number: int, what: str, answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of a mistake in the table."""
    typed = f"[{number}](#mistake-{number})"
    return f"| {typed} | {what} | {_seconds(answers)} | {_verdict(answers)} |"


def _summary(kept: _Kept) -> str:
    """Return how many mistakes get good answers, and how long the slowest takes."""
    good = sum(_verdict(answers) == "good" for answers in kept.values())
    at_once = [each["cpu_s"] for answers in kept.values() for each in answers if not each["needs"]]
    return (
        f"{good} of {len(MISTAKES)} get good answers. Those that need no computation come after "
        f"{max(at_once):.1f} s at most; {LIMIT_S:g} s are allowed."
    )


def _seconds(answers: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(f"{each['cpu_s']:.1f}" for each in answers))


def _verdict(answers: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(dict.fromkeys(lack for each in answers for lack in each["lacks"])) or "good"


def _section(number: int, what: str, answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines about one mistake."""
    yield from (f"## Mistake {number}", "", f"{what[0].upper()}{what[1:]}.", "")
    for each in answers:
        needs = f" ({each['needs']})" if each["needs"] else ""
        yield from (f"{each['cpu_s']:.1f} s, exit code {each['code']}{needs}:", "")
        yield from ("```text", f"$ {each['words']}", each["text"], "```", "")
