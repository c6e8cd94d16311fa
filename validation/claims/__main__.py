"""Replay the claims of lessons, articles, talks and announcements: ``python -m validation.claims``.

With ``--markdown FILE`` the outcomes are written as a page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from validation.claims.claim import Claim, Outcome, read_claims
from validation.claims.replay import replay
from waferstream.host.files import replacing

_HEAD = """\
# Claims, replayed

What lessons, articles, talks and announcements say of the machine, each with one command that
replays it, and what the clock says. The page is written by
`python -m validation.claims --markdown docs/claims.md` from `validation/data/claims`.

- **right**: the machine of the clock does it;
- **within the interval**: it is predicted to be slower, within the interval that holds nine of ten
  published runs ([fidelity.md](fidelity.md));
- **outside the interval**: the hardware could, and the prediction is further off than those runs;
- **impossible**: beyond a bound that no software lifts, such as the dense peak or the memory.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay all claims, print the outcomes, write the page; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.claims", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("--markdown", type=Path, help="page to write")
    options = parser.parse_args(arguments)
    found = []
    with TemporaryDirectory() as folder:
        for claim in read_claims():
            outcome = replay(claim, Path(folder))
            found.append((claim, outcome))
            told = f"{outcome.verdict} ({outcome.predicted}; {outcome.why})"
            print(f"{claim.name}: {told}", flush=True)
    if options.markdown is not None:
        with replacing(options.markdown) as partial:
            partial.write_text(page(found), encoding="utf-8")
    return 0


def page(found: Sequence[tuple[Claim, Outcome]]) -> str:
    """Return the page of claims and outcomes as Markdown."""
    rows = [
        f"| {claim.name} | {claim.who} | {outcome.predicted} | **{outcome.verdict}** |"
        for claim, outcome in found
    ]
    table = ["| claim | by | here | verdict |", "|---|---|---|---|", *rows]
    return "\n".join([_HEAD, *table, *(_section(*each) for each in found)]) + "\n"


def _section(claim: Claim, outcome: Outcome) -> str:
    note = f" {claim.note}" if claim.note else ""
    return (
        f"\n## {claim.name}\n\n"
        f"{claim.says} ({claim.who}; {claim.source})\n\n"
        f"```bash\n{claim.command}\n```\n\n"
        f"Here: {outcome.predicted}. **{outcome.verdict.capitalize()}**: {outcome.why}.{note}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
