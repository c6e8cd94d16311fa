"""The DRAM that weight servers take for masters and optimizer state, before any exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from memoryx.optim.rule import STATE_BYTES_PER_ELEMENT, rule_named
from memoryx.sparsity.packing import packed_bytes, place_dtype
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.sparsity.nonzero_bytes import bitmap_bytes
from waferstream.core.sparsity.spec import WeightSparsity


@dataclass(frozen=True)
class HeldBytes:
    """Bytes of all weight servers together: dense weights, sparse ones, and the peak of loading.

    ``sparse`` is all of sparse weights: values of masters and state, places and masks.
    """

    masters: int
    state: int
    sparse: int
    loading: int

    @property
    def total(self) -> int:
        """The bytes of all weights while they are trained."""
        return self.masters + self.state + self.sparse


def packable(optimizer: OptimizerSpec | None) -> Sequence[WeightSparsity]:
    """Return the sparse weights that may be held packed: those of a rule for single elements."""
    if optimizer is None or not rule_named(optimizer.rule).is_elementwise:
        return ()
    return optimizer.sparsity


def held_bytes(
    program: Program, state_bytes: int, sparse: Sequence[WeightSparsity] = ()
) -> HeldBytes:
    """Return the bytes of masters and state.

    Weights are loaded whole, and their masks are made then: at the peak whole masters of all
    weights lie beside what is packed from them. State takes memory when it is first written.

    Args:
        program: What is trained.
        state_bytes: Optimizer state of one element.
        sparse: The weights that may be packed, at the largest density of their schedules.
    """
    specs = {spec.name: spec for spec in sparse}
    whole = sum(spec.num_elements for spec in program.parameters)
    masters = state = from_sparse = 0
    for spec in program.parameters:
        size, own_state = spec.num_elements, state_bytes * (spec.name in program.trained)
        if spec.name not in specs:
            masters, state = masters + size * MASTER_BYTES, state + size * own_state
            continue
        num_values = ceil(size * specs[spec.name].largest_density(spec.shape))
        num_tensors = 1 + own_state // STATE_BYTES_PER_ELEMENT
        packed = packed_bytes(size, num_values, num_tensors)
        from_sparse += bitmap_bytes(size)
        if packed is None:  # values stream in any case, and gradients arrive so
            packed = size * (MASTER_BYTES + own_state)
            packed += num_values * place_dtype(size).itemsize
        from_sparse += packed
    return HeldBytes(masters, state, from_sparse, whole * MASTER_BYTES + from_sparse)
