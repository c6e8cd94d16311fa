"""Derive a program with many layers from a program captured with five.

The layers of a transformer are equal, and capturing takes time for each of them. A program captured
with layers 0 to 4 is deepened by replicating the middle layer 2. With 7 layers:

    captured    0   1   2           3   4
                |   |   |           |   |
    deepened    0   1   2   3   4   5   6
                        copies of 2

Values are first named by the layer that makes them (``decoder.2/forward/0/1``), as weights are
named by their module (``decoder.2.norm.weight``), so that the number in a name tells which layer it
belongs to. A copied segment then renames what it reads by the following rules (7 layers):

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
made outside of the stack. ``Stack.checked`` verifies the assumption: deepening to six layers must
give the program that a capture with six layers gives.

The result has no kernels: it is for timing and memory, not for execution.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from waferstream.core.program.program import Program
from waferstream.core.program.segment import Phase, Segment

CAPTURED_LAYERS = 5
"""Layers of a capture that is deepened: first, second, middle, second last, last."""

MIDDLE = CAPTURED_LAYERS // 2
"""Number of the layer that is copied."""

_FIRST, _LAST = 0, CAPTURED_LAYERS - 1
_NUMBERED = re.compile(r"(.+)\.\d+")  # the name of a layer: "decoder.3"

Shape = tuple[int, ...]
_Names = Callable[[Iterable[str]], Iterable[str]]


def named_by_place(program: Program) -> Program:
    """Return the program with values named ``layer/phase/visit/position``.

    ``visit`` counts the segments of one layer and phase, ``position`` the values of a segment.
    """
    names: dict[str, str] = {}
    visits: Counter[tuple[str, Phase]] = Counter()
    for segment in program.segments:
        visit = visits[segment.layer, segment.phase]
        visits[segment.layer, segment.phase] += 1
        made = dict.fromkeys((*segment.outputs, *(name for _, name in segment.results)))
        for position, name in enumerate(name for name in made if name not in segment.inputs):
            names[name] = f"{segment.layer}/{segment.phase}/{visit}/{position}"
    return replace(
        program,
        segments=tuple(
            _with_names(segment, lambda given: (names.get(name, name) for name in given))
            for segment in program.segments
        ),
    )


def is_like(one: Program, other: Program) -> bool:
    """Return whether two programs are equal up to their digests and the names of values."""
    return replace(named_by_place(one), digest="") == replace(named_by_place(other), digest="")


@dataclass(frozen=True)
class Stack:
    """Equal layers ``prefix.0``, ``prefix.1``, ... of a program, replicated to ``num_layers``."""

    prefix: str
    num_layers: int

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

    @classmethod
    def checked(
        cls, program: Program, one_more: Program, num_layers: int, shapes: Mapping[str, Shape]
    ) -> Stack | None:
        """Return the stack of a program, or None if its layers differ or it has several stacks.

        Args:
            program: Captured with CAPTURED_LAYERS layers.
            one_more: Captured with one layer more.
            num_layers: Layers of the deepened program.
            shapes: Shapes of all parameters of the model with ``num_layers`` layers.
        """
        try:
            stack = cls.of(program, num_layers)
        except ValueError:
            return None
        parameters = {spec.name: spec.shape for spec in stack.deepened(program).parameters}
        by_one = cls.of(program, CAPTURED_LAYERS + 1).deepened(program)
        return stack if parameters == shapes and is_like(by_one, one_more) else None

    def deepened(self, program: Program) -> Program:
        """Return the program with ``num_layers`` layers, with values named by position."""
        segments: list[Segment] = []
        for is_middle, run in groupby(
            named_by_place(program).segments, lambda s: self.number(s.layer) == MIDDLE
        ):
            # The segments of one pass through the middle layer are copied together.
            captured = list(run)
            for copy in self._copies(captured[0].phase) if is_middle else (None,):
                segments += [self._placed(segment, copy) for segment in captured]
        shape_of = {new: program.parameter[old] for new, old in self._renamed(program.parameter)}
        return replace(
            program,
            digest=f"{program.digest}-{self.num_layers}-layers",
            parameters=tuple(replace(spec, name=name) for name, spec in shape_of.items()),
            segments=tuple(replace(segment, index=i) for i, segment in enumerate(segments)),
        )

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
        return replace(_with_names(segment, names), layer=layer)

    def _renamed(
        self, names: Iterable[str], reader: int | None = None, copy: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield (new name, captured name) of what a segment of layer ``reader`` reads.

        ``reader`` is None outside of the stack; ``copy`` is the new number of a middle layer.
        """

        def is_repeated(name: str) -> tuple[bool, bool]:
            repeated = self.number(name) == MIDDLE and reader in {None, _FIRST, _LAST}
            return repeated, "/backward/" in name

        # Adjacent names are repeated together: a2 b2 becomes a2 b2 a3 b3 a4 b4.
        for (repeated, is_backward), run in groupby(names, is_repeated):
            captured = list(run)
            if repeated:
                for number in self._copies("backward" if is_backward else "forward"):
                    yield from ((with_number(name, number), name) for name in captured)
            else:
                for name in captured:
                    own = self._new_number(self.number(name), reader, copy)
                    yield (name if own is None else with_number(name, own)), name

    def _new_number(self, number: int | None, reader: int | None, copy: int | None) -> int | None:
        """Return the new number of one layer that ``reader``, or copy ``copy`` of it, reads."""
        if number is None:
            return None
        if copy is not None and number not in {_FIRST, _LAST}:
            return copy + number - MIDDLE  # itself or a neighbour
        follows = number > MIDDLE
        is_last_copy = number == MIDDLE and reader == MIDDLE + 1
        return number + self._added if follows or is_last_copy else number

    def _copies(self, phase: Phase) -> range:
        """Return the numbers of the copies of the middle layer, in the order in which they run."""
        copies = range(MIDDLE, MIDDLE + self._added + 1)
        return copies if phase == "forward" else copies[::-1]

    @property
    def _added(self) -> int:
        """Layers that the deepened program has more than the captured one."""
        return self.num_layers - CAPTURED_LAYERS

    def number(self, name: str) -> int | None:
        """Return 3 for ``decoder.3``, ``decoder.3.norm.weight`` and ``decoder.3/forward/0/1``."""
        found = re.match(rf"{re.escape(self.prefix)}\.(\d+)(?![^./])", name)
        return int(found[1]) if found else None


def with_number(name: str, number: int) -> str:
    """Return the name with its first number, that of its layer, replaced."""
    return re.sub(r"\.\d+", f".{number}", name, count=1)


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
