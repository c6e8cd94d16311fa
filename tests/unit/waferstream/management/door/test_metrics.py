"""The numbers of a management as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.door.metrics import exposition
from waferstream.management.model.telemetry import Numbers, Sample, Telemetry

QUEUED = Sample(metric="queued_workflows", value=3, labels=("P2",))
LOSS = Telemetry(samples=(Sample(metric="loss", value=2.5),))
ENERGY = Telemetry(samples=(Sample(metric="energy_joules_total", value=7),))


def read(numbers: Numbers) -> dict[tuple[str, ...], float]:
    """Return each number by its name and its labels' values."""
    families = text_string_to_metric_families(exposition(numbers).decode())
    samples = (sample for family in families for sample in family.samples)
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_numbers_of_management_and_workflows_stand_beside_each_other() -> None:
    told = {"wflow-a": LOSS, "wflow-b": ENERGY}
    assert read(Numbers(management=(QUEUED,), workflows=told)) == {
        ("waferstream_queued_workflows", "P2"): 3,
        ("waferstream_loss", "wflow-a"): 2.5,
        ("waferstream_energy_joules_total", "wflow-b"): 7,
    }


@pytest.mark.parametrize(
    ("sample", "code"),
    [
        ({"metric": "queued_workflows", "value": 1, "labels": ("P0",)}, "not-allowed"),
        ({"metric": "loss", "value": 1, "labels": ("wgt-0",)}, "not-allowed"),
        ({"metric": "power_watts", "value": 1, "labels": ("r" * 65,)}, "not-allowed"),
    ],
)
def test_number_that_a_workflow_does_not_have_is_refused(
    sample: dict[str, object], code: str
) -> None:
    with raises(ConfigError, code):
        Telemetry.model_validate({"samples": [sample]})
