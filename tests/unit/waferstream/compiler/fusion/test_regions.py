"""Which ops of a kernel are fused, and when two kernels are equal."""

from __future__ import annotations

import pytest
import torch

from waferstream.compiler.fusion.regions import NotFusibleError, levels_of, normalized, traced
from waferstream.core.program.kernel_source import KernelSource

ATEN = "torch.ops.aten."
RANDOM = {"drawn": ("waferstream.numerics.keyed_random", "bernoulli_")}


def kernel(*lines: str, arguments: str = "w, x", constants: tuple[str, ...] = ()) -> KernelSource:
    text = "\n    ".join([f"def forward(self, {arguments}):", *lines])
    return KernelSource(text, RANDOM, {name: torch.ones(2) for name in constants})


def levels(source: KernelSource, *numbers: bool) -> list[int]:
    graph = traced(normalized(source))
    return list(levels_of(graph, numbers).values())


def test_equal_layers_have_equal_texts() -> None:
    """Names of values and constants differ from layer to layer."""
    texts = [
        normalized(
            kernel(
                f"mul_{i} = {ATEN}mul.Tensor(w_{i}, self.table_{i});  w_{i} = None",
                f"return (mul_{i},)",
                arguments=f"w_{i}, x_{i}",
                constants=(f"table_{i}",),
            )
        )
        for i in (3, 7)
    ]
    assert texts[0].text == texts[1].text
    assert [each.constants for each in texts] == [("table_3",), ("table_7",)]


def test_ops_of_numbers_and_random_numbers_stay_beside_fused_ones() -> None:
    source = kernel(
        f"a = {ATEN}mul.Tensor(w, w)",
        f"b = {ATEN}full_like.default(a, x)",
        f"c = {ATEN}mul.Tensor(a, b)",
        "return (c,)",
    )
    assert levels(source, False, True) == [1, 2, 3]


def test_what_is_overwritten_is_made_and_written_as_the_text_says() -> None:
    source = kernel(
        f"a = {ATEN}empty_like.default(w)",
        "b = drawn(x, 0, a, 0.5)",
        f"c = {ATEN}mul.Tensor(w, b)",
        "return (c,)",
    )
    assert levels(source, False, True) == [0, 0, 1]


def test_overwritten_value_with_another_reader_is_left_alone() -> None:
    source = kernel(
        f"a = {ATEN}empty_like.default(w)",
        "b = drawn(x, 0, a, 0.5)",
        f"c = {ATEN}mul.Tensor(a, b)",
        "return (c,)",
    )
    with pytest.raises(NotFusibleError):
        levels(source, False, True)


def test_ops_that_read_nothing_are_fused() -> None:
    """As masks and constants are made; torch.fx alone would compute them while it traces."""
    source = kernel(
        f"a = {ATEN}scalar_tensor.default(2, dtype = torch.float32)",
        f"b = {ATEN}mul.Tensor(w, a)",
        "return (b,)",
    )
    assert levels(source, False, False) == [1, 1]


def test_grouped_products_stay_beside_fused_ops() -> None:
    """Torch's rules for shapes refuse those in fp32."""
    source = kernel(
        f"a = {ATEN}mul.Tensor(w, w)",
        f"b = {ATEN}_grouped_mm.default(a, x)",
        f"c = {ATEN}mul.Tensor(b, b)",
        "return (c,)",
    )
    assert levels(source, False, False) == [1, 2, 3]
