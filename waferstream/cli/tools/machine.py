"""``waferstream machine``: systems and clusters that people name, with their published figures."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import prints_json, show
from waferstream.machine.published import Comparison, comparisons, machine_named, published_names


@command("machine list")
def list_machines() -> int:
    """List the systems and clusters that have a name."""
    machines = {name: machine_named(name) for name in published_names()}
    return show(
        [
            {
                "NAME": name,
                "SYSTEMS": machine.systems or 1,
                "KIND": machine.system.name,
                "DRAM": _amount(machine.memoryx.dram_bytes / 1e12, "TB"),
                "FLASH": _amount(machine.memoryx.flash_bytes / 1e12, "TB"),
            }
            for name, machine in machines.items()
        ]
    )


@command("machine show", "condor-galaxy-1")
def show_machine(
    name: Annotated[str, Argument(help="a system or a cluster, such as CS-3 or condor-galaxy-1")],
) -> int:
    """Print what was published of one, and what it is here."""
    found = comparisons(name)
    return show([_row(each) if prints_json() else _cells(each) for each in found])


def _row(compared: Comparison) -> dict[str, object]:
    figure = compared.figure
    return {
        "figure": figure.what,
        "value": figure.value,
        "unit": figure.unit,
        "on_the_clock": compared.on_the_clock,
        "status": figure.status,
        "source": figure.source,
        "note": figure.note,
        "contradicted_by": [f"{other.value:g} {other.unit}".strip() for other in compared.others],
    }


def _cells(compared: Comparison) -> dict[str, str]:
    """Return a line of the table; what the clock does not have stays empty."""
    figure, clock = compared.figure, compared.on_the_clock
    others = ", ".join(_amount(other.value, other.unit) for other in compared.others)
    notes = [figure.note, f"another source: {others}" if others else ""]
    return {
        "FIGURE": figure.what,
        "PUBLISHED": _amount(figure.value, figure.unit),
        "ON THE CLOCK": "" if clock is None else _amount(clock, figure.unit),
        "STATUS": figure.status,
        "SOURCE": figure.source,
        "NOTE": "; ".join(filter(None, notes)),
    }


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".strip() if value >= 1000 else f"{value:.4g} {unit}".strip()
