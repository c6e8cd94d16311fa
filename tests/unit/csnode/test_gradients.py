"""Gradients leave a node as fp32 slabs, one for each maximal subtree of micro-batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from appliance.cores import UnlimitedCores
from csnode.gradients import GradientPacker
from csnode.lanes import Lanes
from csnode.micro_batch import MicroBatch
from tests.support.arenas import StrictArena
from tests.support.small_programs import program
from tests.support.subtrees import merged_subtrees
from wsc.core.program import plan_streams
from wsc.core.reduce_order import Subtree
from wsc.core.role import RoleContext

LANES = Lanes(2, "lane")
PROGRAM = program()
SHARD = plan_streams(PROGRAM, 1).gradients[-1]  # first.weight (4, 4) and first.bias (4,)


def micro_batches(indices, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    everything = [
        {
            "first.weight": torch.randn(4, 4, generator=generator).to(dtype),
            "first.bias": torch.randn(4, generator=generator).to(dtype),
        }
        for _ in range(PROGRAM.num_micro_batches)
    ]
    return [MicroBatch(index, {}, gradients=everything[index]) for index in indices]


def flat(batch):
    return torch.cat([batch.gradients[name].float().reshape(-1) for name in SHARD.names])


def packed(batches):
    """The subtrees with a copy of what their slabs hold, and the arena."""
    arena = StrictArena()
    packer = GradientPacker(5, RoleContext(arena, UnlimitedCores()), LANES)
    sums = packer.pack(SHARD, batches)
    return {subtree: part.payload.view(torch.float32).clone() for subtree, part in sums}, arena


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_micro_batch_is_copied(dtype):
    """As fp32, in bucket order, and the kernel's own tensors stay as they are."""
    (batch,) = micro_batches([2], dtype)
    before = flat(batch)
    found, _ = packed([batch])
    assert found.keys() == {Subtree(2, 0)}
    assert torch.equal(found[Subtree(2, 0)], before)
    assert torch.equal(flat(batch), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_siblings_are_summed_in_fp32(dtype):
    """In the canonical order, whatever the dtype of the kernels."""
    found, _ = packed(micro_batches(range(5), dtype))
    g = [flat(batch) for batch in micro_batches(range(5), dtype)]
    assert found.keys() == {Subtree(0, 3)}
    assert torch.equal(found[Subtree(0, 3)], ((g[0] + g[1]) + (g[2] + g[3])) + g[4])


def test_what_are_no_siblings_stays_apart():
    """1 and 2 have different parents."""
    found, _ = packed(micro_batches([1, 2]))
    assert found.keys() == {Subtree(1, 0), Subtree(2, 0)}


@given(st.lists(st.integers(0, 4), unique=True))
def test_one_slab_per_span_is_left(indices):
    """Sums on the way give their memory back."""
    found, arena = packed(micro_batches(sorted(indices)))
    assert list(found) == merged_subtrees(sorted(indices), 5)
    assert len(arena.live) == len(found)
    assert not any(values.isnan().any() for values in found.values())


def test_the_first_sum_needs_no_copy_of_its_operands():
    """Two micro-batches take one slab, not three."""
    _, arena = packed(micro_batches([0, 1]))
    assert arena.allocated == 1
