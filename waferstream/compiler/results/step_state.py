"""Step state: buffers that a step writes, such as the running statistics of a batch norm.

A plain loop updates them once per micro-batch, in order. So does the cluster, although nodes
compute micro-batches side by side: the captured step is cut in two.

    kernels   everything that needs no written buffer; nodes run it, and return for each micro-batch
              the values that the update reads (its contributions)
    update    everything that depends on a written buffer; the coordinator runs it on the
              contributions of one micro-batch after the other, in index order

Buffers that are only read are inputs of the kernels. A gradient that depends on a buffer which the
same step writes would make every micro-batch wait for the one before, and is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.ops import op_kind
from waferstream.compiler.results.state_cut import StateCut, split_batch_norms, varying
from waferstream.compiler.storages import overwritten
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import StepState, TensorSpec

Results = tuple[tuple[int, fx.Node], ...]
"""Values that the kernels return, by position."""


@dataclass(frozen=True)
class StateUpdate:
    """What a step does to buffers: as data, and the kernel that does it for one micro-batch.

    The kernel takes ``state.arguments`` and the contributions, and returns the new values of
    ``state.writes`` and the step results ``state.results``. It is None where nothing is written.
    """

    state: StepState
    kernel: KernelSource | None


def separate_state(
    module: fx.GraphModule,
    buffers: TracedBuffers,
    results: Mapping[int, fx.Node],
    num_results: int,
    gradients: Sequence[fx.Node],
    replaced: Mapping[str, fx.Node],
) -> tuple[StateUpdate, Results]:
    """Move the updates of buffers out of a captured step.

    Args:
        module: The captured step; buffers become its last placeholders.
        buffers: The buffers, as they were during the trace.
        results: Results of the step by position, but for those that are computed from norms.
        num_results: The number of all results of the step.
        gradients: Gradients of parameters.
        replaced: New values of buffers that the step has assigned.

    Returns:
        The update, and what the kernels still return: results of the step, then contributions.

    Raises:
        ApplianceCompilationError: A gradient, or a random op, depends on a buffer that is written.
    """
    graph = module.graph
    split_batch_norms(graph)
    constants = _buffer_constants(module, buffers)
    roots = {_root(node) for node in map(overwritten, graph.nodes) if node is not None}
    changing = varying(graph, constants)
    written = {constants[root] for root in roots if root in constants}
    written |= {name for name, node in replaced.items() if node in changing}
    _refuse_host_reads(buffers.host_reads & (written | buffers.state))
    used = written | (buffers.state & set(constants.values()))
    if not used:
        return StateUpdate(StepState(), None), tuple(results.items())
    names = [name for name in buffers.names.values() if name in used]
    inputs = _as_inputs(module, constants, names)
    finals = {name: replaced.get(name) or inputs[name] for name in names if name in written}
    results = {place: inputs.get(constants.get(node, ""), node) for place, node in results.items()}
    cut = StateCut(
        graph, {node for name, node in inputs.items() if name in written}, finals.values(), results
    )
    cut.refuse(gradients, [name for name in names if name in written])
    arguments = [node for node in inputs.values() if cut.reads(node)]
    kernel = cut.kernel(module, arguments)
    returned = (*cut.early, *enumerate(cut.contributions, num_results))
    (output,) = graph.find_nodes(op="output")
    output.args = ([*(node for _, node in returned), *gradients],)
    cut.erase()
    state = replace(
        _state_of(inputs, finals, arguments, cut), means=buffers.means_among(finals.keys())
    )
    return StateUpdate(state, kernel if written else None), returned


def _state_of(
    inputs: Mapping[str, fx.Node],
    finals: Mapping[str, fx.Node],
    arguments: Sequence[fx.Node],
    cut: StateCut,
) -> StepState:
    """Return the update as data; erase the inputs that the kernels do not read."""
    name_of = {node: name for name, node in inputs.items()}
    read = [node for node in inputs.values() if node.users]
    for node in inputs.values():
        if not node.users:
            node.graph.erase_node(node)
    return StepState(
        reads=tuple(_spec(name_of[node], node) for node in read),
        writes=tuple(_spec(name, node) for name, node in finals.items()),
        arguments=tuple(name_of[node] for node in arguments),
        contributions=tuple(_spec(node.name, node) for node in cut.contributions),
        results=tuple(place for place, _ in cut.late),
    )


def _refuse_host_reads(names: Collection[str]) -> None:
    if names:
        raise ApplianceCompilationError(
            "Python reads the value of a buffer that a step writes",
            code="state-read-on-host",
            value=", ".join(sorted(names)),
            rule="the traced step runs once in Python; its buffers change on the cluster",
            remedy="compute with the tensor instead of its number (torch.where), and give "
            "nn.BatchNorm a momentum",
        )


def _spec(name: str, node: fx.Node) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(name, tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _buffer_constants(module: fx.GraphModule, buffers: TracedBuffers) -> dict[fx.Node, str]:
    """Return the name of the buffer that a constant of the graph is."""
    constants = {
        node: getattr(module, str(node.target)) for node in module.graph.find_nodes(op="get_attr")
    }
    return {
        node: buffers.names[value]
        for node, value in constants.items()
        if isinstance(value, torch.Tensor) and value in buffers.names
    }


def _as_inputs(
    module: fx.GraphModule, constants: Mapping[fx.Node, str], names: Sequence[str]
) -> dict[str, fx.Node]:
    """Replace constants that are these buffers by placeholders; return those by name."""
    graph = module.graph
    inputs: dict[str, fx.Node] = {}
    for name in names:
        own = [node for node, buffer in constants.items() if buffer == name]
        if not own:  # the step assigns it unread
            continue
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            inputs[name] = graph.placeholder(f"state_{len(inputs)}")
        inputs[name].meta = {**own[0].meta, "layer": "", "is_state": True}
        inputs[name].meta.update(backward=False, seed=False)
        for node in own:
            node.replace_all_uses_with(inputs[name])
            graph.erase_node(node)
        # Several nodes may have had the same attribute.
        for target in {str(node.target) for node in own}:
            delattr(module, target)
    return inputs


def _root(node: fx.Node) -> fx.Node:
    """Return the node whose memory a value is: the first of a chain of views and overwrites."""
    while node.op == "call_function":
        if op_kind(node) == "view":
            node = node.all_input_nodes[0]
        elif (operand := overwritten(node)) is not None:
            node = operand
        else:
            break
    return node
