"""The sparsity of a step on the emulated machine: densities, whole gradients, changes of masks.

A mask changes by selecting the largest of scores, one for each element of its weight. The time is
that of moving bytes, as for any update. Selection by radix reads all keys of 32 bits once for each
digit of 8 bits, so at most four times (Alabi et al. 2012, "Fast k-selection algorithms for graphics
processing units", ACM Journal of Experimental Algorithmics 17, radixSelect); a last pass reads and
writes the mask, one bit per element, and sets what it masks to zero: master and optimizer state are
read and written. ``set`` and ``rigl`` select twice, among weights that are there and among those
that are not, so each element takes part once.

This is an upper bound: later passes need the elements of one digit alone, and zeros need not be
read to select among non-zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from memoryx.optim.cost import state_bytes_per_element
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import MASTER_BYTES, TensorSpec
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.machine.densities import StepSparsity

KEY_BYTES = 4
SELECTION_PASSES = 4
"""Size of a key, and passes over all keys, one for each digit of 8 bits (Alabi et al. 2012)."""
MASK_BYTES = 1 / 8
"""Per element."""

MOST_SAMPLED = 256
"""Steps of a run of which a mean is taken, evenly spaced."""

Parameters = Mapping[str, TensorSpec]


def sparsity_by_optimizer(
    optimizer: OptimizerSpec | None, parameters: Parameters, update: int | None = None
) -> StepSparsity:
    """Return the sparsity of the step that ends with an update; by default that of the first."""
    if optimizer is None or not optimizer.sparsity:
        return StepSparsity()
    if update is None:
        update = max(0, optimizer.earlier_updates) + 1
    state_bytes = state_bytes_per_element(optimizer, parameters)
    return sparsity_of_step(optimizer.sparsity, parameters, state_bytes, update)


def sparsity_of_step(
    specs: Sequence[WeightSparsity], parameters: Parameters, state_bytes: int, update: int
) -> StepSparsity:
    """Return the sparsity of the step that ends with an update, counted from 1.

    A weight whose first mask follows from values counts as dense.

    Args:
        specs: The weights that have masks.
        parameters: All parameters by name.
        state_bytes: Bytes of optimizer state per element.
        update: The number of the update.
    """
    densities, whole, mask_bytes = {}, {}, {}
    for spec in specs:
        shape = parameters[spec.name].shape
        densities[spec.name] = spec.density(shape, update - 1)
        whole[spec.name] = float(spec.needs_dense_gradient(update))
        if spec.changes_at(update):
            mask_bytes[spec.name] = bytes_of_change(prod(shape), state_bytes)
    return _compact(densities, whole, mask_bytes)


def mean_sparsity(
    specs: Sequence[WeightSparsity], parameters: Parameters, state_bytes: int, num_steps: int
) -> StepSparsity:
    """Return the mean over the steps of a run; arguments as of ``sparsity_of_step``.

    Densities of a run with more than MOST_SAMPLED steps are those of evenly spaced ones.
    """
    count = min(num_steps, MOST_SAMPLED)
    updates = [(2 * index + 1) * num_steps // (2 * count) + 1 for index in range(count)]
    found: dict[object, tuple[float, float]] = {}
    densities, whole, mask_bytes = {}, {}, {}
    for spec in specs:
        shape = parameters[spec.name].shape
        key = (repr(replace(spec, name="", seed=0)), shape)  # layers are alike
        if key not in found:
            mean = sum(spec.density(shape, update - 1) for update in updates) / count
            found[key] = mean, _share_of_changes(spec, num_steps)
        densities[spec.name], share = found[key]
        whole[spec.name] = share if spec.algorithm == "rigl" else 0.0
        mask_bytes[spec.name] = round(share * bytes_of_change(prod(shape), state_bytes))
    return _compact(densities, whole, mask_bytes)


def bytes_of_change(num_elements: int, state_bytes: int) -> int:
    """Return the bytes that MemoryX moves to change the mask of a weight."""
    each = SELECTION_PASSES * KEY_BYTES + 2 * (MASK_BYTES + MASTER_BYTES + state_bytes)
    return round(num_elements * each)


def _share_of_changes(spec: WeightSparsity, num_steps: int) -> float:
    """Return the share of the steps of a run that change a mask."""
    if spec.update is None:
        return 0.0
    from_0 = spec.update.count_before(num_steps + 1)
    return (from_0 - spec.update.includes(0)) / num_steps


def _compact(
    densities: Mapping[str, float], whole: Mapping[str, float], mask_bytes: Mapping[str, int]
) -> StepSparsity:
    """Return the differences from dense weights with masks that stay."""
    return StepSparsity(
        {name: density for name, density in densities.items() if density < 1},
        {name: share for name, share in whole.items() if share and densities[name] < 1},
        {name: num_bytes for name, num_bytes in mask_bytes.items() if num_bytes},
    )
