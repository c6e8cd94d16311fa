"""Cut a captured step into the segments that a CS node runs one by one.

For each segment: what it reads (weights, batch inputs, values of earlier segments), what later
segments read of it (the stash), which gradients and results it finishes, and its ops as the source
of one Python function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import fx

from wsc.compiler.capture import Captured
from wsc.compiler.internals import internals, needed_for
from wsc.compiler.keyed_random import KEY_INPUT
from wsc.compiler.memory import Memory
from wsc.compiler.passes.layers import SegmentKey
from wsc.compiler.passes.rematerialize import weight_only
from wsc.compiler.work import work_of
from wsc.core.kernel_source import KernelSource, kernel_source
from wsc.core.program import Segment, Stash

Key = TypeVar("Key")


@dataclass(frozen=True)
class Cut:
    """The nodes of one segment and the values that cross its borders, all in graph order."""

    key: SegmentKey
    nodes: tuple[fx.Node, ...]
    weights: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]  # read by later segments
    drops: tuple[fx.Node, ...]  # inputs or outputs that nothing reads afterwards
    gradients: tuple[tuple[str, fx.Node], ...]
    results: tuple[tuple[int, fx.Node], ...]


def build_segments(captured: Captured) -> tuple[tuple[Segment, ...], tuple[KernelSource, ...]]:
    """The segments in execution order, and the kernel of each.

    A kernel takes the segment's weights, then its inputs, and returns its outputs, then its
    gradients, then its results.
    """
    segments, kernels = [], []
    streamed = {*captured.weights, *weight_only(captured)}
    names = {**captured.weights, **captured.batch}
    cuts = tuple(_cuts(captured))
    memory = Memory(captured, streamed)
    rerun = _rerun(cuts)
    stashes = memory.stashes([cut.outputs for cut in cuts])
    for index, (cut, stash) in enumerate(zip(cuts, stashes, strict=True)):
        segments.append(_segment(index, cut, names, streamed, memory, stash, rerun))
        returned = [*cut.outputs, *(n for _, n in cut.gradients), *(n for _, n in cut.results)]
        kernels.append(
            kernel_source(captured.module, cut.nodes, [*cut.weights, *cut.inputs], returned)
        )
    return tuple(segments), tuple(kernels)


def _cuts(captured: Captured) -> Iterator[Cut]:
    runs = _runs(captured.graph)
    home = {node: position for position, run in enumerate(runs) for node in run}
    last_read = _last_reads(home)
    weights, batch = captured.weights, captured.batch
    home_of_returned = {**home, **dict.fromkeys(batch, 0)}  # an input returned as it is: the first
    all_results = _by_home(enumerate(captured.results), home_of_returned)
    all_gradients = _by_home(captured.gradients.items(), home_of_returned)
    for position, run in enumerate(runs):
        results = all_results.get(position, ())
        echoed = [node for _, node in results if node in batch]
        reads = list(dict.fromkeys([*_reads(run), *echoed]))
        inputs = tuple(n for n in reads if n not in weights)
        outputs = tuple(n for n in run if last_read.get(n, -1) > position)
        dropped = tuple(
            n for n in inputs if last_read.get(n, 0) == position and n.name != KEY_INPUT
        )
        yield Cut(
            key=run[0].meta["segment"],
            nodes=tuple(run),
            weights=tuple(n for n in reads if n in weights),
            inputs=inputs,
            outputs=outputs,
            drops=dropped,
            gradients=all_gradients.get(position, ()),
            results=results,
        )


def _by_home(
    returned: Iterable[tuple[Key, fx.Node]], home: Mapping[fx.Node, int]
) -> dict[int, tuple[tuple[Key, fx.Node], ...]]:
    """What the step returns, by the position of the run that makes it."""
    found: dict[int, tuple[tuple[Key, fx.Node], ...]] = {}
    for key, node in returned:
        found[home[node]] = (*found.get(home[node], ()), (key, node))
    return found


def _runs(graph: fx.Graph) -> list[list[fx.Node]]:
    runs: list[list[fx.Node]] = []
    for node in graph.nodes:
        if node.op in {"placeholder", "output", "get_attr"}:
            continue
        if not runs or runs[-1][0].meta["segment"] != node.meta["segment"]:
            runs.append([])
        runs[-1].append(node)
    return runs


def _reads(run: list[fx.Node]) -> list[fx.Node]:
    """Values a run takes from outside, constants apart, in order of first use."""
    inside = set(run)
    operands = (operand for node in run for operand in node.all_input_nodes)
    return list(dict.fromkeys(n for n in operands if n not in inside and n.op != "get_attr"))


def _rerun(cuts: Sequence[Cut]) -> set[fx.Node]:
    """The forward ops that a layer's backward pass has to run again if nothing is kept for it."""
    backward: dict[str, list[fx.Node]] = {}
    for cut in cuts:
        if cut.key.phase == "backward":
            backward.setdefault(cut.key.layer, []).extend(cut.nodes)
    found: set[fx.Node] = set()
    for cut in cuts:
        if cut.key.phase == "forward":
            nodes = dict.fromkeys(cut.nodes)
            found |= needed_for(internals(nodes, backward.get(cut.key.layer, ())), nodes)
    return found


def _last_reads(home: dict[fx.Node, int]) -> dict[fx.Node, int]:
    """Position of the last run that reads each value."""
    last: dict[fx.Node, int] = {}
    for node, position in home.items():
        for operand in node.all_input_nodes:
            last[operand] = max(last.get(operand, -1), position)
    return last


def _segment(
    index: int,
    cut: Cut,
    names: Mapping[fx.Node, str],
    streamed: set[fx.Node],
    memory: Memory,
    stash: tuple[Stash, ...],
    rerun: set[fx.Node],
) -> Segment:
    return Segment(
        index=index,
        phase=cut.key.phase,
        layer=cut.key.layer,
        weights=tuple(names[node] for node in cut.weights),
        gradients=tuple(name for name, _ in cut.gradients),
        inputs=tuple(names.get(node, node.name) for node in cut.inputs),
        outputs=tuple(node.name for node in cut.outputs),
        drops=tuple(names.get(node, node.name) for node in cut.drops),
        results=tuple((place, node.name) for place, node in cut.results),
        work=tuple(work_of(node, streamed)._replace(reruns=node in rerun) for node in cut.nodes),
        stash=stash,
        working=memory.working(cut.nodes, cut.outputs),
    )
