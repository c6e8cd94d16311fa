"""The program that extends sequences by tokens, cut at layers: what a stage of inference runs.

Rows are tokens of any sequences, each a sequence of one token at its own position.
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.errors import ConfigError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import TensorSpec

TOKENS, POSITIONS, ROWS, SCORES = "tokens", "positions", "rows", "scores"
"""Inputs of the first segment, int64 (rows, 1), with their number; the result of the last one."""


@dataclass(frozen=True)
class ExtendSegment:
    """A run of ops of one layer.

    Attributes:
        layer: Its name.
        weights: Those that it reads, by name.
        num_operands: What ``prepare`` returns, and the kernel reads first.
        inputs: Values of earlier segments, and inputs of the program, that it reads after these.
        outputs: Values that it returns, for later segments.
        prepare: From the weights to values made of weights alone, which are computed once.
        kernel: From operands and inputs to outputs.
    """

    layer: str
    weights: tuple[str, ...]
    num_operands: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare: KernelSource
    kernel: KernelSource


@dataclass(frozen=True)
class ExtendProgram:
    """A forward pass over rows."""

    parameters: tuple[TensorSpec, ...]
    segments: tuple[ExtendSegment, ...]

    def passed_at(self, index: int) -> frozenset[str]:
        """Return the values that pass from the segments before ``index`` to those from there on."""
        if index == len(self.segments):
            return frozenset((SCORES,))
        made = {name for each in self.segments[:index] for name in each.outputs}
        read = {name for each in self.segments[index:] for name in each.inputs}
        return frozenset(read & {*made, TOKENS, POSITIONS, ROWS})


def not_row_wise(why: str) -> ConfigError:
    """Return the error for a model that relates tokens in another way."""
    return ConfigError(
        "the model cannot answer tokens",
        code="model-not-row-wise",
        value=why,
        rule="all is row-wise but causal attention by F.scaled_dot_product_attention",
        remedy="serve a decoder such as gpt2 or llama, without biases of scores",
    )
