"""Derive a program with many layers from a program captured with five.

The layers of a transformer are equal, and capturing takes time for each of them. A program captured
with layers 0 to 4 is deepened by replicating the middle layer 2. With 7 layers:

    captured    0   1   2           3   4
                |   |   |           |   |
    deepened    0   1   2   3   4   5   6
                        copies of 2

Values are first named by the layer that makes them (``decoder.2/forward/0/1``), as weights are
named by their module (``decoder.2.norm.weight``), so that the number in a name tells which layer it
belongs to. What another segment makes for a single layer belongs to that layer, too, such as the
gradient of its router's loss. A copied segment then renames what it reads by the following rules
(7 layers):

    name of layer   read by a segment of            becomes
    2               no layer, layer 0, layer 4      every copy: 2 3 4 (4 3 2 in the backward pass)
    1, 2, 3         layer 2, in its copy n          n - 1, n, n + 1
    2               layer 3                         4, the last copy
    2               layer 1                         2, the first copy
    0, 1            any other                       unchanged
    3, 4            any other                       5, 6

For example, layer 2 reads the output of layer 1, so its copy 3 reads that of layer 2, and its copy
4 that of layer 3. The optimizer, or a norm over all layers, reads every copy. These rules assume
that a layer reads its own values, those of its neighbours, of the first and last layer, and values
made outside of the stack. ``waferstream.compiler.derivation.stacks`` verifies the assumption:
deepening to six layers must give the program that a capture with six layers gives.

Where layers take turns, as those with a window of attention and those without, two of them count
as one. Three layers suffice where the first and the last are neighbours as all others are.

The result has no kernels: it is for timing and memory, not for execution.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import Phase, Segment, Stash

CAPTURED_LAYERS = 5
"""Layers of a capture that is deepened: first, second, middle, second last, last."""

MIDDLE = CAPTURED_LAYERS // 2
"""Number of the layer that is copied."""

_NUMBERED = re.compile(r"(.+)\.\d+")  # the name of a layer: "decoder.3"

_Names = Callable[[Iterable[str]], Iterable[str]]


def named_by_place(program: Program) -> Program:
    """Return the program with values named ``layer/phase/visit/position``.

    ``visit`` counts the segments of one layer and phase, ``position`` the values of a segment.
    """
    names: dict[str, str] = {}
    visits: Counter[tuple[str, Phase]] = Counter()
    positions: Counter[str] = Counter()
    reader = _only_readers(program)
    for segment in program.segments:
        visit = visits[segment.layer, segment.phase]
        visits[segment.layer, segment.phase] += 1
        made = dict.fromkeys((*segment.outputs, *(name for _, name in segment.results)))
        for name in (name for name in made if name not in segment.inputs):
            place = f"{segment.layer}/{segment.phase}/{visit}"
            if name in reader and not _NUMBERED.fullmatch(segment.layer):
                place = f"{reader[name]}/{segment.phase}/{visit}/of {segment.layer}"
            names[name] = f"{place}/{positions[place]}"
            positions[place] += 1
    return replace(
        program,
        segments=tuple(
            _with_names(segment, lambda given: (names.get(name, name) for name in given))
            for segment in program.segments
        ),
    )


def _only_readers(program: Program) -> dict[str, str]:
    """Return the layer that reads a value, of those that a single layer of a stack reads."""
    readers: dict[str, set[str]] = {}
    for segment in program.segments:
        for name in segment.inputs:
            readers.setdefault(name, set()).add(segment.layer)
    return {
        name: layer
        for name, (layer, *others) in readers.items()
        if not others and _NUMBERED.fullmatch(layer)
    }


def is_like(one: Program, other: Program) -> bool:
    """Return whether two programs are equal up to their digests and the names of values."""
    return replace(named_by_place(one), digest="") == replace(named_by_place(other), digest="")


@dataclass(frozen=True)
class Stack:
    """Equal layers ``prefix.0``, ``prefix.1``, ... of a program, replicated to ``num_layers``."""

    prefix: str
    num_layers: int
    captured: int = CAPTURED_LAYERS
    """Units of the captured program, an odd number of 3 at least; the middle one is copied."""
    period: int = 1
    """Layers of a unit: as many as take turns."""

    @classmethod
    def of(cls, program: Program, num_layers: int) -> Stack:
        """Return the stack of a captured program, to be deepened to ``num_layers``.

        Raises:
            ValueError: The program does not have exactly one stack of CAPTURED_LAYERS layers.
        """
        layers = [found for s in program.segments if (found := _NUMBERED.fullmatch(s.layer))]
        prefixes = {found[1] for found in layers}
        if len(prefixes) != 1 or len({found[0] for found in layers}) != CAPTURED_LAYERS:
            raise ValueError(f"one stack of {CAPTURED_LAYERS} layers expected, not {prefixes}")
        return cls(prefixes.pop(), num_layers)

    def deepened(self, program: Program) -> Program:
        """Return the program with ``num_layers`` layers, with values named by position."""
        segments: list[Segment] = []
        for is_middle, run in groupby(
            named_by_place(program).segments, lambda s: self.number(s.layer) == self._middle
        ):
            # The segments of one pass through the middle layer are copied together.
            captured = list(run)
            for copy in self._copies(captured[0].phase) if is_middle else (None,):
                segments += [self._placed(segment, copy) for segment in captured]
        parameters = (
            self._placed_parameter(program.parameter[old], new)
            for new, old in self._renamed(program.parameter)
        )
        return replace(
            program,
            digest=f"{program.digest}-{self.num_layers}-layers",
            parameters=tuple(parameters),
            segments=tuple(replace(segment, index=i) for i, segment in enumerate(segments)),
        )

    def _placed_parameter(self, spec: TensorSpec, name: str) -> TensorSpec:
        """Return a parameter under its new name; what it averages lies in a layer as deep."""
        own, new = (_part_of(self.prefix, each) for each in (spec.name, name))
        if own is None or new is None or not spec.average_of:
            return replace(spec, name=name)
        layer, rest = own
        other = spec.average_of.removesuffix(f".{layer}{rest}")
        average_of = spec.average_of if other == spec.average_of else f"{other}.{new[0]}{rest}"
        return replace(spec, name=name, average_of=average_of)

    def names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names of weights with those of all copies inserted, in the order of the model."""
        return tuple(new for new, _ in self._renamed(names))

    def _placed(self, segment: Segment, copy: int | None) -> Segment:
        """Return a segment with the names of the deepened program.

        ``copy`` is the new number of a segment of the middle layer, None for any other segment.
        """
        reader = self.number(segment.layer)

        def names(given: Iterable[str]) -> Iterable[str]:
            return (new for new, _ in self._renamed(given, reader, copy))

        (layer,) = names([segment.layer])
        stash = tuple(self._pieces(segment.stash, reader, copy))
        return replace(_with_names(segment, names), layer=layer, stash=stash)

    def _pieces(
        self, stash: Iterable[Stash], reader: int | None, copy: int | None
    ) -> Iterator[Stash]:
        """Yield the stash of a placed segment; a piece for the middle layer is repeated."""
        of_first = {piece.values[0]: piece for piece in stash}
        for new, old in self._renamed(of_first, reader, copy):
            values, number = of_first[old].values, self.number(new)
            if number is not None and self._is_repeated(old, reader):
                own = [value for value in values if self.number(value) == self._middle]
                names = [self.renumbered(value, number) for value in own]
            else:
                names = [name for name, _ in self._renamed(values, reader, copy)]
            yield replace(of_first[old], values=tuple(names))

    def _renamed(
        self, names: Iterable[str], reader: int | None = None, copy: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield (new name, captured name) of what a segment of layer ``reader`` reads.

        ``reader`` is None outside of the stack; ``copy`` is the new number of a middle layer.
        """

        def order(name: str) -> tuple[bool, bool]:
            return self._is_repeated(name, reader), "/backward/" in name

        # Adjacent names are repeated together: a2 b2 becomes a2 b2 a3 b3 a4 b4.
        for (repeated, is_backward), run in groupby(names, order):
            captured = list(run)
            if repeated:
                for number in self._copies("backward" if is_backward else "forward"):
                    yield from ((self.renumbered(name, number), name) for name in captured)
            else:
                for name in captured:
                    own = self._new_number(self.number(name), reader, copy)
                    yield (name if own is None else self.renumbered(name, own)), name

    def _new_number(self, number: int | None, reader: int | None, copy: int | None) -> int | None:
        """Return the new number of one layer that ``reader``, or copy ``copy`` of it, reads."""
        if number is None:
            return None
        if copy is not None and self._is_near(number):
            return copy + number - self._middle  # itself or a neighbour
        follows = number > self._middle
        is_last_copy = number == self._middle and reader == self._middle + 1
        return number + self.added if follows or is_last_copy else number

    def _copies(self, phase: Phase) -> range:
        """Return the numbers of the copies of the middle layer, in the order in which they run."""
        copies = range(self._middle, self._middle + self.added + 1)
        return copies if phase == "forward" else copies[::-1]

    def _is_repeated(self, name: str, reader: int | None) -> bool:
        """Return whether a reader reads every copy of what has a name."""
        return self.number(name) == self._middle and not self._is_near(reader)

    def _is_near(self, number: int | None) -> bool:
        """Return whether a unit is the middle one or a neighbour of it."""
        return number is not None and abs(number - self._middle) <= 1

    @property
    def _middle(self) -> int:
        """Number of the unit that is copied."""
        return self.captured // 2

    @property
    def added(self) -> int:
        """Units that the deepened program has more than the captured one."""
        return self.num_layers // self.period - self.captured

    def number(self, name: str) -> int | None:
        """Return 3 for ``decoder.3``, ``decoder.3.norm.weight`` and ``decoder.3/forward/0/1``.

        That is the number of the unit where layers take turns.
        """
        part = _part_of(self.prefix, name)
        return None if part is None else part[0] // self.period

    def renumbered(self, name: str, number: int) -> str:
        """Return the name of a layer's part with the number of its unit replaced."""
        part = _part_of(self.prefix, name)
        assert part is not None, "a name of the stack"
        layer, rest = part
        return f"{self.prefix}.{number * self.period + layer % self.period}{rest}"


@lru_cache(1 << 16)  # a captured program has few names, which every copy of a layer asks for
def _part_of(prefix: str, name: str) -> tuple[int, str] | None:
    """Return the layer that a name of a stack begins with, and the rest of it; None for another."""
    found = re.fullmatch(rf"{re.escape(prefix)}\.(\d+)((?:[./].*)?)", name, re.DOTALL)
    return (int(found[1]), found[2]) if found else None


def _with_names(segment: Segment, names: _Names) -> Segment:
    """Return a segment with the names of each of its fields replaced by ``names``."""
    return replace(
        segment,
        weights=tuple(names(segment.weights)),
        gradients=tuple(names(segment.gradients)),
        inputs=tuple(names(segment.inputs)),
        outputs=tuple(names(segment.outputs)),
        drops=tuple(names(segment.drops)),
        results=tuple((place, *names([name])) for place, name in segment.results),  # type: ignore[misc]
        stash=tuple(replace(piece, values=tuple(names(piece.values))) for piece in segment.stash),
    )
