"""Cut a captured step into the segments that a CS node runs one by one.

A segment has inputs (weights, batch inputs, values of earlier segments), outputs that later
segments read (the stash), finished gradients and results, and its ops as the source of one Python
function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.lower_half import PLACE, lowering_of
from waferstream.compiler.memory import Memory
from waferstream.compiler.passes.layers import SegmentKey
from waferstream.compiler.passes.rematerialize import weight_only
from waferstream.compiler.storages import internals, needed_for
from waferstream.compiler.work import work_of
from waferstream.core.optimizer import LOSS_SCALE_INPUT
from waferstream.core.program.kernel_source import KernelSource, kernel_source
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.segment import Segment, Stash
from waferstream.numerics.keyed_random import BATCH_KEY_INPUT, KEY_INPUT

Key = TypeVar("Key")

_KEPT = {KEY_INPUT, BATCH_KEY_INPUT, SEED_INPUT, LOSS_SCALE_INPUT}
"""Numbers that every micro-batch keeps to its end."""


@dataclass(frozen=True)
class Cut:
    """Nodes of one segment and the values that cross its borders, in graph order."""

    key: SegmentKey
    nodes: tuple[fx.Node, ...]
    weights: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]  # read by later segments
    drops: tuple[fx.Node, ...]  # inputs that no later segment reads
    gradients: tuple[tuple[str, fx.Node], ...]
    results: tuple[tuple[int, fx.Node], ...]


def build_segments(captured: Captured) -> tuple[tuple[Segment, ...], tuple[KernelSource, ...]]:
    """Return the segments in execution order, and the kernel of each.

    The arguments of a kernel are the segment's weights and inputs; it returns its outputs,
    gradients and results, in this order.
    """
    segments, kernels = [], []
    streamed = {*captured.weights, *weight_only(captured)}
    names = {**captured.weights, **captured.batch, **captured.state}
    cuts = tuple(cuts_of(captured))
    memory = Memory(captured, streamed)
    rerun = _rerun(cuts)
    lowering = lowering_of(captured)
    stashes = memory.stashes([cut.outputs for cut in cuts])
    for index, (cut, stash) in enumerate(zip(cuts, stashes, strict=True)):
        segments.append(_segment(index, cut, names, streamed, memory, stash, rerun))
        operands = [*cut.weights, *cut.inputs]
        outputs = [*cut.outputs, *(node for _, node in cut.gradients)]
        results = [node for _, node in cut.results]
        kernels.append(
            kernel_source(captured.module, cut.nodes, operands, outputs, results, lowering)
        )
    return tuple(segments), tuple(kernels)


def cuts_of(captured: Captured) -> Iterator[Cut]:
    """Yield the cut of each run of nodes of one segment."""
    runs = _runs(captured.graph)
    home = {node: position for position, run in enumerate(runs) for node in run}
    last_read = _last_reads(home)
    weights = captured.weights
    keys = captured.graph.find_nodes(op="placeholder", target=KEY_INPUT)
    all_results = _by_home(captured.results.items(), home)
    all_gradients = _by_home(captured.gradients.items(), home)
    for position, run in enumerate(runs):
        results = all_results.get(position, ())
        echoed = [node for _, node in results if node.op == "placeholder"]
        reads = list(dict.fromkeys([*_reads(run, keys), *echoed]))
        inputs = tuple(n for n in reads if n not in weights)
        outputs = tuple(n for n in run if last_read.get(n, -1) > position)
        dropped = tuple(
            n for n in inputs if last_read.get(n, 0) == position and n.name not in _KEPT
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
    """Group the values that the step returns by the position of the run that makes them.

    An input or a constant that the step returns unchanged is a result of the first segment.
    """
    found: dict[int, tuple[tuple[Key, fx.Node], ...]] = {}
    for key, node in returned:
        position = home.get(node, 0)
        found[position] = (*found.get(position, ()), (key, node))
    return found


def _runs(graph: fx.Graph) -> list[list[fx.Node]]:
    """Return the runs of consecutive nodes of one segment."""
    runs: list[list[fx.Node]] = []
    for node in graph.nodes:
        if node.op in {"placeholder", "output", "get_attr"}:
            continue
        if not runs or runs[-1][0].meta["segment"] != node.meta["segment"]:
            runs.append([])
        runs[-1].append(node)
    return runs


def _reads(run: list[fx.Node], keys: Sequence[fx.Node]) -> list[fx.Node]:
    """Return the values that a run reads from outside, without constants, in order of use.

    Last come the ``keys`` of random numbers where its kernel rounds by chance.
    """
    inside = set(run)
    operands = [operand for node in run for operand in node.all_input_nodes]
    if any(PLACE in node.meta for node in run):
        operands += keys
    return list(dict.fromkeys(n for n in operands if n not in inside and n.op != "get_attr"))


def _rerun(cuts: Sequence[Cut]) -> set[fx.Node]:
    """Return the forward ops that a backward pass would run again if its layer is recomputed."""
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
    """Return the position of the last run that reads each value."""
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
    """Return the plain data of a cut."""
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
        work=tuple(
            work_of(node, streamed)._replace(
                reruns=node in rerun, makes_scores=node in memory.scores
            )
            for node in cut.nodes
        ),
        stash=stash,
        working=memory.working(cut.nodes, cut.outputs),
        blocked=memory.blocked(cut.nodes, cut.outputs),
    )
