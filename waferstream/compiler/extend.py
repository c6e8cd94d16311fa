"""Compile the forward pass of a decoder to a program that extends sequences by tokens.

The pass is recorded over rows, whose number is a symbol: each row is a sequence of one token. All
ops of a decoder are row-wise but for its causal attention, which becomes ``cached_attention``: a
stage computes it over the keys and values of earlier tokens. The graph is cut at layers as that of
a training step is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from waferstream.compiler.capture.capture import capture
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.capture.known_values import own_constants
from waferstream.compiler.passes.pipeline import run_passes
from waferstream.compiler.passes.rematerialize import weight_only
from waferstream.compiler.segments import Cut, cuts_of
from waferstream.core.program.extend import (
    POSITIONS,
    ROWS,
    SCORES,
    TOKENS,
    ExtendProgram,
    ExtendSegment,
    not_row_wise,
)
from waferstream.core.program.kernel_source import kernel_source
from waferstream.numerics.forms import FormMode
from waferstream.numerics.precision import NAMES, StreamPrecision

Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Tokens and positions, int64 (B, T), to scores of the next tokens (B, T, vocabulary)."""

_INPUTS = (TOKENS, POSITIONS)

_EXAMPLE_ROWS = 7
"""Rows of the example; more than one, which torch would take for a constant."""


@torch.library.custom_op("waferstream::cached_attention", mutates_args=())
def cached_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: int,
    scale: float,
    window: int | None,
    first_tokens: int,
    cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Stand for the attention of rows (N, heads, 1, D) over all tokens of their sequences."""
    raise NotImplementedError("a stage has the keys and values of earlier tokens")


@torch.library.custom_op("waferstream::expert_product", mutates_args=())
def expert_product(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Stand for rows (N, inputs), sorted by expert, times the weight (E, outputs, inputs)."""
    raise NotImplementedError("a stage has a form of its own")


cached_attention.register_fake(lambda query, *_: torch.empty_like(query))
expert_product.register_fake(lambda x, weight, _: x.new_empty(x.shape[0], weight.shape[1]))

_PRODUCTS = frozenset(
    {
        torch.matmul, torch.bmm, torch.baddbmm, torch.einsum, torch.mm, torch.addmm,
        torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.mm,
    }
)  # fmt: skip
"""Products of activations, as attention without the fused kernel has them."""


class _RowWise(FormMode):
    """Records functions that have a form by row as ops; refuses what relates tokens otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self._num_layers = 0
        self.forms = {
            "causal_attention": self._attend,
            "expert_product": torch.ops.waferstream.expert_product,
        }

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._attend_plainly(*args, **(kwargs or {}))
        if func.__name__ in self.forms:
            return self.forms[func.__name__](*args, **(kwargs or {}))
        if func in _PRODUCTS:
            raise not_row_wise(f"it multiplies activations with {func.__name__}")
        return func(*args, **(kwargs or {}))

    def _attend_plainly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> torch.Tensor:
        if attn_mask is not None or not is_causal:
            raise not_row_wise("its attention is not causal, or has a mask")
        return self._attend(query, key, value, scale=scale, dropout_p=dropout_p)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        first_tokens: int = 0,
        cap: float | None = None,
        sinks: torch.Tensor | None = None,
        dropout_p: float = 0.0,
    ) -> torch.Tensor:
        """Record the attention of the next layer; ConfigError if it has dropout."""
        if dropout_p:
            raise not_row_wise("its attention has dropout")
        layer, self._num_layers = self._num_layers, self._num_layers + 1
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        mixed: torch.Tensor = torch.ops.waferstream.cached_attention(
            query, key, value, layer, scale, window, first_tokens, cap, sinks
        )
        return mixed


def compile_extend(scores: Scores, model: nn.Module) -> ExtendProgram:
    """Compile a decoder.

    Args:
        scores: Its forward pass.
        model: The decoder, whose parameters may be on the meta device.

    Raises:
        ConfigError: Something but causal attention relates its tokens.
        ApplianceCompilationError: It cannot be captured, or an op has no kernel.
    """

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad(), _RowWise():
            return [scores(batch[0], batch[1])]

    inputs = [(name, torch.zeros(_EXAMPLE_ROWS, 1, dtype=torch.int64)) for name in _INPUTS]
    (dtype,) = {NAMES[each.dtype] for each in model.parameters()}
    precision = StreamPrecision(dtype, dtype, casts=False)
    captured = capture(step, model, inputs, precision, shapes=ShapeEnv(duck_shape=True))
    own_constants(captured.module, captured.buffers.names.__contains__)
    _name_rows(captured)
    run_passes(captured)
    return ExtendProgram(captured.parameters, tuple(_segments(captured)))


def _name_rows(captured: Captured) -> None:
    """Make the number of rows, which the graph reads off its inputs, an input of its own."""
    inputs = captured.graph.find_nodes(op="placeholder")
    sizes = captured.graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)
    with captured.graph.inserting_after(inputs[-1]):
        rows = captured.graph.placeholder(ROWS)
    rows.meta.update(layer="", backward=False)
    for node in sizes:
        if node.args[0] in inputs:
            node.replace_all_uses_with(rows)
            captured.graph.erase_node(node)


def _segments(captured: Captured) -> Iterator[ExtendSegment]:
    derived = weight_only(captured)
    result = captured.results[0]
    names = {**captured.weights, **captured.batch, result: SCORES}
    for cut in cuts_of(captured):
        yield _segment(captured, cut, derived, names)


def _segment(
    captured: Captured, cut: Cut, derived: set[fx.Node], names: Mapping[fx.Node, str]
) -> ExtendSegment:
    """Return the segment of a cut, whose ops on weights alone come first."""
    prepared = [node for node in cut.nodes if node in derived]
    numbers = _numbers(cut.inputs)
    rest = [*numbers, *(node for node in cut.nodes if node not in derived)]
    read = dict.fromkeys([*cut.inputs, *(each for n in numbers for each in n.all_input_nodes)])
    inputs = [node for node in read if node not in numbers]
    made = {*cut.weights, *prepared}
    reads = (operand for node in rest for operand in node.all_input_nodes)
    operands = [node for node in dict.fromkeys(reads) if node in made]
    outputs = [*cut.outputs, *(node for _, node in cut.results if node not in cut.outputs)]
    return ExtendSegment(
        layer=cut.key.layer,
        weights=tuple(names[node] for node in cut.weights),
        num_operands=len(operands),
        inputs=tuple(names.get(node, node.name) for node in inputs),
        outputs=tuple(names.get(node, node.name) for node in outputs),
        prepare=kernel_source(captured.module, prepared, cut.weights, operands),
        kernel=kernel_source(captured.module, rest, [*operands, *inputs], outputs),
    )


def _numbers(inputs: Iterable[fx.Node]) -> list[fx.Node]:
    """Return what computes the inputs that are numbers, from the number of rows, in its order."""
    found: dict[fx.Node, None] = {}
    for node in inputs:
        if node.op != "placeholder" and isinstance(node.meta["val"], torch.SymInt):
            found |= dict.fromkeys([*_numbers(node.all_input_nodes), node])
    return list(found)
