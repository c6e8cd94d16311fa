from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.runs.tiny_run import ROOT
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Usage
from waferstream.serving.accounts.prices import read_price


def test_example_has_the_vendors_prices() -> None:
    price = read_price(ROOT / "examples" / "prices.yaml", "gpt-oss-120b")
    assert price.nanodollars(Usage(10**6, 0, 0)) == 350_000_000
    assert price.nanodollars(Usage(0, 0, 10**6)) == 750_000_000


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("model: {input: 1}", "missing-key"),
        ("model: {input: 1, output: -1}", "out-of-range"),
        ("model: {input: 1, output: 1, cached: 2}", "not-allowed"),
        ("model: {input: 0.0001, output: 1}", "not-allowed"),
        ("model: {input: 1, output: 1, per: 1000}", "unknown-key"),
        ("modle: {input: 1, output: 1}", "price-missing"),
        ("model: free", "wrong-type"),
    ],
)
def test_wrong_file_is_refused(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with raises(ConfigError, code):
        read_price(file, "model")
