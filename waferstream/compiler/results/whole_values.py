"""Values of the whole batch that follow from inputs alone, as inputs of every micro-batch.

A number of labels, weights that are normalized over the batch, numbers of rows: plain PyTorch
computes them on the batch. They need no weights, so the input worker, which reads the whole batch,
computes them before the step. A value with a row for each sample is cut like an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.results.form_rules import FormRules
from waferstream.compiler.results.label_counts import input_kernel, inputs_only
from waferstream.compiler.results.two_sizes import TwoSizes
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import TensorSpec
from waferstream.numerics.precision import NAMES


def given_whole(sizes: TwoSizes, rules: FormRules) -> tuple[Captured, KernelSource | None]:
    """Give a step the values of the whole batch that it reads.

    Args:
        sizes: The step of a micro-batch, which is edited, and that of the batch.
        rules: The forms of its values.

    Returns:
        The step with further inputs, and the kernel from the inputs of the batch to these: first
        those with a row for each sample. None if there are none.
    """
    part = sizes.part
    values = sorted({*rules.whole, *_returned(part, rules)}, key=_order(sizes))
    if not values:
        return part, None
    given: dict[fx.Node, fx.Node] = {}
    last = list(part.batch)[-1]
    for place, value in enumerate(values):
        with part.graph.inserting_after(last):
            last = given[value] = part.graph.placeholder(f"whole_{place}")
        marks = {"layer": "", "backward": False, "seed": False, "loss_scale": False}
        last.meta.update(marks, val=value.meta["val"])
    _replace(part, rules, given)
    specs = [
        TensorSpec(node.name, tuple(node.meta["val"].shape), NAMES[node.meta["val"].dtype])
        for node in given.values()
    ]
    of_batch = [other for value in values if (other := sizes.of_whole(value)) is not None]
    kernel = input_kernel(sizes.whole, list(inputs_only(sizes.whole)), of_batch)
    rows = sum(bool(sizes.samples(value)) for value in values)
    inputs = (*part.inputs, *specs[:rows])
    return replace(part, inputs=inputs, num_cut=rows, whole=tuple(specs[rows:])), kernel


def _order(sizes: TwoSizes) -> Callable[[fx.Node], tuple[bool, int]]:
    """Return the key that sorts values: first those with a row for each sample."""
    places = {node: place for place, node in enumerate(sizes.part.graph.nodes)}
    return lambda node: (not sizes.samples(node), places[node])


def _returned(part: Captured, rules: FormRules) -> list[fx.Node]:
    """Return the results that are values of the whole batch; no contribution to a buffer is."""
    results = (node for place, node in part.results.items() if place < part.num_results)
    return [node for node in results if rules.is_whole(node)]


def _replace(part: Captured, rules: FormRules, given: Mapping[fx.Node, fx.Node]) -> None:
    """Let the ops that read values of the batch, and their backward passes, take the inputs."""
    for value, readers in rules.whole.items():
        numbers = {reader.meta["seq_nr"] for reader in readers}
        for user in list(value.users):
            is_backward = user.meta.get("backward") and user.meta.get("seq_nr") in numbers
            if user in readers or is_backward:
                user.replace_input_with(value, given[value])
    (output,) = part.graph.find_nodes(op="output")
    returned = list(output.args[0])
    for index, position in enumerate(part.result_positions):
        if position < part.num_results:
            returned[index] = given.get(returned[index], returned[index])
    output.args = (returned,)
