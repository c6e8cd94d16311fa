"""The roles of a running workflow as a picture: servers, the tree of switches, systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from swarmx.topology import Tree
from waferstream.management.model.telemetry import Telemetry

WIDTH, ROW, BOX = 960.0, 64.0, 26.0
"""Of the picture, of a row of roles, and of a box."""

MOST_DRAWN = 64
"""Systems that are drawn; more would be lines without a gap."""


@dataclass(frozen=True)
class Role:
    """A box of the picture, with what the role does in words."""

    name: str
    kind: str  # server, switch or system
    x: float
    y: float
    width: float
    load: float  # 0 to 1
    text: str

    @property
    def middle(self) -> float:
        """The middle of the box."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Picture:
    """All boxes, and the lines between them as their ends."""

    roles: Sequence[Role]
    lines: Sequence[tuple[Role, Role]]
    height: float


def picture(telemetry: Telemetry) -> Picture | None:
    """Draw the roles that a workflow has told of; None where there are none, or too many."""
    loads = {each.labels[0]: each.value for each in telemetry.of("utilisation_ratio")}
    by_kind: Mapping[str, list[str]] = _by_kind(loads)
    systems, switches = by_kind["csx"], by_kind["br"]
    if not systems or len(systems) > MOST_DRAWN:
        return None
    tree = _tree(len(systems), len(switches))
    rows = [by_kind["wgt"]]
    rows += [
        [switch.name for switch in tree.switches if switch.level == level]
        for level in range(tree.depth)
    ]
    rows.append(systems)
    boxes = {box.name: box for y, row in enumerate(rows) for box in _row(row, y, loads, telemetry)}
    links = [(boxes[server], boxes["br-0"]) for server in rows[0]]
    links += [(boxes[each.name], boxes[child]) for each in tree.switches for child in each.children]
    return Picture(list(boxes.values()), links, ROW * len(rows) - ROW + BOX + 4)


def _tree(num_systems: int, num_switches: int) -> Tree:
    """Return the tree with so many switches, of the smallest fan-out that has them."""
    for fan_out in range(2, num_systems + 2):
        tree = Tree(num_systems, fan_out)
        if tree.num_switches == num_switches:
            return tree
    return Tree(num_systems, max(2, num_systems))


def _row(
    names: Sequence[str], y: int, loads: Mapping[str, float], telemetry: Telemetry
) -> Iterator[Role]:
    """Lay a row of roles out."""
    pitch = WIDTH / len(names)
    width = min(0.86 * pitch, 92.0)
    sent = {each.labels: each.value for each in telemetry.of("bandwidth_bytes_per_second")}
    for index, name in enumerate(names):
        load = loads.get(name, 0.0)
        down, up = (sent.get((name, way)) for way in ("down", "up"))
        words = [f"{name}: {load:.0%} of the emulated time in use"]
        words += [f"sends {down / 1e9:.3g} GB/s down"] if down else []
        words += [f"{up / 1e9:.3g} GB/s up"] if up else []
        x = pitch * (index + 0.5) - width / 2
        kind = {"wgt": "server", "br": "switch", "csx": "system"}[name.split("-")[0]]
        yield Role(name, kind, round(x, 1), y * ROW + 2, round(width, 1), load, ", ".join(words))


def _by_kind(names: Mapping[str, float]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: (len(name), name)):
        found[name.split("-")[0]].append(name)
    return found
