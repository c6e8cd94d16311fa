"""Products with streamed weights: activations stay, weights pass, outputs are spread as inputs.

Row 0 of the fabric is the edge at which weights enter. The rows below hold the tokens, the columns
the features, as many side by side as a column has::

    row 0    weights of inputs 0-2   weights of inputs 3-5  ...     colour 0, southward
    row 1    x[tokens 0, inputs 0-2] x[tokens 0, inputs 3-5]        ring of row 1, eastward and back
    row 2    x[tokens 1, inputs 0-2] x[tokens 1, inputs 3-5]        ring of row 2

The weights of an output enter together, each in the column of its input feature, and are multicast
down it: 16-bit weights in a wavelet with the index of their feature, so that zeros are left out.
Each weight triggers an axpy over the PE's tokens. The control wavelet behind them starts the ring
that adds the row's partial sums: from the PE just after the one that keeps the output, once round
to its keeper (Lie, Hot Chips 34; IEEE Micro 2023). So the outputs are spread over the columns
exactly as the inputs, ready for the next layer.

The ring runs on a micro-thread beside the axpys of the next output (IEEE Micro 2023), so there are
two accumulators::

    thread 0   | axpys 0 -> sums 0 | axpys 1 -> sums 1 | wait | axpys 2 -> sums 0 |
                            FILLED v            FILLED v      ^ FREED      FILLED v
    thread 1                       | ring over sums 0         | ring over sums 1  | ...

Outputs come in the order of their keepers around the ring. Each PE meets a sum one link sooner than
the sum of the keeper before, and only its own outputs keep it waiting for a whole trip. Meanwhile
weights wait in the routers of its column, which falls behind the others by as much.

Colours: 0 for weights, 1 and 2 for the links of the ring that lead east, 3 and 4 for those that
lead west; five of 24, one switch position each, for any number of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.ring import Ring, do_ring_sum
from csnode.fabric.dtypes import Array, Dtype, encode
from csnode.fabric.instructions import Axpy, Signal, Wait, send
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.core.errors import ApplianceCompilationError

WEIGHTS, _RING = 0, (1, 2, 3, 4)
TOKENS = np.s_[1:, :]
_BACKGROUND = 1
"""Micro-thread of the ring."""
_FILLED, _FREED = 0, 1
"""Events: an accumulator is filled with the partial sums of its output; it is free again."""


def weight_streaming(
    fabric: Fabric,
    x: Array,
    weights: Array,
    dtype: Dtype = Dtype.FP32,
    sums: Dtype | None = None,
    *,
    continuous: bool = False,
) -> Result:
    """Compute ``x @ weights``: x [tokens, inputs] rests, weights [inputs, outputs] stream past it.

    Sums and outputs have the format ``sums``, by default that of the activations. With
    ``continuous``, the edge sends all weights as one stream, as they come from outside of the
    wafer; otherwise as a program does that begins anew for each output. Raises as
    ``streamed_layers`` does.
    """
    summed = dtype if sums is None else sums
    return _streamed(fabric, x, (weights,), dtype, summed, continuous=continuous)


def streamed_layers(
    fabric: Fabric, x: Array, layers: Sequence[Array], dtype: Dtype = Dtype.FP32
) -> Result:
    """Compute ``x @ layers[0] @ layers[1] ...``; outputs of a layer stay as inputs of the next.

    Tokens and features that do not fill the PEs evenly are padded. Sums and outputs have the format
    of the activations.

    Args:
        fabric: One row of PEs for weights, the others for tokens.
        x: Activations [tokens, inputs].
        layers: Weights [inputs, outputs] of each layer.
        dtype: Format of activations and weights.

    Raises:
        ApplianceCompilationError: Matrices do not fit each other, or no row is left for tokens.
        ApplianceResourceExhausted: A PE's share does not fit into its SRAM.
    """
    return _streamed(fabric, x, layers, dtype, dtype)


def _streamed(
    fabric: Fabric,
    x: Array,
    layers: Sequence[Array],
    dtype: Dtype,
    sum_dtype: Dtype,
    *,
    continuous: bool = False,
) -> Result:
    """Compute a chain of products; with other sums than activations, of one layer."""
    _check(fabric, x, layers)
    program = Program(fabric)
    ring = _route(program)
    height = _tile_size(x.shape[0], fabric.rows - 1, dtype.per_word)
    resident = program.array("x", _tile_size(x.shape[1], ring.size) * height, dtype, bank=0)
    sums = [program.array(f"sums {k}", height, sum_dtype, bank=4).whole for k in range(2)]
    data = {"x": _tiles_of_activations(fabric, x, height)}
    for number, weights in enumerate(layers):
        stream = WeightStream.of(weights, ring, dtype)
        entering = program.array(f"weights {number}", stream.words.shape[1])
        width = _tile_size(weights.shape[1], ring.size)
        outputs = program.array(f"y {number}", width * height, sum_dtype, bank=0)
        add_weights(program, stream, entering, continuous)
        _add_product(program, ring, stream, resident, sums, outputs)
        data[entering.name] = words_of_weights(fabric, stream)
        resident = outputs
    outcome = run(program, data)
    y = join(outcome.read(resident.name)[1:], height, width, transposed=True)
    return Result(y[: x.shape[0], : layers[-1].shape[1]], outcome)


def _check(fabric: Fabric, x: Array, layers: Sequence[Array]) -> None:
    widths = [x.shape[1], *(layer.shape[1] for layer in layers)]
    fit = [layer.shape[0] for layer in layers] == widths[:-1]
    if not (layers and fit and fabric.rows > 1):
        raise ApplianceCompilationError(
            "layers must fit their activations and the rows of PEs",
            code="layers-not-streamable",
            value=f"{x.shape} and {[layer.shape for layer in layers]} on {fabric.rows} rows of PEs",
            rule="inputs of a layer = outputs of the layer before; one row of PEs for weights, at "
            "least one for tokens",
        )


def _tile_size(total: int, parts: int, multiple: int = 1) -> int:
    """Return the size of the fullest of equal parts, in whole multiples."""
    return -(-total // (parts * multiple)) * multiple


def route_weights(program: Program) -> None:
    """Add the routes of weights: southward from row 0."""
    program.route(WEIGHTS, np.s_[0, :], Port.RAMP, Port.SOUTH)
    program.route(WEIGHTS, TOKENS, Port.NORTH, Port.RAMP)
    if program.fabric.rows > 2:
        program.route(WEIGHTS, np.s_[1:-1, :], Port.NORTH, Port.SOUTH)


def _route(program: Program) -> Ring:
    """Add the routes: weights southward from row 0, and rings in the rows below."""
    route_weights(program)
    rows = paths.rows(program.fabric)
    ring = Ring(paths.Path(rows.pes[1:], rows.columns, rows.toward, rows.away), _RING)
    ring.route(program)
    return ring


@dataclass(frozen=True)
class WeightStream:
    """Weights of a layer as they enter, with the order of the outputs.

        ===========  ====================================  ========================================
        ``words``    fp32 (bits) [columns, longest]        wavelets of each column, output by output
        ``keepers``  int [outputs]                         place in the ring that keeps the output
        ``slots``    int [outputs]                         index among the outputs of its keeper
        ``ends``     int64 [outputs, columns]              words up to the output's control wavelet
        ===========  ====================================  ========================================

    Outputs are indexed in the order in which they are sent.
    """

    words: Array
    keepers: tuple[int, ...]
    slots: tuple[int, ...]
    ends: Array

    @classmethod
    def of(cls, weights: Array, ring: Ring, dtype: Dtype) -> WeightStream:
        """Order the outputs by keeper around the ring, those of one keeper one after the other."""
        height, width = (_tile_size(size, ring.size) for size in weights.shape)
        kept = ring.positions[:, None] * width + np.arange(width)  # output [place, slot]
        keepers, slots = np.nonzero(kept < weights.shape[1])
        rows = weights.T[kept[keepers, slots]]  # [outputs in order of sending, inputs]
        return cls.in_order(rows, height, ring.size, dtype, keepers, slots)

    @classmethod
    def in_order(
        cls, rows: Array, height: int, columns: int, dtype: Dtype, keepers: Array, slots: Array
    ) -> WeightStream:
        """Send weights [outputs, inputs] as they are, ``height`` inputs to each column."""
        starts = height * np.arange(columns)  # first input of each column
        parts_of = [[_wavelets(row[k : k + height], dtype) for row in rows] for k in starts]
        ends = np.cumsum([[part.size for part in parts] for parts in parts_of], axis=1).T
        words = np.zeros((columns, ends.max()), dtype=np.float32)
        for column, parts in enumerate(parts_of):
            words[column, : ends[-1, column]] = np.concatenate(parts)
        return cls(words, tuple(keepers.tolist()), tuple(slots.tolist()), ends)

    def parts(self, output: int) -> Iterator[tuple[Array, slice]]:
        """Yield groups of columns with an output's wavelets at the same words, and these words."""
        starts = self.ends[output - 1] if output else np.zeros_like(self.ends[0])
        ranges = np.stack([starts, self.ends[output]], axis=1)
        for words in np.unique(ranges, axis=0):
            yield np.nonzero((ranges == words).all(axis=1))[0], slice(*words.tolist())


def _wavelets(weights: Array, dtype: Dtype) -> Array:
    """Return one PE's weights of one output as words, and the word that becomes a control."""
    if dtype is Dtype.FP32:
        return np.append(weights, 0).astype(np.float32)
    index = np.nonzero(weights)[0]
    words = (index.astype(np.uint32) << np.uint32(16)) | encode(weights[index], dtype)
    return np.append(words, np.uint32(0)).astype(np.uint32).view(np.float32)


def add_weights(
    program: Program, stream: WeightStream, entering: SramArray, continuous: bool
) -> None:
    """Send the weights, output after output; only the first has a set-up if ``continuous``."""
    for output in range(len(stream.keepers)):
        for columns, words in stream.parts(output):
            continues = continuous and output > 0
            part = send(entering[words], WEIGHTS, ends_row=True, continues=continues)
            program.do((0, columns), part)


def _add_product(
    program: Program,
    ring: Ring,
    stream: WeightStream,
    resident: SramArray,
    sums: Sequence[Slice],
    outputs: SramArray,
) -> None:
    """Multiply into one accumulator while the ring adds up the other one."""
    indexed = resident.dtype.per_word > 1
    for output, (keeper, slot) in enumerate(zip(stream.keepers, stream.slots, strict=True)):
        here = sums[output % len(sums)]
        if output >= len(sums):
            program.do(TOKENS, Wait(_FREED))
        program.do(TOKENS, Axpy(WEIGHTS, resident.whole, here, indexed), Signal(_FILLED))
        program.do(TOKENS, Wait(_FILLED), thread=_BACKGROUND)
        into = outputs[slot * here.count : (slot + 1) * here.count]
        do_ring_sum(program, ring, keeper, here, into, _BACKGROUND)
        program.do(TOKENS, Signal(_FREED), thread=_BACKGROUND)
    # The next layer reads the outputs, so wait for the sums that are still on their way.
    for _ in sums[: len(stream.keepers)]:
        program.do(TOKENS, Wait(_FREED))


def _tiles_of_activations(fabric: Fabric, x: Array, height: int) -> Array:
    """Return activations [rows, columns, features x tokens of a PE], zeros in row 0."""
    rows, columns = fabric.rows - 1, fabric.columns
    padded = np.zeros((rows * height, columns * _tile_size(x.shape[1], columns)))
    padded[: x.shape[0], : x.shape[1]] = x
    return np.pad(split(padded, rows, columns, transposed=True), ((1, 0), (0, 0), (0, 0)))


def words_of_weights(fabric: Fabric, stream: WeightStream) -> Array:
    """Return weights [rows, columns, words], in row 0 only."""
    words = np.zeros((fabric.rows, *stream.words.shape), dtype=np.float32)
    words[0] = stream.words
    return words
