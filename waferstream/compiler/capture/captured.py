"""A captured step: its graph, with the meaning of its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import fx

from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.results.gradient_ops import (
    cut_gradient_ops,
    find_gradient_ops,
    gradients_of_updates,
    refuse_stale_reads,
)
from waferstream.compiler.results.norm_results import NormStep, erase_unread, separate_norms
from waferstream.compiler.results.step_state import StateUpdate, separate_state
from waferstream.core.program.program import Rounding, TensorSpec
from waferstream.core.roles.installation import GradientKernel


@dataclass(frozen=True)
class Captured:
    """A step as a graph, with the meaning of its inputs and outputs."""

    module: fx.GraphModule
    parameters: tuple[TensorSpec, ...]  # masters, in registration order
    inputs: tuple[TensorSpec, ...]  # of one micro-batch
    trained: tuple[str, ...]  # parameters that receive a gradient, in registration order
    stream_dtype: str
    sums_in_fp32: bool  # of what streams in a half type: values are fp32 in the graph alone
    rounding: Rounding
    num_results: int  # of the user's step
    result_positions: tuple[int, ...]  # of what the graph returns before the gradients
    replaced: tuple[str, ...]  # buffers whose new values the graph returns after the gradients
    buffers: TracedBuffers
    update: StateUpdate  # set by ``separated``
    norms: NormStep  # set by ``separated``
    gradient_kernels: tuple[GradientKernel, ...] = ()  # set by ``separated``
    carried: frozenset[str] = frozenset()  # weights that add to a gradient of earlier steps
    left: frozenset[str] = frozenset()  # weights whose gradient the step does not clear
    num_cut: int = 0  # of the last inputs, which are cut from values of the whole batch
    whole: tuple[TensorSpec, ...] = ()  # further inputs: values of the whole batch as they are
    batch_draws: frozenset[int] = frozenset()  # random ops, counted, that draw for all samples

    @property
    def graph(self) -> fx.Graph:
        """The graph of the step."""
        return self.module.graph

    @property
    def weights(self) -> dict[fx.Node, str]:
        """Parameter name of each weight placeholder."""
        placeholders = self.graph.find_nodes(op="placeholder")
        return {node: spec.name for node, spec in zip(placeholders, self.parameters, strict=False)}

    @property
    def batch(self) -> dict[fx.Node, str]:
        """Input name of each batch placeholder."""
        placeholders = self.graph.find_nodes(op="placeholder")[len(self.parameters) :]
        inputs = (*self.inputs, *self.whole)
        return {node: spec.name for node, spec in zip(placeholders, inputs, strict=False)}

    @property
    def state(self) -> dict[fx.Node, str]:
        """Buffer name of each placeholder of a buffer that changes between steps."""
        first = len(self.parameters) + len(self.inputs) + len(self.whole)
        placeholders = self.graph.find_nodes(op="placeholder")[first:]
        reads = self.update.state.reads
        return {node: spec.name for node, spec in zip(placeholders, reads, strict=False)}

    @property
    def seeds(self) -> tuple[fx.Node, ...]:
        """Gradients at which backward passes start."""
        return tuple(node for node in self.graph.nodes if node.meta.get("seed"))

    @property
    def results(self) -> dict[int, fx.Node]:
        """Values that the kernels return by position: those of the step, then contributions."""
        return dict(zip(self.result_positions, self._outputs, strict=False))

    @property
    def gradients(self) -> dict[str, fx.Node]:
        """Gradient node of each trained parameter."""
        gradients = self._outputs[len(self.result_positions) :]
        return dict(zip(self.trained, gradients, strict=False))

    @property
    def _outputs(self) -> tuple[fx.Node, ...]:
        (output,) = self.graph.find_nodes(op="output")
        return tuple(output.args[0])


def separated(captured: Captured) -> Captured:
    """Return a captured step without what others compute.

    The coordinator updates buffers and combines norms, MemoryX changes gradients.

    The given one must not be used again.

    Raises:
        ApplianceCompilationError: The step state cannot be expressed
            (waferstream.compiler.results.step_state), or a result is computed from gradients
            (waferstream.compiler.results.norm_results), or gradients are changed in a way that
            MemoryX cannot repeat (waferstream.compiler.results.gradient_ops).
    """
    refuse_stale_reads(captured.graph, captured.weights)
    gradients = gradients_of_updates(captured.graph, captured.gradients)
    outputs, num_results = captured._outputs, captured.num_results
    names = {node: name for name, node in gradients.items()}
    found = find_gradient_ops(captured.graph, gradients)
    before = {ops.parameter: ops.raw for ops in found}
    norms, results = separate_norms(
        captured.module, outputs[:num_results], captured.weights, names, before.values()
    )
    raw = [before.get(name, node) for name, node in gradients.items()]
    finals = outputs[num_results + len(gradients) :]
    (output,) = captured.graph.find_nodes(op="output")
    output.args = ([*results.values(), *raw, *finals],)
    erase_unread(captured.graph, [outputs[place] for place in norms.results.results])
    kernels = cut_gradient_ops(captured.module, found, captured.weights)
    update, returned = separate_state(
        captured.module,
        captured.buffers,
        results,
        num_results,
        raw,
        dict(zip(captured.replaced, finals, strict=True)),
    )
    return replace(
        captured,
        result_positions=tuple(position for position, _ in returned),
        replaced=(),
        update=update,
        norms=norms,
        gradient_kernels=kernels,
    )
