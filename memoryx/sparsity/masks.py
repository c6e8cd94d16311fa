"""The masks of one weight server: made, applied to masters, gradients and states, and changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from memoryx.memory.memory import Made, Memory
from memoryx.optim.rule import Shape
from memoryx.sparsity.mask import SparsityMask, words_shape
from memoryx.sparsity.packing import Packing, place_dtype
from memoryx.sparsity.patterns import first_mask, next_mask
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.spec import WeightSparsity


class Masks(Mapping[str, SparsityMask]):
    """The masks of the sparse weights that one server owns, by name.

    A masked weight, its gradient and those tensors of its optimizer state that have its shape are
    zero. Updates are numbered as the optimizer counts them, from 1.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._specs: dict[str, WeightSparsity] = {}
        self._masks: dict[str, SparsityMask] = {}
        self._indexes: dict[tuple[str, int], tuple[int, Index]] = {}  # with the mask's version
        self._packings: dict[str, tuple[int, Packing]] = {}  # with the mask's version

    def __getitem__(self, name: str) -> SparsityMask:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def spec(self, name: str) -> WeightSparsity:
        """Return the sparsity of a weight."""
        return self._specs[name]

    def dense(self, name: str) -> torch.Tensor:
        """Return the mask of a weight as booleans."""
        self._memory.use((self._masks[name].words,))
        return self._masks[name].dense()

    def index(self, name: str, element_bytes: int) -> Index:
        """Return the smallest index of a mask for values of a size; made once for each version."""
        version, index = self._indexes.get((name, element_bytes), (0, None))
        if index is None or version != self._masks[name].version:
            index = Index.of(self.dense(name), element_bytes)
            self._indexes[name, element_bytes] = self._masks[name].version, index
        return index

    def packing(self, name: str) -> Packing:
        """Return where the values of a weight belong; made once for each version of its mask."""
        version, packing = self._packings.get(name, (0, None))
        mask = self._masks[name]
        if packing is None or version != mask.version:
            places = torch.nonzero(self.dense(name).view(-1)).view(-1)
            packing = Packing(mask.shape, places.to(place_dtype(mask.num_elements)))
            self._packings[name] = mask.version, packing
        return packing

    def index_bytes(self, name: str) -> int:
        """Return the bytes of the mask, the places and the indices of a weight."""
        mask, (_, packing) = self._masks[name], self._packings.get(name, (0, None))
        indexes = [index for (of, _), (_, index) in self._indexes.items() if of == name]
        places_bytes = 0 if packing is None else packing.places.nbytes
        return mask.words.nbytes + places_bytes + sum(index.num_bytes for index in indexes)

    def install(self, specs: Sequence[WeightSparsity], shapes: Mapping[str, Shape]) -> None:
        """Take memory for the masks of this server's weights; those that are there are kept."""
        self._specs = {spec.name: spec for spec in specs if spec.name in shapes}
        kept = {name: mask for name, mask in self._masks.items() if name in self._specs}
        self._memory.discard(m.words for name, m in self._masks.items() if name not in kept)
        missing = {name: shapes[name] for name in self._specs if name not in kept}
        words = self._memory.allocate([words_shape(shape) for shape in missing.values()])
        new = zip(missing.items(), words, strict=True)
        kept.update((name, SparsityMask(name, shape, own)) for (name, shape), own in new)
        self._masks = {name: kept[name] for name in self._specs}
        self._indexes.clear()
        self._packings.clear()

    def make(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Make the masks that no checkpoint had, from whole weights as they are."""
        for name, mask in self._masks.items():
            self._memory.use((mask.words,))
            if not mask.is_made:
                mask.set(first_mask(self._specs[name], weights[name]))

    def prune_gradients(
        self, gradients: Mapping[str, torch.Tensor], update: int
    ) -> Mapping[str, torch.Tensor]:
        """Return gradients as the optimizer sees them: zero where the weight is masked.

        Whole ones are changed in place, except those that the update of a mask reads (``rigl``).
        Those that are the values of non-zeros alone stay as they are.
        """
        pruned = dict(gradients)
        for name in [name for name in gradients if self._is_whole(name, gradients[name])]:
            if self._specs[name].needs_dense_gradient(update):
                pruned[name] = gradients[name].clone()
            self._memory.use((self._masks[name].words,))
            self.clear(name, (pruned[name],))
        return pruned

    def whole(self, gradients: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return gradients that get their zeros, if they lack them, when they are read."""

        def make(name: str) -> torch.Tensor:
            gradient = gradients[name]
            has_zeros = name not in self._masks or self._is_whole(name, gradient)
            return gradient if has_zeros else self.packing(name).unpack(gradient)

        return Made(gradients.keys(), make)

    def change(self, name: str, master: torch.Tensor, gradient: torch.Tensor, update: int) -> None:
        """Change the mask of a weight that the optimizer has updated.

        Args:
            name: The weight.
            master: Its whole master, zero where it is masked.
            gradient: Its gradient, whole where the change reads it.
            update: The number of the update.
        """
        mask = self._masks[name]
        mask.set(next_mask(self._specs[name], mask.dense(), master, gradient, update))

    def clear(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """Set masked elements to zero in all tensors of a weight's shape."""
        mask = self._masks[name]
        # On bits, as fast as memory allows: masked_fill_ takes several times as long.
        kept = mask.dense().to(torch.int32).neg_()
        for tensor in tensors:
            if tuple(tensor.shape) == mask.shape:
                tensor.view(torch.int32).bitwise_and_(kept)

    def _is_whole(self, name: str, gradient: torch.Tensor) -> bool:
        """Return whether a gradient is that of a sparse weight, with masked elements."""
        return name in self._masks and gradient.numel() == self._masks[name].num_elements
