"""Draw sequence diagrams as SVG, so that the site needs no script from a network.

The source is the part of Mermaid's sequence diagrams that the documents use, which code hosts draw,
too: ``participant A as name``, ``A->>B: text``, ``A-->>B: text`` (dashed), ``loop text``, ``end``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

_PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?$")
_MESSAGE = re.compile(r"(\w+)(--?)>>(\w+): (.+)$")
_WIDTH, _LEFT, _TOP, _ROW = 124.0, 62.0, 58.0, 36.0
_LINE_LETTERS = 15  # of a name in its box


@dataclass(frozen=True)
class _Message:
    sender: str
    receiver: str
    text: str
    is_dashed: bool
    y: float


@dataclass
class _Diagram:
    names: dict[str, str] = field(default_factory=dict)
    messages: list[_Message] = field(default_factory=list)
    loops: list[tuple[str, float, float]] = field(default_factory=list)
    end: float = _TOP

    def x(self, participant: str) -> float:
        return _LEFT + _WIDTH * list(self.names).index(participant)


def sequence_svg(source: str) -> str:
    """Return the drawing of a sequence diagram.

    Raises:
        ValueError: A line is none of those above, or names an unknown participant.
    """
    diagram = _parsed(source)
    width = 2 * _LEFT + _WIDTH * (len(diagram.names) - 1)
    height = diagram.end + 12
    parts = [
        f'<svg class="sequence" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="Sequence diagram">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path d="M0,0 8,4 0,8z"/></marker></defs>',
        *(_loop(text, top, bottom, width) for text, top, bottom in diagram.loops),
        *(_life_line(diagram, key, name) for key, name in diagram.names.items()),
        *(_arrow(diagram, message) for message in diagram.messages),
        "</svg>",
    ]
    return "".join(parts)


def _parsed(source: str) -> _Diagram:
    diagram, open_loops = _Diagram(), []
    for line in filter(None, map(str.strip, source.splitlines())):
        if line == "sequenceDiagram":
            continue
        if found := _PARTICIPANT.match(line):
            diagram.names[found[1]] = found[2] or found[1]
        elif found := _MESSAGE.match(line):
            if unknown := {found[1], found[3]} - diagram.names.keys():
                raise ValueError(f"no participant {sorted(unknown)[0]} in {line!r}")
            diagram.end += _ROW
            dashed = found[2] == "--"
            diagram.messages.append(_Message(found[1], found[3], found[4], dashed, diagram.end))
        elif line.startswith("loop "):
            open_loops.append((line.removeprefix("loop "), diagram.end + 8))
            diagram.end += 22
        elif line == "end" and open_loops:
            diagram.end += 12
            diagram.loops.append((*open_loops.pop(), diagram.end))
        else:
            raise ValueError(f"not a line of a sequence diagram: {line!r}")
    return diagram


def _life_line(diagram: _Diagram, key: str, name: str) -> str:
    x = diagram.x(key)
    first, _, second = name.partition(" (") if len(name) > _LINE_LETTERS else (name, "", "")
    lines = [first, f"({second}"] if second else [first]
    words = "".join(
        f'<text x="{x:g}" y="{20 + 16 * row:g}" text-anchor="middle">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return (
        f'<line class="life" x1="{x:g}" y1="46" x2="{x:g}" y2="{diagram.end + 8:g}"/>'
        f'<rect class="who" x="{x - 57:g}" y="2" width="114" height="42" rx="4"/>{words}'
    )


def _arrow(diagram: _Diagram, message: _Message) -> str:
    start, end, y = diagram.x(message.sender), diagram.x(message.receiver), message.y
    style = ' stroke-dasharray="5 4"' if message.is_dashed else ""
    if start == end:
        path = f"M{start:g},{y - 10:g} h26 v12 h-22"
        at, anchor = start + 32, "start"
    else:
        path = f"M{start:g},{y:g} L{end:g},{y:g}"
        at, anchor = (start + end) / 2, "middle"
    text = f'<text x="{at:g}" y="{y - 6 if start != end else y:g}" text-anchor="{anchor}">'
    return (
        f'<path class="message" d="{path}" marker-end="url(#arrow)"{style}/>'
        f"{text}{escape(message.text)}</text>"
    )


def _loop(text: str, top: float, bottom: float, width: float) -> str:
    return (
        f'<rect class="loop" x="4" y="{top:g}" width="{width - 8:g}" height="{bottom - top:g}" '
        f'rx="4"/><text class="loop" x="12" y="{top + 16:g}">{escape(text)}</text>'
    )
