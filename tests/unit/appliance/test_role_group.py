"""Roles that share a process compute what they compute apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from appliance.elaboration.elaborate import elaborate
from appliance.role_group import GroupSpec, grouped, names_of
from swarmx.topology import Tree
from tests.contract.small_cluster import MACHINE, SIZE, assert_same, office, programs, weights
from tests.support.roles.sorting_office import Choose, SortingOffice, oldest_first
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Job, RoleSpec

JOB = Job(ProgramKind.TRAIN, 1, 1)
TOGETHER = (["csx-0", "csx-1", "br-1"], ["br-0", "br-2", "csx-2"])


class GroupedOffice(SortingOffice):
    """Systems and switches in two processes."""

    def __init__(self, specs: Sequence[RoleSpec], choose: Choose = oldest_first) -> None:
        by_name = {spec.name: spec for spec in specs}
        groups = [GroupSpec(tuple(by_name.pop(name) for name in names)) for names in TOGETHER]
        super().__init__([*by_name.values(), *groups], choose)


@pytest.mark.parametrize("seed", [1, 2])
def test_roles_that_share_a_process_reach_the_same_weights(seed: int) -> None:
    alone, together = office(), office(Random(seed).choice, GroupedOffice)
    reports = [roles.run(JOB) for roles in (alone, together)]
    assert_same(weights(together), weights(alone))
    flat = [[*found, *(o for each in found for o in each.others)] for found in reports]
    results = [{each.role: each.results for each in found} for found in flat]
    assert results[0] == results[1]
    inside = [{*names} for names in TOGETHER]
    assert not any({e.source, e.target} <= names for e in together.delivered for names in inside)


def test_name_of_a_process_tells_all_its_roles() -> None:
    by_name = {spec.name: spec for spec in roles_of(8)}
    for names, title in (
        (["csx-3"], "csx-3"),
        (["csx-0", "csx-1", "csx-2", "br-0", "br-2"], "csx-0 to csx-2, br-0, br-2"),
    ):
        assert GroupSpec(tuple(by_name[name] for name in names)).name == title


def test_few_systems_have_a_process_each() -> None:
    specs = roles_of(8)
    assert grouped(specs, Tree(8, 4), cores=2) == specs
    specs = roles_of(64)
    assert grouped(specs, Tree(64, 4), cores=32) == specs


def test_many_systems_share_processes_with_the_switches_above_them() -> None:
    specs = roles_of(64)
    found = grouped(specs, Tree(64, 4), cores=2)
    names = [names_of(spec) for spec in found]
    assert sorted(name for each in names for name in each) == sorted(spec.name for spec in specs)
    groups = [each for each in names if len(each) > 1]
    assert groups[0] == [*(f"csx-{index}" for index in range(8)), "br-5", "br-6"]
    assert groups[-1] == [f"br-{index}" for index in range(5)]
    assert len(groups) == 9
    assert [spec.name for spec in found if spec.name.startswith("wgt")] == ["wgt-0"]


def roles_of(num_csx: int) -> list[RoleSpec]:
    """Return the roles of so many systems, with one weight server."""
    size = replace(SIZE, num_csx=num_csx, num_servers=1, num_activation_servers=0)
    _, train, _ = programs()
    return list(elaborate(train.program.parameters, size, MACHINE, 0, Tree(num_csx, 4)))
