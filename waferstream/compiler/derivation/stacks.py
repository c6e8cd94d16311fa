"""All stacks of layers of a program, deepened at once, and what grows with them elsewhere.

A model may have several stacks: an encoder and a decoder, a policy and its reference. They are
captured with equally few layers each, and deepened one after the other. Beside a single stack, ops
and memory of other segments may grow with its layers, as those of a sum of all routers' losses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from operator import sub

from waferstream.compiler.derivation.depth import Stack, is_like
from waferstream.compiler.derivation.layer_places import UnequalLayersError
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, Segment

Shape = tuple[int, ...]
_NUMBER = re.compile(r"\.(\d+)(?=\.)")  # of a layer, in "decoder.3.norm.weight"


@dataclass(frozen=True)
class Growth:
    """What each unit of layers adds to a segment outside of the stack."""

    runs: tuple[tuple[int, int], ...]
    """Where the ops for the last unit end in the list of ops, and their number."""
    extents: Mapping[int, Shape]
    """What is added to the shape of an op, by its position."""
    computing: frozenset[int]
    """Positions of the ops that compute more, too."""
    working: Footprint
    blocked: Footprint

    @classmethod
    def between(cls, few: Segment, more: Segment) -> Growth:
        """Return the growth from a segment to the same one beside one unit more.

        An op of the longer list that is not next in the shorter one begins a repetition of ops;
        UnequalLayersError if it does not.
        """
        runs: list[tuple[int, int]] = []
        extents: dict[int, Shape] = {}
        computing: set[int] = set()
        ahead = 0
        if len(few.work) > len(more.work):
            raise UnequalLayersError
        for place, op in enumerate(few.work):
            if op.op != more.work[place + ahead].op:
                count = _repeated(few, more, place, ahead)
                runs.append((place, count))
                ahead += count
            longer = more.work[place + ahead]
            if op.shape != longer.shape:
                extents[place] = tuple(map(sub, longer.shape, op.shape))
            if op.flops != longer.flops:
                computing.add(place)
        memory = more.working - few.working, more.blocked - few.blocked
        return cls(tuple(runs), extents, frozenset(computing), *memory)

    def applied(self, segment: Segment, added: int) -> Segment:
        """Return a segment beside ``added`` units more than were captured."""
        work = list(segment.work)
        for place, extents in self.extents.items():
            op = work[place]
            shape = tuple(a + more * added for a, more in zip(op.shape, extents, strict=True))
            flops = op.flops * prod(shape) // prod(op.shape)
            work[place] = op._replace(
                shape=shape, flops=flops if place in self.computing else op.flops
            )
        for end, count in reversed(self.runs):
            work[end:end] = segment.work[end - count : end] * added
        working = sum([self.working] * added, segment.working)
        blocked = sum([self.blocked] * added, segment.blocked)
        return replace(segment, work=tuple(work), working=working, blocked=blocked)


def _repeated(few: Segment, more: Segment, place: int, ahead: int) -> int:
    """Return the fewest ops that the longer list repeats at a place; UnequalLayersError if none."""
    for count in range(1, place + 1):
        if more.work[place + ahead :][:count] == few.work[place - count : place]:
            return count
    raise UnequalLayersError


@dataclass(frozen=True)
class Stacks:
    """The stacks of a captured program, and the growth of segments outside of them, in order."""

    stacks: tuple[Stack, ...]
    growth: tuple[Growth, ...] = ()

    @classmethod
    def checked(
        cls,
        program: Program,
        one_more: Program,
        shapes: Mapping[str, Shape],
        units: int,
        period: int = 1,
    ) -> Stacks | None:
        """Return the stacks of a program, or None if a deeper one does not follow from it.

        Args:
            program: Captured with this number of units of layers in each deep stack.
            one_more: Captured with one unit more.
            shapes: Shapes of all parameters of the model with all layers.
            units: An odd number.
            period: Layers of a unit.
        """
        depths = _depths(shapes)
        stacks = tuple(
            Stack(prefix, depths[prefix], units, period)
            for prefix, depth in _depths(program.parameter).items()
            if depth == units * period < depths[prefix]
        )
        if not stacks or any(stack.num_layers % period for stack in stacks):
            return None
        found = cls(stacks)
        by_one = cls(tuple(replace(each, num_layers=(units + 1) * period) for each in stacks))
        try:
            growth = tuple(by_one._growth(program, one_more)) if len(stacks) == 1 else ()
        except UnequalLayersError:
            return None
        found, by_one = replace(found, growth=growth), replace(by_one, growth=growth)
        is_whole = found.deepened_to(program, shapes) is not None
        return found if is_whole and is_like(by_one.deepened(program), one_more) else None

    def with_depths(self, shapes: Mapping[str, Shape]) -> Stacks | None:
        """Return the stacks of a model that differs in its numbers of layers alone.

        None if it has fewer than were captured, or not as many as take turns.

        Args:
            shapes: Shapes of all its parameters.
        """
        depths = _depths(shapes)
        if any(
            depths.get(each.prefix, 0) < each.captured * each.period
            or depths[each.prefix] % each.period
            for each in self.stacks
        ):
            return None
        stacks = (replace(each, num_layers=depths[each.prefix]) for each in self.stacks)
        return replace(self, stacks=tuple(stacks))

    def deepened_to(self, program: Program, shapes: Mapping[str, Shape]) -> Program | None:
        """Return the program with all layers, None if its parameters are not of these shapes."""
        deep = self.deepened(program)
        return deep if {spec.name: spec.shape for spec in deep.parameters} == shapes else None

    def deepened(self, program: Program) -> Program:
        """Return the program with all layers of all stacks."""
        if self.growth:
            program = replace(program, segments=tuple(self._grown(program)))
        for stack in self.stacks:
            program = stack.deepened(program)
        return program

    def names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names of weights with those of all copies inserted, in the order of the model."""
        found = tuple(names)
        for stack in self.stacks:
            found = stack.names(found)
        return found

    def _growth(self, program: Program, one_more: Program) -> Iterator[Growth]:
        pairs = zip(self._outside(program), self._outside(one_more), strict=False)
        return (Growth.between(few, more) for few, more in pairs)

    def _grown(self, program: Program) -> Iterator[Segment]:
        (stack,), growth = self.stacks, iter(self.growth)
        for segment in program.segments:
            is_outside = stack.number(segment.layer) is None
            yield next(growth).applied(segment, stack.added) if is_outside else segment

    def _outside(self, program: Program) -> list[Segment]:
        (stack,) = self.stacks
        return [each for each in program.segments if stack.number(each.layer) is None]


def _depths(names: Iterable[str]) -> dict[str, int]:
    """Return the number of layers by the name of their list."""
    depths: dict[str, int] = {}
    for name in names:
        for found in _NUMBER.finditer(name):
            prefix = name[: found.start()]
            depths[prefix] = max(depths.get(prefix, 0), int(found[1]) + 1)
    return depths
