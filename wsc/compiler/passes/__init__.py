"""Graph-to-graph passes over a captured step, in the order in which they run.

    drop_aliases          detach and alias mean nothing outside autograd
    key_random_ops        random ops draw from (seed, step, micro-batch, op)
    eliminate_dead_code   what no output needs
    check_kernels         every op has a kernel, or the error names op, line and remedy
    assign_segments       which layer, forward or backward, each op belongs to
    rematerialize_weights nothing derived from a weight leaves a segment

Each is a function of the captured step that edits its graph in place. Optional ones can be
switched off by name; the numerics do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from wsc.compiler.capture import Captured
from wsc.compiler.passes.aliases import drop_aliases, eliminate_dead_code
from wsc.compiler.passes.kernels import check_kernels
from wsc.compiler.passes.layers import assign_segments
from wsc.compiler.passes.random import key_random_ops
from wsc.compiler.passes.rematerialize import rematerialize_weights

PASSES: tuple[Callable[[Captured], None], ...] = (
    drop_aliases,
    key_random_ops,
    eliminate_dead_code,
    check_kernels,
    assign_segments,
    rematerialize_weights,
)
OPTIONAL = frozenset({"drop_aliases", "eliminate_dead_code"})


def run_passes(captured: Captured, disabled: Collection[str] = ()) -> None:
    """Run all passes but the disabled ones; ValueError for one that cannot be left out."""
    if unknown := set(disabled) - OPTIONAL:
        raise ValueError(f"passes {sorted(unknown)} cannot be disabled; {sorted(OPTIONAL)} can")
    for run in PASSES:
        if run.__name__ not in disabled:
            run(captured)
    captured.graph.lint()
