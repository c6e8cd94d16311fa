"""Claims are judged by the prediction, its interval and the bound of the hardware."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from validation.claims.__main__ import page
from validation.claims.claim import Claim, Outcome, Speeds, Verdict, judge, read_claims
from validation.claims.replay import replay
from waferstream.core.errors import ConfigError
from waferstream.machine.intervals import AnyInterval, Interval, Unknown

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
CLAIMS = {claim.name: claim for claim in read_claims()}
ON_THE_SPOT = [claim.name for claim in CLAIMS.values() if claim.kind in ("capacity", "figure")]
SIMULATED = [name for name in CLAIMS if name not in ON_THE_SPOT]

KNOWN = Interval(1.05, 1.2, 0.1, "T0001")
NOBODY = Unknown("nobody measured it", "a run")


@pytest.mark.parametrize(
    ("claimed", "predicted", "interval", "verdict"),
    [
        (9.0, 10.0, KNOWN, "right"),
        (10.0, 10.0, KNOWN, "right"),
        (11.0, 10.0, KNOWN, "within the interval"),
        (13.0, 10.0, KNOWN, "outside the interval"),
        (11.0, 10.0, NOBODY, "outside the interval"),
        (21.0, 10.0, KNOWN, "impossible"),
        (21.0, None, KNOWN, "impossible"),
        (9.0, None, NOBODY, "impossible"),
    ],
)
def test_verdict(
    claimed: float, predicted: float | None, interval: AnyInterval, verdict: Verdict
) -> None:
    """With a bound of 20."""
    assert judge(Speeds(claimed, predicted, 20.0, "the peak"), interval)[0] == verdict


def section(name: str) -> str:
    """Return the section of a claim on the page."""
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", CLAIMS)
def test_page_replays_each_claim_with_one_command(name: str) -> None:
    """And says who claims it, and what comes out."""
    claim = CLAIMS[name]
    assert claim.says in section(name)
    assert f"```bash\n{claim.command}\n```" in section(name)


@pytest.mark.parametrize("name", ON_THE_SPOT)
def test_figure_of_the_page_is_that_of_the_clock(name: str, tmp_path: Path) -> None:
    check_outcome(name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SIMULATED)
def test_simulation_of_the_page_is_that_of_the_clock(name: str, tmp_path: Path) -> None:
    check_outcome(name, tmp_path)


def check_outcome(name: str, folder: Path) -> None:
    """Compare what a claim gives now with the page."""
    outcome = replay(CLAIMS[name], folder)
    assert outcome.predicted in section(name)
    assert f"**{outcome.verdict.capitalize()}**" in section(name)


def test_page_has_a_line_for_each_claim() -> None:
    claim = Claim(
        name="a", who="talk", says="It is fast.", kind="fits", value=1, command="waferstream x"
    )
    text = page([(claim, Outcome("1 day", "right", "so it is"))])
    assert "| a | talk | 1 day | **right** |" in text
    assert "**Right**: so it is." in text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("claims: [{name: a}]", "missing-key"),
        ("claims: [{name: a, who: me, says: b, kind: days, value: 1, command: c}]", "not-one-of"),
        (
            "claims: [{name: a, who: talk, says: b, kind: days, value: 0, command: c}]",
            "out-of-range",
        ),
    ],
)
def test_wrong_claim_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    with raises(ConfigError, code):
        read_claims(path)
