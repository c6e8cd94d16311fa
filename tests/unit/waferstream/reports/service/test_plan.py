"""Plans of services."""

from __future__ import annotations

from waferstream.machine.intervals import Interval
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import Service
from waferstream.reports.service.plan import Choice, ServicePlan

PLAN = ServicePlan("glm-4.7", Service(DECODERS["glm-4.7"], 1024), 1024, 64)


def test_no_choice_beats_another() -> None:
    """In wafers, speed and users at once."""
    others = PLAN.others
    assert others
    assert not any(one.beats(other) for one in others for other in others)
    assert Choice(1, 2, 1, 9.0, 5, 1).beats(Choice(2, 3, 1, 9.0, 5, 1))
    assert not Choice(1, 2, 1, 9.0, 5, 1).beats(Choice(2, 2, 1, 9.0, 5, 1))


def test_plan_states_the_intervals_of_a_users_speed() -> None:
    """As data and as text."""
    interval = PLAN.interval
    assert isinstance(interval, Interval)
    assert PLAN.as_json()["interval"]["nine_tenths"] == interval.nine_tenths > interval.half > 1
    assert "90 %: " in PLAN.text()


def test_json_has_every_region_once() -> None:
    """With the layers of its stage."""
    found = PLAN.as_json()
    regions = [tuple(place) for stage in found["stages"] for place in stage["regions"]]
    assert len(set(regions)) == len(regions)
    assert max(wafer for wafer, _, _ in regions) + 1 == found["wafers"]
    assert found["stages"][-2]["layers"][1] == 92


def test_text_maps_all_layers() -> None:
    """And tells experts apart from layers."""
    text = PLAN.text()
    assert all(f" {layer} " in f"{text} " or f" {layer}\n" in text for layer in range(92))
    assert "160 a layer, of which a token passes 9" in text
