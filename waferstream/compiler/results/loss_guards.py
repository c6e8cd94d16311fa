"""Ops that keep a loss within limits: ``nan_to_num``, ``clamp``, ``where(isfinite(loss), ...)``.

They act on the loss of the batch, which no micro-batch knows. As long as the loss is within the
limits they change nothing. So they are cut out of the step, and the coordinator runs them on the
loss of the batch: a step whose loss they would have changed ends the run.
"""

from __future__ import annotations

from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import op_name
from waferstream.compiler.results.gradient_paths import backward_of, entering
from waferstream.core.program.kernel_source import KernelSource, kernel_source


def cut_guard(part: Captured, guard: fx.Node, value: fx.Node) -> tuple[KernelSource, str] | None:
    """Cut an op that guards a sum out of a step.

    Args:
        part: The step, which is edited.
        guard: The op.
        value: The sum.

    Returns:
        The kernel from the sum to what the op makes of it, and the op with its line; None if the op
        reads more than the sum and constants.
    """
    cone = _cone(guard, value)
    if any(node.op == "placeholder" for node in cone):
        return None
    ordered = [node for node in part.graph.nodes if node in cone and node.op == "call_function"]
    kernel = kernel_source(part.module, ordered, [value], [guard])
    own = backward_of(guard)
    gradients = entering(own)
    for node in own:
        for user in [user for user in node.users if user not in own]:
            user.replace_input_with(node, gradients[0])
    for node in reversed(own):
        part.graph.erase_node(node)
    guard.replace_all_uses_with(value)
    part.graph.erase_node(guard)
    line = line_of_node(guard.meta.get("stack_trace")) or "outside the model"
    return kernel, f"{op_name(guard)}, {line}"


def _cone(guard: fx.Node, value: fx.Node) -> set[fx.Node]:
    """Return the nodes that an op is computed from, down to the sum."""
    found: set[fx.Node] = set()
    waiting = [guard]
    while waiting:
        node = waiting.pop()
        if node not in found and node is not value:
            found.add(node)
            waiting += node.all_input_nodes
    return found
