"""The masks of one weight server: made, applied to masters, gradients and states, and changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from memoryx.memory import Memory
from memoryx.optim.rule import Parameter, State
from memoryx.sparsity.mask import SparsityMask, words_shape
from memoryx.sparsity.patterns import first_mask, next_mask
from wsc.core.nonzeros import Index
from wsc.core.sparsity import WeightSparsity


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

    def install(self, specs: Sequence[WeightSparsity], masters: Mapping[str, torch.Tensor]) -> None:
        """Take memory for the masks of this server's weights; those that are there are kept."""
        self._specs = {spec.name: spec for spec in specs if spec.name in masters}
        kept = {name: mask for name, mask in self._masks.items() if name in self._specs}
        self._memory.discard(m.words for name, m in self._masks.items() if name not in kept)
        shapes = {n: tuple(masters[n].shape) for n in self._specs if n not in kept}
        words = self._memory.allocate([words_shape(shape) for shape in shapes.values()])
        new = zip(shapes.items(), words, strict=True)
        kept.update((name, SparsityMask(name, shape, own)) for (name, shape), own in new)
        self._masks = {name: kept[name] for name in self._specs}
        self._indexes.clear()

    def make(self, masters: Mapping[str, torch.Tensor], states: Mapping[str, State]) -> None:
        """Make the masks that no checkpoint had, from the weights as they are; apply all masks."""
        for name, mask in self._masks.items():
            self._memory.use((mask.words, masters[name]))
            if not mask.is_made:
                mask.set(first_mask(self._specs[name], masters[name]))
        self.apply(self._masks, masters, states)

    def apply(
        self,
        names: Iterable[str],
        masters: Mapping[str, torch.Tensor],
        states: Mapping[str, State],
    ) -> None:
        """Set masked elements of masters and states to zero, where there is a mask."""
        for name in names:
            if name in self._masks and self._masks[name].is_made:
                own = (masters[name], *states.get(name, {}).values())
                self._memory.use((self._masks[name].words, *own))
                self._clear(name, own)

    def prune_gradients(
        self, gradients: Mapping[str, torch.Tensor], update: int
    ) -> Mapping[str, torch.Tensor]:
        """Return gradients as the optimizer sees them: zero where the weight is masked.

        They are changed in place, except those that the update of a mask reads (``rigl``).
        """
        sparse = [name for name in gradients if name in self._masks]
        if not sparse:
            return gradients
        pruned = dict(gradients)
        for name in sparse:
            if self._specs[name].needs_dense_gradient(update):
                pruned[name] = gradients[name].clone()
            self._memory.use((self._masks[name].words,))
            self._clear(name, (pruned[name],))
        return pruned

    def finish_update(
        self, name: str, parameter: Parameter, gradient: torch.Tensor, update: int
    ) -> None:
        """Apply the mask of a weight that the optimizer has updated; change it where that is due.

        Args:
            name: The weight; nothing happens if it has no mask.
            parameter: Its master and state.
            gradient: Its whole gradient.
            update: The number of the update.
        """
        if name not in self._masks:
            return
        own = (parameter.master, *parameter.state.values())
        self._clear(name, own)
        spec, mask = self._specs[name], self._masks[name]
        if spec.changes_at(update):
            mask.set(next_mask(spec, mask.dense(), parameter.master, gradient, update))
            self._clear(name, own)

    def _clear(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """Set masked elements to zero in all tensors of a weight's shape."""
        mask = self._masks[name]
        # On bits, as fast as memory allows: masked_fill_ takes several times as long.
        kept = mask.dense().to(torch.int32).neg_()
        for tensor in tensors:
            if tuple(tensor.shape) == mask.shape:
                tensor.view(torch.int32).bitwise_and_(kept)
