"""The form in which a sparse weight lies in MemoryX, and the DRAM that servers take.

Held are the values of its non-zeros, in their order. Every op of an elementwise rule computes most
elements in vectors and the last few of a tensor one by one, which may round differently. So values
are filled up to whole blocks, and a weight is packed only if it has whole blocks itself: then each
of its elements is in a vector, packed or not, and an update has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import torch

from memoryx.optim.rule import STATE_BYTES_PER_ELEMENT, Shape, rule_named
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.sparsity.nonzero_bytes import bitmap_bytes
from waferstream.core.sparsity.spec import WeightSparsity

BLOCK_ELEMENTS = 64
"""At least the fp32 elements that a kernel takes at a time: two vectors of 512 bits."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the values of one sparse weight belong.

    Args:
        shape: The shape of the weight.
        places: The flat positions of the elements that are not masked, ascending, int32 where
            that holds them.
    """

    shape: Shape
    places: torch.Tensor

    def pays(self, num_tensors: int) -> bool:
        """Return whether a weight may be packed, and takes fewer bytes then.

        Args:
            num_tensors: The master and the tensors of its optimizer state.
        """
        return packed_bytes(prod(self.shape), self.num_values, num_tensors) is not None

    @property
    def num_values(self) -> int:
        """The number of elements that are not masked."""
        return self.places.numel()

    @property
    def held_shape(self) -> Shape:
        """The shape of a packed tensor: its values, and zeros up to a whole block."""
        return (_num_held(self.num_values),)

    def values(self, held: torch.Tensor) -> torch.Tensor:
        """Return a view of the values of a packed tensor."""
        return held[: self.num_values]

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a packed tensor with the values of a whole one, or with these values."""
        held = torch.empty(self.held_shape)
        values = self.values(held)
        if tensor.numel() == prod(self.shape):
            torch.index_select(tensor.reshape(-1), 0, self.places, out=values)
        else:
            values.copy_(tensor)
        held[self.num_values :] = 0.0
        return held

    def unpack(self, held: torch.Tensor) -> torch.Tensor:
        """Return a whole tensor with the values of a packed one, or with these values alone."""
        whole = torch.zeros(self.shape)
        whole.view(-1).index_copy_(0, self.places.long(), self.values(held))
        return whole


def packed_bytes(num_elements: int, num_values: int, num_tensors: int) -> int | None:
    """Return the bytes of a packed weight, its state and its places; None if it is held whole.

    Args:
        num_elements: Elements of the weight.
        num_values: Those that are not masked.
        num_tensors: The master and the tensors of its optimizer state.
    """
    found = _num_held(num_values) * num_tensors * STATE_BYTES_PER_ELEMENT
    found += num_values * place_dtype(num_elements).itemsize
    pays = found < num_elements * num_tensors * STATE_BYTES_PER_ELEMENT
    return found if pays and num_elements % BLOCK_ELEMENTS == 0 else None


def place_dtype(num_elements: int) -> torch.dtype:
    """Return the smallest type that holds the places of a weight with so many elements."""
    return torch.int32 if num_elements <= torch.iinfo(torch.int32).max else torch.int64


def _num_held(num_values: int) -> int:
    blocks = max(1, -(-num_values // BLOCK_ELEMENTS))
    return blocks * BLOCK_ELEMENTS


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
