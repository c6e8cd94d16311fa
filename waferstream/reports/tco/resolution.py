"""All assumptions of a comparison by key, those of the file before those of simulation and presets.

Keys are dotted: ``people.hour_usd``, and ``H100.set_up_h`` for a machine of that name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swarmx.topology import swarmx_nodes
from waferstream.baselines.gpu.power import PRESETS as GPU_POWER
from waferstream.baselines.gpu.power import NodePowerSpec, node_power
from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.config_errors import unreadable
from waferstream.core.errors import ConfigError
from waferstream.machine.energy import cluster_draw
from waferstream.machine.hardware import MachineSpec
from waferstream.reports.tco.comparison import SECTIONS, Comparison, MachineChoice
from waferstream.reports.tco.estimates import Estimate

GPUS_PER_NODE = 8

_SYSTEM: Mapping[str, Estimate] = {
    "hour_usd": Estimate(
        value=53.5,
        low=38.8,
        high=85.6,
        source="Andromeda, 30 M USD for 16 over four years; 1.36 to 3 M USD a system (S-1, press)",
    ),
    "set_up_h": Estimate(value=80, low=16, high=400, source="assumed: two weeks of one person"),
    "care_h": Estimate(value=4, low=1, high=20, source="assumed"),
    "lost_share": Estimate(value=0.05, low=0.01, high=0.15, source="assumed"),
}
_GPU: Mapping[str, Estimate] = {
    "set_up_h": Estimate(
        value=480, low=40, high=4000, source="assumed: three people for a month; the vendor of the "
        "CS says months of dozens of people",
    ),
    "care_h": Estimate(value=16, low=2, high=80, source="assumed"),
    "lost_share": Estimate(
        value=0.1, low=0.03, high=0.2, source="arXiv 2407.21783: more than 90 % effective training "
        "time on 16,384 H100",
    ),
}  # fmt: skip
_RATE_FACTOR = 1.2  # assumed, of a simulated rate without an interval


def load_comparison(path: Path) -> Comparison:
    """Read the file of a comparison; its simulation lies beside it.

    Raises:
        ConfigError: A key is wrong.
    """
    comparison = validate(Comparison, load_yaml(path), str(path))
    if comparison.simulation is None:
        return comparison
    return comparison.model_copy(update={"simulation": path.parent / comparison.simulation})


def assumptions_of(
    comparison: Comparison, simulated: Mapping[str, Any] | None = None
) -> dict[str, Estimate]:
    """Return every assumption by its key.

    Args:
        comparison: The project and its machines.
        simulated: The simulation of the model, as the plain data of its file; None for the file
            that the comparison names, if any.

    Raises:
        ConfigError: A machine has no rate: none is stated, and the simulation lacks it.
    """
    found: dict[str, Estimate] = {}
    for name in SECTIONS:
        section: Config = getattr(comparison, name)
        found |= {f"{name}.{key}": getattr(section, key) for key in type(section).model_fields}
    found["currency.usd"] = comparison.currency.rate
    if comparison.simulation is not None:
        simulated = _read(comparison.simulation)
    for machine in comparison.machines:
        stated = {key: one for key, one in vars(machine).items() if isinstance(one, Estimate)}
        defaults = _defaults(machine, simulated, stated)
        found |= {f"{machine.name}.{key}": one for key, one in (defaults | stated).items()}
    return found


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data: Mapping[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise ConfigError(
            "a simulation must be JSON", code="simulation-not-json", where=str(path), value=error
        ) from error
    return data


def _defaults(
    machine: MachineChoice, simulated: Mapping[str, Any] | None, stated: Mapping[str, Estimate]
) -> dict[str, Estimate]:
    """Return the assumptions on a machine that are not stated."""
    found = dict(_SYSTEM if machine.system else _GPU)
    points = [] if simulated is None else _points(machine, simulated)
    if points:
        best = max(points, key=lambda point: point["tokens_per_s"])
        found["tokens_per_s"] = _simulated_rate(best)
    elif "tokens_per_s" not in stated:
        raise ConfigError(
            f"the rate of {machine.name} is not known",
            code="machine-without-rate",
            where=f"machines, {machine.name}",
            value=machine.count,
            rule="tokens_per_s, or a simulation with this machine at this count",
            remedy=f"simulate with --sweep {machine.count}, or state tokens_per_s",
        )
    kw, source = _power(machine, points)
    found["computers_kw"] = Estimate(value=kw, low=0.9 * kw, high=1.2 * kw, source=source)
    if machine.gpu is not None:
        usd = _node(machine).node_hour_usd / GPUS_PER_NODE
        found["hour_usd"] = Estimate(
            value=usd, low=0.8 * usd, high=3 * usd,
            source="price of a node over four years (waferstream.baselines.gpu.power); "
            "hired ones cost up to three times as much",
        )  # fmt: skip
    return found


def _simulated_rate(point: Mapping[str, Any]) -> Estimate:
    """Return the rate of a point in the interval that holds nine of ten measured ones."""
    rate, interval = point["tokens_per_s"], point.get("interval") or {}
    factor = interval.get("nine_tenths", _RATE_FACTOR)
    source = "simulated, its interval of 90 %" if "nine_tenths" in interval else "simulated"
    if beyond := point.get("extrapolated"):
        source = f"{source}; extrapolated: {beyond}"
    return Estimate(value=rate, low=rate / factor, high=rate * factor, source=source)


def _points(machine: MachineChoice, simulated: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return rate, and power where it is known, of a machine at the points that read tokens."""
    try:
        return [one for one in _all_points(machine, simulated) if one["tokens_per_s"] is not None]
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            "the file must hold a simulation",
            code="not-a-simulation",
            where=f"simulation, for {machine.name}",
            rule="simulation.json as `run.py --simulate` writes it",
        ) from error


def _all_points(
    machine: MachineChoice, simulated: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    if machine.gpu is not None:
        curves = (simulated.get("gpus") or {}).get("curves", ())
        of_gpu = (curve for curve in curves if curve["gpu"].split("-")[0] == machine.gpu)
        for curve in of_gpu:
            yield from (p for p in _gpu_points(curve) if p["gpus"] == machine.count and p["step"])
        return
    for curve in (simulated, *simulated["others"]):
        for point in curve["points"]:
            is_asked = curve["system"] == machine.system and point["num_csx"] == machine.count
            if is_asked and point["prediction"] is not None:
                known = {"draw": point["energy"]["draw"], "interval": point.get("interval")}
                yield {**point["prediction"], **known}


def _gpu_points(curve: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the points of a curve of GPUs with their intervals, and how they are extrapolated."""
    for index, point in enumerate(curve["points"]):
        yield {
            **point,
            "interval": curve["intervals"][index],
            "extrapolated": curve["extrapolated"][index],
        }


def _power(machine: MachineChoice, points: list[Mapping[str, Any]]) -> tuple[float, str]:
    """Return the power of a machine without cooling, and where it comes from."""
    if machine.gpu is not None:
        node, nodes = _node(machine), machine.count / GPUS_PER_NODE
        network_kw = node.network_kw if nodes > 1 else 0.0
        return nodes * (node.node_kw + network_kw), "76 % of the rated power (arXiv 2506.14551)"
    if points:
        draw = points[0]["draw"]
        return sum(draw.values()) - draw["cooling_kw"], "simulated (machine.power)"
    spec = MachineSpec.model_validate({"system": machine.system})
    nodes = swarmx_nodes(spec.swarmx, machine.count)
    busy = cluster_draw(spec, machine.count, nodes, compute_share=1.0)
    return busy.total_kw - busy.cooling_kw, "systems under load, and hosts (machine.power)"


def _node(machine: MachineChoice) -> NodePowerSpec:
    if machine.gpu is None or machine.gpu not in GPU_POWER:
        raise ConfigError(
            "a GPU must be one whose power is known",
            code="unknown-gpu",
            where=f"machines, {machine.name}",
            value=machine.gpu,
            rule=" or ".join(GPU_POWER),
        )
    return node_power(machine.gpu)
