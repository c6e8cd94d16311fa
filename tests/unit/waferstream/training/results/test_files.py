"""The title of a run's figure."""

from __future__ import annotations

from dataclasses import replace

from tests.support.reports.summaries import summary
from waferstream.reports.run.summary import ModelSummary
from waferstream.training.results.files import title_of


def test_title_names_models_of_any_size() -> None:
    run = summary(num_csx=2)
    assert title_of(run) == "gpt2, 3.3 million parameters, 2 x CS-2"
    small = replace(run, model=ModelSummary("GPT", 28_500))
    assert title_of(small) == "GPT, 28.5 thousand parameters, 2 x CS-2"
