"""Reduce along a line: any pre-order tree, as routes on two colours and a script per position.

A PE adds the streams of its children, nearest first, and forwards the last child's stream as it
arrives. A position at depth d sends on colour d mod 2 and receives on the other. Its router listens
to its own core until the core has sent, then lets streams from beyond pass (switch position 1). Its
receiving colour is opened for them by a control wavelet that the last child sends after its stream.
These are the structures of the public programs of Luczynski's group (reduce_2colors_static,
_dynamic, _2phase, _low_depth of pr0f3ss/SpMM_Cerebras).

Cycles from that structure, with s = vector set-up, a = 2 T_R + 1 per message and h per hop. All
count from the end of the first set-up; leaves start at 0::

    S(p)      start of p's sum, its first word
    A(p, j)   start of the stream of p's child j = max(S(j) + h distance + a,
                                                       A(p, j - 1) + words + s)
    S(p)      = A(p, last child);  the root ends at A(root, last child) + words

A chain takes ``words + (a + h)(P - 1)``. Two-phase takes the last group and the leaders before it,
``2 words + s + (a + h)(g - 1) + (a + g h)(P / g - 2)`` where words + s > a + g h.
"""

from __future__ import annotations

from csnode.fabric.collectives.broadcast import add_broadcast
from csnode.fabric.collectives.paths import Path
from csnode.fabric.collectives.trees import Tree, binomial, chain, star, two_phase
from csnode.fabric.dtypes import Combine
from csnode.fabric.instructions import (
    Control,
    Delay,
    Instruction,
    Stream,
)
from csnode.fabric.memory import Slice
from csnode.fabric.program import Port, Program
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.kernels import collectives

COLOURS = 3
"""Colours of an all-reduce; a reduce takes the first two of them."""
_TREES = {
    star: collectives.star,
    chain: collectives.chain,
    binomial: collectives.binomial,
    two_phase: collectives.two_phase,
}


def add_reduce(
    program: Program,
    path: Path,
    tree: Tree,
    values: Slice,
    colours: tuple[int, int],
    *,
    combine: Combine = "add",
    restart_cycles: tuple[int, int] = (0, 0),
) -> None:
    """Reduce ``values`` along every line of ``path``, into those of position 0.

    Combines ``route_reduce`` and ``do_reduce``, which a kernel that reduces often calls separately.
    """
    route_reduce(program, path, tree, colours)
    do_reduce(program, path, tree, values, colours, combine=combine, restart_cycles=restart_cycles)


def route_reduce(program: Program, path: Path, tree: Tree, colours: tuple[int, int]) -> None:
    """Add the routes of a reduce.

    The routes of a chain are reusable, those of other trees use up their switch positions. Raises
    ApplianceCompilationError when tree and path differ in length.
    """
    if tree.num_pes != path.length:
        raise ApplianceCompilationError(
            "a reduction tree must be as long as its line",
            code="tree-length-mismatch",
            value=f"tree of {tree.num_pes} PEs, line of {path.length}",
            rule="equal",
        )
    for position in range(path.length if path.length > 1 else 0):
        _route(program, path, tree, position, colours)


def do_reduce(
    program: Program,
    path: Path,
    tree: Tree,
    values: Slice,
    colours: tuple[int, int],
    *,
    combine: Combine = "add",
    restart_cycles: tuple[int, int] = (0, 0),
) -> None:
    """Append the instructions of a reduce.

    PEs other than the root keep sums of what they did not forward.

    Args:
        program: Program with the routes.
        path: Lines to reduce along.
        tree: Order of the additions.
        values: Operand and, in the root, result.
        colours: The two colours of the routes.
        combine: Operation of the reduce.
        restart_cycles: Delay before each further sum in memory, and before a sum that is forwarded
            after one in memory. A program that does not load its descriptors ahead loads them there
            (``descriptor_load_cycles``).
    """
    for position in range(path.length if path.length > 1 else 0):
        ops = _instructions(tree, position, values, colours, combine)
        program.do(path.at(position), *_restarted(ops, restart_cycles))


def _restarted(ops: list[Instruction], restart_cycles: tuple[int, int]) -> list[Instruction]:
    in_memory, forwarded = restart_cycles
    script = ops[:1]
    for op in ops[1:]:
        if isinstance(op, Stream):
            cycles = forwarded if op.store is None else in_memory
            script += [Delay(cycles)] if cycles else []
        script.append(op)
    return script


def _send_colour(tree: Tree, position: int, colours: tuple[int, int]) -> int:
    return colours[tree.depths[position] % 2]


def _receive_colour(tree: Tree, position: int, colours: tuple[int, int]) -> int:
    return colours[(tree.depths[position] + 1) % 2]


def _passes(tree: Tree, position: int) -> tuple[bool, bool]:
    """Return whether other streams pass on the colour of sending, and on that of receiving."""
    parity = tree.depths[position] % 2
    return parity in tree.passing[position], 1 - parity in tree.passing[position]


def _route(
    program: Program, path: Path, tree: Tree, position: int, colours: tuple[int, int]
) -> None:
    here, toward, away = path.at(position), path.toward[position], path.away[position]
    passes_send, passes_receive = _passes(tree, position)
    send = _send_colour(tree, position, colours)
    receive = _receive_colour(tree, position, colours)
    if position:
        program.route(send, here, Port.RAMP, toward)
    if passes_send:
        program.route(send, here, away, toward, position=1)
    is_leaf = not tree.children[position]
    if not is_leaf:
        program.route(receive, here, away, Port.RAMP)
    if passes_receive:
        program.route(receive, here, away, toward, position=0 if is_leaf else 1)


def _instructions(
    tree: Tree, position: int, values: Slice, colours: tuple[int, int], combine: Combine
) -> list[Instruction]:
    send = _send_colour(tree, position, colours)
    receive = _receive_colour(tree, position, colours)
    children = tree.children[position]
    if position == 0:
        return _gather(values, receive, len(children), tree.depths, combine)
    opens_parent = _opens_parent(tree, position)
    advance = _passes(tree, position)[0] and not opens_parent
    last = Stream(
        operand=values,
        receive=receive if children else None,
        send=send,
        combine=combine,
        advance=advance,
    )
    adds = _gather(values, receive, len(children) - 1, tree.depths, combine)
    return [*adds, last, *([Control(send)] if opens_parent else [])]


def _gather(
    values: Slice, colour: int, streams: int, depths: tuple[int, ...], combine: Combine
) -> list[Instruction]:
    """Return the ops that add ``streams`` streams.

    The streams of a star arrive at once, so a single op adds them.
    """
    if streams < 1:
        return []
    is_star = max(depths) == 1
    add = Stream(
        operand=values,
        receive=colour,
        store=values,
        combine=combine,
        repeats=streams if is_star else 1,
    )
    return [add] if is_star else [add] * streams


def _opens_parent(tree: Tree, position: int) -> bool:
    """Return whether other streams wait to pass the parent on the colour on which it receives."""
    parent = tree.parents[position]
    is_last = tree.children[parent][-1] == position
    return is_last and parent > 0 and _passes(tree, parent)[1]


def add_sum(
    program: Program, path: Path, values: Slice, colour: int, combine: Combine = "add"
) -> None:
    """Combine ``values`` into position 0 of every line, by the fastest tree."""
    words = values.count // values.dtype.per_word
    tree = fastest_tree(program, path.length, words)
    add_reduce(program, path, tree, values, (colour, colour + 1), combine=combine)


def add_sum_for_all(
    program: Program, path: Path, values: Slice, colour: int, combine: Combine = "add"
) -> None:
    """Combine ``values`` over every line, for all its PEs."""
    add_sum(program, path, values, colour, combine)
    add_broadcast(program, path, values, colour + 2)


def fastest_tree(program: Program, pes: int, words: int) -> Tree:
    """Return the fastest of star, chain, binomial and two-phase by their closed forms.

    A compiler would choose the same way.
    """
    spec = program.fabric.spec
    return min(_TREES, key=lambda tree: _TREES[tree](spec, pes, words))(pes)
