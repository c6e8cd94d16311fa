"""Results of a step that are computed from L2 norms of whole gradients, or of weights.

A system has the gradients of its micro-batches only. MemoryX has their sums and the fp32 masters,
so its servers compute the norms; what the step makes of them (sums over parameters, roots) is cut
out of the captured step, and the coordinator runs it once per step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.ops import op_kind, op_name
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource, kernel_source
from waferstream.core.program.program import NormInput, NormResults

_UNCHANGED = frozenset({"detach", "alias", "clone", "_to_copy"})
_EUCLIDEAN = (2, 2.0)


@dataclass(frozen=True)
class NormStep:
    """What a step computes from norms: as data, and the kernel that does it, if there is any."""

    results: NormResults
    kernel: KernelSource | None


NO_NORMS = NormStep(NormResults(), None)


def separate_norms(
    module: fx.GraphModule,
    results: Sequence[fx.Node],
    weights: Mapping[fx.Node, str],
    gradients: Mapping[fx.Node, str],
    raw: Collection[fx.Node] = (),
) -> tuple[NormStep, dict[int, fx.Node]]:
    """Find the results that are computed from norms alone; ``module`` stays as it is.

    Args:
        module: The captured step.
        results: Results of the step.
        weights: Parameter name of each weight placeholder.
        gradients: Parameter name of each gradient.
        raw: Gradients as they were before the step has changed them.

    Returns:
        What is computed from norms, and the other results by position.

    Raises:
        ApplianceCompilationError: A result depends on a gradient of weights in another way.
    """
    finder = _Finder(weights, gradients, raw)
    others: dict[int, fx.Node] = {}
    found: dict[int, fx.Node] = {}
    norms: dict[fx.Node, NormInput] = {}
    cone: set[fx.Node] = set()
    for position, result in enumerate(results):
        own = finder.cone_of(result)
        if own.is_of_norms:
            found[position] = result
            norms |= own.norms
            cone |= own.nodes
        elif own.gradient is not None:
            raise _refusal(position, own.gradient)
        else:
            others[position] = result
    if not found or not (others or gradients):  # kernels compute something at least
        return NO_NORMS, dict(enumerate(results))
    nodes = [n for n in module.graph.nodes if n in cone and n.op == "call_function"]
    kernel = kernel_source(module, nodes, list(norms), list(found.values()))
    return NormStep(NormResults(tuple(norms.values()), tuple(found)), kernel), others


def erase_unread(graph: fx.Graph, nodes: Collection[fx.Node]) -> None:
    """Erase what only these nodes, which are no outputs any more, were computed from."""
    unread = set(nodes)
    for node in reversed(graph.nodes):
        if node in unread and not node.users and node.op != "placeholder":
            unread.update(node.all_input_nodes)
            graph.erase_node(node)


@dataclass(frozen=True)
class _Cone:
    """The nodes that a result is computed from, down to norms."""

    nodes: frozenset[fx.Node]
    norms: Mapping[fx.Node, NormInput]
    inputs: frozenset[fx.Node]  # placeholders
    gradient: fx.Node | None  # one that it depends on, through a norm or not
    has_whole_gradient: bool

    @property
    def is_of_norms(self) -> bool:
        return bool(self.norms) and not self.inputs and not self.has_whole_gradient


class _Finder:
    """Finds norms of weights and gradients in a graph."""

    def __init__(
        self,
        weights: Mapping[fx.Node, str],
        gradients: Mapping[fx.Node, str],
        raw: Collection[fx.Node],
    ) -> None:
        self._weights = weights
        self._gradients = gradients
        self._whole = {*gradients, *raw}

    def cone_of(self, result: fx.Node) -> _Cone:
        """Return the nodes that a result is computed from."""
        nodes: set[fx.Node] = set()
        norms: dict[fx.Node, NormInput] = {}
        gradient = None
        waiting = [result]
        while waiting:
            node = waiting.pop()
            if node in nodes or node in norms:
                continue
            norm = self._norm(node)
            if norm is not None:
                norms[node] = norm
                gradient = gradient or (node if norm.of == "gradient" else None)
                continue
            nodes.add(node)
            waiting += node.all_input_nodes
        touched = next((node for node in nodes if node in self._whole), None)
        inputs = frozenset(node for node in nodes if node.op == "placeholder")
        return _Cone(frozenset(nodes), norms, inputs, touched or gradient, touched is not None)

    def _norm(self, node: fx.Node) -> NormInput | None:
        """Return which norm a node is; None if it is another value."""
        name = op_name(node) if node.op == "call_function" else ""
        if name not in {"linalg_vector_norm", "sum"} or len(node.meta["val"].shape):
            return None
        operand = node.all_input_nodes[0]
        if name == "linalg_vector_norm":
            return self._of(operand) if (*node.args, 2)[1] in _EUCLIDEAN else None
        square = _squared(operand)
        norm = None if square is None else self._of(square)
        return None if norm is None else replace(norm, is_squared=True)

    def _of(self, node: fx.Node) -> NormInput | None:
        """Return the norm of a node's value, if that is a whole weight or gradient."""
        for step in _same_elements(node):
            if step in self._gradients:
                return NormInput("gradient", self._gradients[step])
            if step in self._weights:
                return NormInput("weight", self._weights[step])
        return None


def _same_elements(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, and those before it whose elements it has."""
    yield node
    while node.op == "call_function" and (op_name(node) in _UNCHANGED or _is_whole_view(node)):
        node = node.all_input_nodes[0]
        yield node


def _is_whole_view(node: fx.Node) -> bool:
    if op_kind(node) != "view":
        return False
    value, source = node.meta["val"], node.all_input_nodes[0].meta["val"]
    return bool(op_name(node) in {"view", "_unsafe_view"} and value.numel() == source.numel())


def _squared(node: fx.Node) -> fx.Node | None:
    """Return the operand of a square."""
    name = op_name(node) if node.op == "call_function" else ""
    if name == "pow" and node.args[1] in _EUCLIDEAN:
        return node.all_input_nodes[0]
    if name == "mul" and node.args[0] is node.args[1]:
        return node.all_input_nodes[0]
    return None


def _refusal(position: int, node: fx.Node) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a result of the step is computed from gradients of weights",
        code="result-from-gradient",
        where=line_of_node(node.meta.get("stack_trace")) or f"result {position}, from {node.name}",
        rule="a system has the gradients of one micro-batch; of their sums, MemoryX computes L2 "
        "norms of whole parameters",
        remedy="compute the result from p.grad.norm() of whole gradients, and from nothing else",
    )
