"""The least bytes between hosts, counted by hand."""

import pytest

from appliance.placement.placer import Host, Placer
from benchmarks.hosts.figures import least_bytes, num_subtrees

PARAMETERS = 1000
WEIGHTS = 2 * 4 * PARAMETERS
GRADIENTS = 4 * PARAMETERS


def least(num_hosts: int, num_csx: int) -> int:
    hosts = tuple(Host(str(index), "", 12) for index in range(num_hosts))
    return least_bytes(Placer(hosts, strategy="SPREAD").place(num_csx), PARAMETERS, 12)


@pytest.mark.parametrize(
    ("micro_batches", "count"),
    [(range(8), 1), (range(8, 12), 1), (range(6, 12), 2), (range(3), 2), (range(1, 7), 4)],
)
def test_neighbours_are_as_many_subtrees_as_have_no_sibling(
    micro_batches: range, count: int
) -> None:
    assert num_subtrees(micro_batches, 12) == count


@pytest.mark.parametrize(
    ("num_hosts", "num_csx", "bytes_of_a_step"),
    [
        (1, 4, 0),
        (2, 12, WEIGHTS + 2 * GRADIENTS),
        (3, 12, 2 * (WEIGHTS + GRADIENTS)),
        (3, 4, 2 * (WEIGHTS + 2 * GRADIENTS)),
    ],
)
def test_other_hosts_get_weights_twice_and_send_each_subtree(
    num_hosts: int, num_csx: int, bytes_of_a_step: int
) -> None:
    assert least(num_hosts, num_csx) == bytes_of_a_step
