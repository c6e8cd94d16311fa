"""The masks of one weight server: made, applied to masters, gradients and states, and changed.

Those of a checkpoint are read as far as they fit the weights. Of sparse weights, and of their
gradients, the non-zeros travel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch

from memoryx.memory.memory import Made, Memory
from memoryx.optim.rule import Shape
from memoryx.sparsity.mask import SparsityMask, words_shape
from memoryx.sparsity.packing import Packing, place_dtype
from memoryx.sparsity.patterns import first_mask, next_mask
from waferstream.core.errors import CheckpointError
from waferstream.core.messages.payload import unpack
from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights, gradient_bucket, pays
from waferstream.core.sparsity.spec import WeightSparsity

_NUM_SHOWN = 3  # weights in an error


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


def present_masks(
    masks: Masks, owned: Collection[str], found: Collection[str], where: str, strict: bool
) -> list[str]:
    """Return the weights whose masks are read from a checkpoint.

    A checkpoint without masks is one of a dense run: the masks are made from its weights. A run
    without masks reads none: it goes on densely.

    Args:
        masks: Those of the server.
        owned: All weights of the server.
        found: The weights whose masks the checkpoint has.
        where: The checkpoint.
        strict: Whether the same weights must be sparse.

    Raises:
        CheckpointError: Other weights are sparse, and ``strict`` is set.
    """
    if strict and masks and found:
        missing = masks.keys() - set(found)
        unexpected = set(found) & set(owned) - masks.keys()
        if missing or unexpected:
            raise _mismatch(
                "a checkpoint must have masks of the weights that are sparse in the run",
                where,
                f"missing: {_some(missing)}; unexpected: {_some(unexpected)}",
            )
    return [name for name in masks if name in found]


def check_density(masks: Masks, names: Iterable[str], where: str) -> None:
    """Check that masks from a checkpoint have the density that the run asks for.

    Only algorithms that keep a constant density, and that have begun with it, say what that is.

    Raises:
        CheckpointError: One of them has another density.
    """
    for name in names:
        spec, mask = masks.spec(name), masks[name]
        is_constant = spec.level is not None and spec.level.is_constant and spec.starts_sparse
        expected = spec.num_kept(mask.shape, 0) if is_constant else None
        if spec.init in ("given", "from_zeros") or expected is None:
            continue
        if mask.num_kept != expected:
            raise _mismatch(
                "a mask must have the density that the run asks for",
                where,
                f"{name}: {mask.num_kept} of {mask.num_elements} weights, not {expected}",
            )


def _mismatch(what: str, where: str, value: str) -> CheckpointError:
    return CheckpointError(
        what,
        code="checkpoint-sparsity-mismatch",
        where=where,
        value=value,
        remedy="use the section `sparsity` that the checkpoint was trained with, or leave the "
        "state `sparsity` out (LoadCheckpointStates) to make new masks from the weights",
    )


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:_NUM_SHOWN]
    more = f", ... ({len(names)} in total)" if len(names) > _NUM_SHOWN else ""
    return ", ".join(shown) + more if shown else "none"


class SparseStreams:
    """The streams of one server during one job.

    ``update`` is the number of a step's update, on which dense gradients depend; 0 if there is
    none.

    Args:
        masks: The masks of the server.
        stream_dtype: Type in which weights stream.
    """

    def __init__(self, masks: Masks, stream_dtype: str) -> None:
        self._masks = masks
        self._element_bytes = BYTES_PER_ELEMENT[stream_dtype]

    def weights(self, bucket: Bucket, update: int) -> PackedWeights | None:
        """Return how a bucket of weights is packed; None if no weight of it is sparse."""
        indexes = {name: index for name in bucket.names if (index := self._index(name))}
        if not indexes:
            return None
        dense = {name for name in indexes if self._has_dense_gradient(name, update)}
        return PackedWeights(bucket, indexes, dense)

    def gradients(self, bucket: Bucket, update: int) -> Bucket:
        """Return a gradient bucket of a step as it travels."""
        return gradient_bucket(bucket, self._gradient_indexes(bucket, update))

    def received(self, bucket: Bucket, flat: torch.Tensor, update: int) -> dict[str, torch.Tensor]:
        """Return the gradients of a bucket as they have travelled, as views of their payload."""
        specs = self.gradients(bucket, update).specs
        return dict(zip(bucket.names, unpack(flat, specs), strict=True))

    def _gradient_indexes(self, bucket: Bucket, update: int) -> dict[str, Index]:
        return {
            name: index
            for name in bucket.names
            if (index := self._index(name)) and not self._has_dense_gradient(name, update)
        }

    def _index(self, name: str) -> Index | None:
        """Return the index of a weight that travels sparse."""
        mask = self._masks.get(name)
        if mask is None or not mask.is_made:
            return None
        index = self._masks.index(name, self._element_bytes)
        return index if pays(index, self._element_bytes) else None

    def _has_dense_gradient(self, name: str, update: int) -> bool:
        return self._masks.spec(name).needs_dense_gradient(update)
