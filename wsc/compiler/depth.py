"""The same step with more layers, from a capture with a few.

The layers of a transformer are alike, and capturing takes time for each of them. Five of them tell
of any number: the first two and the last two stay what they are, and the one between is put in as
often as is needed. What comes out is for the clock: its kernels are not there.

Values are called by the place where they are made, as weights are by their module, so that the
number of a layer can be replaced in all names alike. A layer may read what it makes itself, what
its neighbours, the first and the last layer make, and all that is made outside of the stack; who
else reads from the middle layer reads from every copy of it. Whether a step keeps to that is
checked, not assumed: with one layer more it must be what a capture with one layer more is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from wsc.core.program import Phase, Program, Segment

CAPTURED_LAYERS = 5

_FIRST, _MIDDLE, _LAST = 0, CAPTURED_LAYERS // 2, CAPTURED_LAYERS - 1
_NUMBERED = re.compile(r"(.+)\.\d+")  # "decoder.3", as layers are called

Shape = tuple[int, ...]
_Names = Callable[[Iterable[str]], Iterable[str]]


def named_by_place(program: Program) -> Program:
    """The same program, values called by their layer, phase and position there."""
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
            _renamed(segment, lambda given: (names.get(name, name) for name in given))
            for segment in program.segments
        ),
    )


def is_like(one: Program, other: Program) -> bool:
    """Whether two programs differ at most in their digests and in the names of values."""
    return replace(named_by_place(one), digest="") == replace(named_by_place(other), digest="")


@dataclass(frozen=True)
class Stack:
    """The layers of a program captured with CAPTURED_LAYERS of them, as ``num_layers`` layers.

    ``prefix`` is what their names begin with (``decoder`` of ``decoder.3``).
    """

    prefix: str
    num_layers: int

    @classmethod
    def of(cls, program: Program, num_layers: int) -> Stack:
        """Raises ValueError if the program has other layers than those of one stack."""
        layers = [found for s in program.segments if (found := _NUMBERED.fullmatch(s.layer))]
        prefixes = {found[1] for found in layers}
        if len(prefixes) != 1 or len({found[0] for found in layers}) != CAPTURED_LAYERS:
            raise ValueError(f"one stack of {CAPTURED_LAYERS} layers expected, not {prefixes}")
        return cls(prefixes.pop(), num_layers)

    @classmethod
    def checked(
        cls, program: Program, one_more: Program, num_layers: int, shapes: Mapping[str, Shape]
    ) -> Stack | None:
        """A stack whose layers are alike; None for layers that differ, or of several stacks.

        ``one_more`` is the program captured with one layer more, ``shapes`` are those of all
        parameters with ``num_layers`` of them.
        """
        try:
            stack = cls.of(program, num_layers)
        except ValueError:
            return None
        parameters = {spec.name: spec.shape for spec in stack.deepened(program).parameters}
        by_one = cls.of(program, CAPTURED_LAYERS + 1).deepened(program)
        return stack if parameters == shapes and is_like(by_one, one_more) else None

    def deepened(self, program: Program) -> Program:
        """The program with all layers, values called by their places."""
        segments: list[Segment] = []
        for is_middle, run in groupby(
            named_by_place(program).segments, lambda s: self._number(s.layer) == _MIDDLE
        ):
            alike = list(run)
            for at in self._copies(alike[0].phase) if is_middle else (None,):
                segments += [self._moved(segment, at) for segment in alike]
        shape_of = {new: program.parameter[old] for new, old in self._moves(program.parameter)}
        return replace(
            program,
            digest=f"{program.digest}-{self.num_layers}-layers",
            parameters=tuple(replace(spec, name=name) for name, spec in shape_of.items()),
            segments=tuple(replace(segment, index=i) for i, segment in enumerate(segments)),
        )

    def names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of weights in the order of the model, those of all layers put in."""
        return tuple(new for new, _ in self._moves(names))

    def _moved(self, segment: Segment, at: int | None) -> Segment:
        """A segment in its new place: ``at`` a layer if it is of the middle one."""
        reader = self._number(segment.layer)

        def names(given: Iterable[str]) -> Iterable[str]:
            return (new for new, _ in self._moves(given, reader, at))

        (layer,) = names([segment.layer])
        return replace(_renamed(segment, names), layer=layer)

    def _moves(
        self, names: Iterable[str], reader: int | None = None, at: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """New names with their old ones, in a segment of layer ``reader``, now layer ``at``."""

        def is_repeated(name: str) -> tuple[bool, bool]:
            repeated = self._number(name) == _MIDDLE and reader in {None, _FIRST, _LAST}
            return repeated, "/backward/" in name

        for (repeated, is_backward), run in groupby(names, is_repeated):
            old = list(run)
            if repeated:
                copies = self._copies("backward" if is_backward else "forward")
                yield from ((self._at(name, copy), name) for copy in copies for name in old)
            else:
                yield from ((self._at(n, self._seen(self._number(n), reader, at)), n) for n in old)

    def _seen(self, number: int | None, reader: int | None, at: int | None) -> int | None:
        """Where a single layer lies now that ``reader`` reads from."""
        if number is None:
            return None
        if at is not None and number not in {_FIRST, _LAST}:
            return at + number - _MIDDLE
        is_late = number > _MIDDLE or (number == _MIDDLE and reader == _MIDDLE + 1)
        return number + self._added if is_late else number

    def _copies(self, phase: Phase) -> range:
        """The layers that are the middle one, in the order in which they run."""
        copies = range(_MIDDLE, _MIDDLE + self._added + 1)
        return copies if phase == "forward" else copies[::-1]

    @property
    def _added(self) -> int:
        return self.num_layers - CAPTURED_LAYERS

    def _number(self, name: str) -> int | None:
        found = re.match(rf"{re.escape(self.prefix)}\.(\d+)(?![^./])", name)
        return int(found[1]) if found else None

    def _at(self, name: str, number: int | None) -> str:
        if number is None:
            return name
        return re.sub(r"\.\d+", f".{number}", name, count=1)


def _renamed(segment: Segment, names: _Names) -> Segment:
    """A segment with all names of values and weights replaced, those of one at a time."""
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
