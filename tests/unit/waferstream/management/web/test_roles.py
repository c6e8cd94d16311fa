"""The picture of a workflow's roles follows from what it tells of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from swarmx.topology import Tree
from waferstream.management.model.telemetry import Sample, Telemetry
from waferstream.management.web.roles import MOST_DRAWN, WIDTH, Picture, picture


def drawn(num_systems: int, fan_out: int = 4) -> Picture | None:
    tree = Tree(num_systems, fan_out)
    names = ["wgt-0", "wgt-1", *(switch.name for switch in tree.switches)]
    names += [f"csx-{index}" for index in range(num_systems)]
    samples = [Sample(metric="utilisation_ratio", value=0.5, labels=(name,)) for name in names]
    sent = Sample(metric="bandwidth_bytes_per_second", value=2e9, labels=("wgt-0", "down"))
    return picture(Telemetry(samples=(*samples, sent)))


@pytest.mark.parametrize(("num_systems", "fan_out"), [(1, 4), (4, 4), (6, 4), (7, 2), (64, 4)])
def test_lines_are_those_of_the_tree(num_systems: int, fan_out: int) -> None:
    shown = drawn(num_systems, fan_out)
    assert shown is not None
    tree = Tree(num_systems, fan_out)
    expected = {(each.name, child) for each in tree.switches for child in each.children}
    servers = {("wgt-0", "br-0"), ("wgt-1", "br-0")}
    assert {(upper.name, lower.name) for upper, lower in shown.lines} == expected | servers


def test_boxes_lie_beside_each_other() -> None:
    shown = drawn(64)
    assert shown is not None
    for kind in ("server", "system"):
        boxes = [role for role in shown.roles if role.kind == kind]
        ends = [(role.x, role.x + role.width) for role in boxes]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
        assert ends[0][0] >= 0
        assert ends[-1][1] <= WIDTH


def test_box_says_what_the_role_does() -> None:
    shown = drawn(2)
    assert shown is not None
    assert shown.roles[0].text == "wgt-0: 50% of the emulated time in use, sends 2 GB/s down"


def test_nothing_is_drawn_of_no_role_or_too_many() -> None:
    assert picture(Telemetry()) is None
    assert drawn(MOST_DRAWN + 1) is None
