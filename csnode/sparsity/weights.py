"""A program's sparse weights on a node: what it knows of them, and how kernels see them.

Indexes and patterns are those that came last. Kernels see non-zeros for products, and the whole
weight for any other op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import torch
from torch.utils._pytree import tree_map_only

from csnode.sparsity.crossover import SparseProducts, highest_density, largest_density
from csnode.sparsity.products import Pattern, times
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights

Known = TypeVar("Known")

aten = torch.ops.aten


class NonZeros:
    """The values of one weight's non-zeros and where they lie; forms are made once, when read."""

    def __init__(self, values: torch.Tensor, pattern: Pattern) -> None:
        self.values, self.pattern = values, pattern

    @cached_property
    def whole(self) -> torch.Tensor:
        """The weight with its zeros."""
        return self.pattern.index.unpack(self.values).view(self.pattern.shape)

    @cached_property
    def rows(self) -> torch.Tensor:
        """The weight in compressed sparse rows, fp32."""
        return self.pattern.rows(self.values.float())

    @cached_property
    def columns(self) -> torch.Tensor:
        """The transposed weight in compressed sparse rows, fp32."""
        return self.pattern.columns(self.values.float())


class PackedWeight(torch.Tensor):
    """A weight of which a kernel reads the non-zeros where its products are sparse.

    Products with it as the right operand are sparse up to the density of the setting. Every other
    op gets the weight with its zeros.
    """

    non_zeros: NonZeros
    setting: SparseProducts
    is_turned: bool

    @staticmethod
    def __new__(
        cls: type[Self], non_zeros: NonZeros, setting: SparseProducts, *, is_turned: bool = False
    ) -> Self:
        shape = non_zeros.pattern.shape
        size = shape[::-1] if is_turned else shape
        made: Self = torch.Tensor._make_wrapper_subclass(cls, size, dtype=non_zeros.values.dtype)
        made.non_zeros, made.setting, made.is_turned = non_zeros, setting, is_turned
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Transpose without a copy, multiply sparse where the setting says so, or be whole."""
        kwargs = kwargs or {}
        if func is aten.t.default:
            weight = args[0]
            return cls(weight.non_zeros, weight.setting, is_turned=not weight.is_turned)
        if func is aten._to_copy.default and _only_casts(kwargs):
            weight, dtype = args[0], kwargs["dtype"]
            cast = NonZeros(weight.non_zeros.values.to(dtype), weight.non_zeros.pattern)
            return cls(cast, weight.setting, is_turned=weight.is_turned)
        if func is aten.mm.default and _is_sparse(*args):
            return _product(*args).to(args[0].dtype)
        if func is aten.addmm.default and not kwargs and _is_sparse(*args[1:]):
            addend, x, weight = args
            return _product(x, weight).add_(addend.float()).to(x.dtype)
        args, kwargs = tree_map_only(PackedWeight, PackedWeight.whole, (args, kwargs))
        return func(*args, **kwargs)

    def whole(self) -> torch.Tensor:
        """Return the weight with its zeros."""
        whole = self.non_zeros.whole
        return whole.t() if self.is_turned else whole


def _only_casts(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a copy change nothing but the type."""
    others = {name: value for name, value in options.items() if name != "dtype"}
    return options.get("dtype") is not None and others in (
        {},
        {"layout": torch.strided, "device": torch.device("cpu")},
    )


def _is_sparse(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether a product is computed from the non-zeros of its right operand."""
    if isinstance(left, PackedWeight) or not isinstance(right, PackedWeight):
        return False
    pattern = right.non_zeros.pattern
    elements = pattern.index.num_elements
    most = largest_density(right.setting, "activations", len(left), elements)
    return pattern.density <= most


def _product(x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """Return ``x @ weight`` in fp32."""
    non_zeros = weight.non_zeros
    return times(x, non_zeros.rows if weight.is_turned else non_zeros.columns)


class SparseWeights:
    """Indexes by weight, and patterns of those whose products may be sparse.

    A pattern is made when an index comes that differs from the last one; the old one is dropped.
    ``gradient_indexes`` and ``gradient_patterns`` lack weights whose gradient is dense in a step.
    """

    def __init__(self, setting: SparseProducts) -> None:
        self._setting = setting
        self.indexes: dict[str, Index] = {}
        self.gradient_indexes: dict[str, Index] = {}
        self.patterns: dict[str, Pattern] = {}
        self.gradient_patterns: dict[str, Pattern] = {}

    def note(self, bucket: Bucket, packed: PackedWeights | None) -> None:
        """Note what has come with a bucket; ``packed`` is None if all of its weights are dense."""
        indexes = {} if packed is None else packed.indexes
        sparse_gradients = {} if packed is None else packed.gradient_indexes
        for spec in bucket.specs:
            name = spec.name
            pattern = self._pattern(spec, indexes.get(name))
            _replace(self.indexes, name, indexes.get(name))
            _replace(self.gradient_indexes, name, sparse_gradients.get(name))
            _replace(self.patterns, name, pattern)
            is_sparse = name in sparse_gradients
            _replace(self.gradient_patterns, name, pattern if is_sparse else None)

    def _pattern(self, spec: TensorSpec, index: Index | None) -> Pattern | None:
        if index is None or len(spec.shape) != 2:
            return None
        known = self.patterns.get(spec.name)
        if known is not None and known.index is index:
            return known
        pattern = Pattern(index, (spec.shape[0], spec.shape[1]))
        return pattern if pattern.density <= highest_density(self._setting) else None


def _replace(known: dict[str, Known], name: str, new: Known | None) -> None:
    """Keep what is new of a weight; None is nothing."""
    if new is None:
        known.pop(name, None)
    else:
        known[name] = new
