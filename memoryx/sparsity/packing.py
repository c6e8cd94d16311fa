"""The form in which a sparse weight lies in MemoryX: the values of its non-zeros, in their order.

Every op of an elementwise rule computes most elements in vectors and the last few of a tensor one
by one, which may round differently. So values are filled up to whole blocks, and a weight is packed
only if it has whole blocks itself: then each of its elements is in a vector, packed or not, and an
update has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from memoryx.optim.rule import STATE_BYTES_PER_ELEMENT, Shape

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
        size, values = prod(self.shape), self.num_values
        packed_bytes = _num_held(values) * num_tensors * STATE_BYTES_PER_ELEMENT
        packed_bytes += values * self.places.element_size()
        return (
            size % BLOCK_ELEMENTS == 0
            and packed_bytes < size * num_tensors * STATE_BYTES_PER_ELEMENT
        )

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


def _num_held(num_values: int) -> int:
    blocks = max(1, -(-num_values // BLOCK_ELEMENTS))
    return blocks * BLOCK_ELEMENTS
