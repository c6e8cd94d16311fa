"""Start-up and checkpoint times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs.small_programs import program, segment
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.core.program.segment import OpWork
from waferstream.core.units import PS_PER_S, seconds
from waferstream.machine.hardware import CS2, CS3, HostSpec, MachineSpec
from waferstream.machine.start_up import (
    StartUp,
    checkpoint_bytes,
    checkpoint_ps,
    compile_ps,
    initial_weights_ps,
    layer_elements,
    sizes_tried,
    start_up,
)

PROGRAM = program()
LLAMA2_7B = 6_740_000_000
GPTJ_6B = 6_050_000_000
LAYER = 4096 * 2048
"""Elements that a layer of both reads for a sample of 2,048 tokens."""

counts = st.integers(0, 10**13)


def product(rows: int, inner: int, **fields: Any) -> OpWork:
    return OpWork("mm", "matmul", 0, (1, rows, inner, 8), **{"streams": True, **fields})


def test_times_are_those_of_public_logs() -> None:
    """GPT-J on a CS-2 saved (T0099); LLaMA-2 7B on a CS-3 saved (N0043), sent (H0014), compiled."""
    saved_s = seconds(checkpoint_ps(CS2.hosts, checkpoint_bytes(GPTJ_6B, 8)))
    assert saved_s == pytest.approx(328, rel=0.15)
    saved_s = seconds(checkpoint_ps(CS3.hosts, checkpoint_bytes(LLAMA2_7B, 8)))
    assert saved_s == pytest.approx(529.5, rel=0.15)
    assert seconds(initial_weights_ps(CS3.hosts, 291, 4 * LLAMA2_7B)) == pytest.approx(
        20.4, rel=0.2
    )
    sizes = sizes_tried(MicroBatchPolicy(), 128, 1)
    assert seconds(compile_ps(CS3.hosts, sizes, LAYER)) == pytest.approx(3452, rel=0.15)


@pytest.mark.parametrize(
    ("batch", "num_csx", "sizes"),
    [
        (128, 1, (128, 64, 32, 16, 8, 4)),
        (64, 2, (32, 16, 8, 4, 2)),
        (99, 1, (99, 33, 11, 9, 3)),
        (97, 1, (97,)),
        (1, 1, (1,)),
    ],
)
def test_sizes_tried_cut_the_share_of_a_system_evenly(
    batch: int, num_csx: int, sizes: tuple[int, ...]
) -> None:
    """As the logs of N0047, N0049 and H0034 list them."""
    assert sizes_tried(MicroBatchPolicy(), batch, num_csx) == sizes


def test_a_stated_size_is_the_only_one() -> None:
    """A number, or none at all, which is the whole share."""
    assert sizes_tried(MicroBatchPolicy(32), 128, 2) == (32,)
    assert sizes_tried(MicroBatchPolicy(None), 128, 2) == (64,)


def test_layer_elements_are_those_of_the_middle_product() -> None:
    """Of products with weights, forward; attention and gradients do not count."""
    works = (product(6, 4), product(6, 16), product(6, 4), product(600, 4, streams=False))
    forward = segment(0, work=works)
    backward = segment(1, "backward", work=(product(10**6, 4),))
    step = replace(PROGRAM, segments=(forward, backward), micro_batch_size=2)
    assert layer_elements(step) == 12
    assert layer_elements(replace(step, segments=(backward,))) == 0


def test_a_start_is_described_in_one_line() -> None:
    """Each part with its unit."""
    line = str(StartUp(780 * PS_PER_S, 110 * PS_PER_S, 13 * PS_PER_S + PS_PER_S // 5))
    assert line == "compile 780.00 s unless cached, initial weights 13.20 s, programming 110.00 s"


def test_a_program_in_the_cache_is_not_compiled_again() -> None:
    """Its start is that of the others without compiling."""
    first, again = (start_up(MachineSpec(), PROGRAM, sizes) for sizes in ((8, 4), ()))
    assert again.compile_ps == 0
    assert again.total_ps == first.total_ps - first.compile_ps < first.total_ps
    assert first.total_ps == first.compile_ps + first.initial_weights_ps + CS2.programming_ps


@given(counts, counts)
def test_more_bytes_never_take_less_time(one: int, other: int) -> None:
    """Neither to send nor to save."""
    few, many = sorted((one, other))
    assert initial_weights_ps(CS2.hosts, 9, few) <= initial_weights_ps(CS2.hosts, 9, many)
    assert checkpoint_ps(CS2.hosts, few) <= checkpoint_ps(CS2.hosts, many)


@pytest.mark.parametrize("key", sorted(set(HostSpec.model_fields)))
def test_each_number_moves_a_time(key: str) -> None:
    """Twice the bandwidth is faster, twice a fixed time is slower, somewhere."""

    def times(hosts: HostSpec) -> list[int]:
        return [
            compile_ps(hosts, (4, 2), LAYER),
            initial_weights_ps(hosts, 291, LLAMA2_7B),
            checkpoint_ps(hosts, LLAMA2_7B),
        ]

    doubled = times(CS2.hosts.model_copy(update={key: 2 * getattr(CS2.hosts, key)}))
    pairs = list(zip(times(CS2.hosts), doubled, strict=True))
    if key.endswith("_per_s"):
        pairs = [(after, before) for before, after in pairs]
    assert all(less <= more for less, more in pairs)
    assert any(less < more for less, more in pairs)


def test_hosts_follow_the_system_and_change_one_by_one() -> None:
    """A number that cluster.yaml states replaces that of the system's own hosts."""
    machine = MachineSpec.model_validate(
        {"system": {"name": "CS-3", "hosts": {"save_start_ps": 7}}}
    )
    assert machine.system.hosts == CS3.hosts.model_copy(update={"save_start_ps": 7})
