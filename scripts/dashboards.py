"""Write Grafana's dashboards *ML User* and *ML Admin*: ``python -m scripts.dashboards``.

They read what ``GET /metrics`` of a management says (waferstream/management/model/telemetry.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh, VariableSort

DEPLOY = Path(__file__).resolve().parents[1] / "deploy" / "grafana"

_SOURCE = DataSourceRef("prometheus", "${source}")
_Built = timeseries.Panel | stat.Panel | statetimeline.Panel
_KINDS: Mapping[str, Callable[[], _Built]] = {
    "lines": timeseries.Panel,
    "number": stat.Panel,
    "states": statetimeline.Panel,
}
_MINE = 'workflow="$workflow"'


@dataclass(frozen=True)
class Panel:
    """A panel: its title, unit, expressions with the names of their curves, and how it looks.

    ``width`` counts of 24 columns.
    """

    title: str
    unit: str
    queries: Mapping[str, str]  # expressions by legend
    kind: str = "lines"
    width: int = 12
    stacked: bool = False


Rows = Mapping[str, Sequence[Panel]]
"""The panels of a dashboard by the title of their row."""


def _of(metric: str, labels: str = _MINE) -> str:
    return f"waferstream_{metric}{{{labels}}}"


def _rate(metric: str, labels: str) -> str:
    return f"rate(waferstream_{metric}{{{labels}}}[$__rate_interval])"


def _shares(labels: str) -> str:
    """Return the expression of the share of each cause in the emulated time."""
    seconds = _rate("role_seconds_total", labels)
    return f"sum by (cause) ({seconds}) / ignoring(cause) group_left sum({seconds})"


def _roles(labels: str) -> Sequence[Panel]:
    """Return the panels of roles, of which one or several are looked at."""
    return (
        Panel("Utilisation", "percentunit", {"{{role}}": _of("utilisation_ratio", labels)}),
        Panel(
            "Bandwidth",
            "Bps",
            {"{{role}} {{direction}}": _of("bandwidth_bytes_per_second", labels)},
        ),
    )


_ONE = f'{_MINE}, role="$role"'

ML_USER: Rows = {
    "Training": (
        Panel("Step", "none", {"done": _of("step"), "last": _of("last_step")}, "number", 6),
        Panel("Power", "watt", {"systems": f"sum({_of('power_watts')})"}, "number", 6),
        Panel("Energy", "joule", {"so far": _of("energy_joules_total")}, "number", 6),
        Panel("Time per step", "s", {"emulated": f"max({_of('iteration_seconds')})"}, "number", 6),
        Panel("Loss", "none", {"loss": _of("loss")}),
        Panel(
            "Samples per second",
            "none",
            {
                "emulated machine": _of("emulated_samples_per_second"),
                "this host": _of("measured_samples_per_second"),
            },
        ),
    ),
    "Where the emulated time goes": (
        Panel("Share by cause", "percentunit", {"{{cause}}": _shares(_MINE)}, stacked=True),
        Panel(
            "Stalls",
            "percentunit",
            {"{{cause}}": _shares(_MINE).replace(_MINE, f'{_MINE}, cause!="compute"')},
        ),
    ),
    "MemoryX": (
        Panel("Iteration time", "s", {"{{role}}": _of("iteration_seconds")}, width=8),
        Panel("Cross-iteration time", "s", {"{{role}}": _of("cross_iteration_seconds")}, width=8),
        Panel("Backward iteration", "s", {"{{role}}": _of("backward_iteration_seconds")}, width=8),
    ),
    "All roles": _roles(_MINE),
    "Role $role": _roles(_ONE),
}

ML_ADMIN: Rows = {
    "Queue": (
        Panel("Waiting", "none", {"{{priority}}": "waferstream_queued_workflows"}, stacked=True),
        Panel("Running", "none", {"{{priority}}": "waferstream_running_workflows"}, stacked=True),
        Panel("Longest wait", "s", {"queued": "waferstream_longest_wait_seconds"}, "number", 6),
        Panel(
            "Starts inside their interval",
            "percentunit",
            {"starts": "waferstream_expected_start_inside_ratio"},
            "number",
            6,
        ),
        Panel("Error of expected start", "s", {"mean": "waferstream_expected_start_error_seconds"}),
    ),
    "Systems": (
        Panel("Systems by state", "none", {"{{state}}": "waferstream_systems"}, stacked=True),
        Panel("MemoryX groups by state", "none", {"{{state}}": "waferstream_groups"}, stacked=True),
        Panel("Occupancy", "none", {"{{system}}": "waferstream_system_busy"}, "states", 24),
        Panel("Power", "watt", {"{{workflow}}": "sum by (workflow) (waferstream_power_watts)"}),
        Panel(
            "Utilisation of systems",
            "percentunit",
            {"{{workflow}}": 'avg by (workflow) (waferstream_utilisation_ratio{role=~"csx-.*"})'},
        ),
    ),
    "Management": (
        Panel(
            "Time of a decision",
            "s",
            {"{{quantile}}": "waferstream_decision_seconds"},
            width=8,
        ),
        Panel(
            "Decisions",
            "cps",
            {"decisions": "rate(waferstream_decisions_total[$__rate_interval])"},
            width=8,
        ),
        Panel(
            "Events", "cps", {"events": "rate(waferstream_events_total[$__rate_interval])"}, width=8
        ),
    ),
}

DASHBOARDS = {"ml_user": ("ML User", ML_USER), "ml_admin": ("ML Admin", ML_ADMIN)}
"""Title and rows of each dashboard by the name of its file."""


def texts() -> Iterator[tuple[str, str]]:
    """Return the name of each file, and its JSON."""
    for name, (title, rows) in DASHBOARDS.items():
        board = _dashboard(name, title, rows).build()
        yield f"{name}.json", JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"


def _dashboard(name: str, title: str, rows: Rows) -> build.Dashboard:
    board = build.Dashboard(title).uid(f"waferstream-{name}").tags(["waferstream"])
    board.time("now-1h", "now").refresh("10s").readonly()
    board.with_variable(build.DatasourceVariable("source").type("prometheus").label("Source"))
    if rows is ML_USER:
        board.with_variable(_choice("workflow", "label_values(waferstream_step, workflow)"))
        roles = f"label_values({_of('utilisation_ratio')}, role)"
        board.with_variable(_choice("role", roles))
    numbers = count(1)
    for head, panels in rows.items():
        board.with_row(build.Row(head).id(next(numbers)))
        for panel in panels:
            board.with_panel(_panel(panel).id(next(numbers)))
    return board


def _choice(name: str, query: str) -> build.QueryVariable:
    """Return a variable of which a user chooses one value."""
    variable = build.QueryVariable(name).label(name.capitalize()).query(query).datasource(_SOURCE)
    variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.sort(VariableSort.ALPHABETICAL_ASC)


def _panel(panel: Panel) -> _Built:
    built = _KINDS[panel.kind]().title(panel.title).unit(panel.unit).datasource(_SOURCE)
    built.span(panel.width).height(4 if panel.kind == "number" else 8)
    if panel.stacked and isinstance(built, timeseries.Panel):
        built.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    for name, (legend, expression) in zip(ascii_uppercase, panel.queries.items(), strict=False):
        built.with_target(Dataquery().ref_id(name).expr(expression).legend_format(legend))
    return built


def main(words: Sequence[str]) -> int:
    """Write the dashboards."""
    parser = argparse.ArgumentParser(prog="python -m scripts.dashboards")
    parser.add_argument("--out", type=Path, default=DEPLOY, help="folder of the dashboards")
    folder = parser.parse_args(words).out
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts():
        (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
