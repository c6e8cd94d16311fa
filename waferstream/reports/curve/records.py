"""The points of a curve as records: the numbers of a row, and the ranges that they may lie in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from waferstream.core.units import seconds
from waferstream.machine.intervals import Interval
from waferstream.reports.curve.result import CurvePoint, CurveResult, RefusedPoint
from waferstream.reports.economics import SECONDS_PER_DAY
from waferstream.reports.intervals import evidence_of
from waferstream.reports.records import Record, Value


def point_record(point: CurvePoint, batch_size: int) -> dict[str, Value]:
    """Return the numbers of a point by the names of their columns.

    ``_low`` and ``_high`` are the ends of the 90 % interval, ``_low_half`` and ``_high_half`` of
    the 50 % interval (docs/fidelity.md); they are None where the interval is unknown.

    Args:
        point: A point of a curve.
        batch_size: Samples of its step over all systems.
    """
    emulated, prediction = point.emulated, point.prediction
    record: dict[str, Value] = {
        "samples_per_step": batch_size,
        "micro_batch_samples": point.micro_batch_size,
        "weight_streams_per_step": None if prediction is None else prediction.num_rounds,
        "step_s": seconds(emulated.step_ps),
        **_with_range("samples_per_s", emulated.samples_per_s, point),
        "efficiency": point.efficiency,
        "evidence": evidence_of(point.interval),
    }
    if prediction is not None:
        record |= {
            **_with_range("tokens_per_s", prediction.tokens_per_s, point),
            "flops_per_s": prediction.flops_per_s,
            "of_peak": prediction.utilisation,
            "sram_peak_bytes": prediction.sram_peak_bytes,
            "recomputed_segments": prediction.recomputed_segments,
            "swarmx_nodes": prediction.swarmx_nodes,
        }
    shares = emulated.attribution_ps.shares()
    record |= {f"{cause}_share": share for cause, share in shares.items()}
    return record | _footprints(point)


def curve_records(result: CurveResult) -> Iterator[Record]:
    """Yield a record for each number of systems of a curve and of those beside it.

    A number on which the step cannot run has its reason instead of numbers.
    """
    for curve in (result, *result.others):
        by_count: dict[int, CurvePoint | RefusedPoint] = {p.num_csx: p for p in curve.points}
        by_count |= {refused.num_csx: refused for refused in curve.refused}
        for num_csx, point in sorted(by_count.items()):
            batch = curve.batch_size * (num_csx if curve.weak else 1)
            yield {
                "machine": curve.label,
                "scaling": "weak" if curve.weak else "strong",
                "num_csx": num_csx,
                **row_record(point, batch),
            }


def row_record(point: CurvePoint | RefusedPoint, batch_size: int) -> Record:
    """Return the record of a point, or of the reason why there is none."""
    if isinstance(point, RefusedPoint):
        return {"feasible": False, "reason": point.reason, "code": point.code}
    return {"feasible": True, "reason": None, "code": None, **point_record(point, batch_size)}


def _with_range(name: str, value: float | None, point: CurvePoint) -> Mapping[str, Value]:
    """Return a rate and the ends of its intervals."""
    low = high = low_half = high_half = None
    if value is not None and isinstance(point.interval, Interval):
        low, high = point.interval.around(value)
        low_half, high_half = point.interval.around(value, "half")
    return {
        name: value,
        f"{name}_low": low,
        f"{name}_high": high,
        f"{name}_low_half": low_half,
        f"{name}_high_half": high_half,
    }


def _footprints(point: CurvePoint) -> dict[str, Value]:
    """Return power, and what a million samples or tokens and the budget take, as far as known."""
    found: dict[str, Value] = {}
    if point.energy is not None:
        found["power_kw"] = point.energy.power_kw
        for unit in ("samples", "tokens"):
            million = getattr(point.energy, f"per_million_{unit}")
            if million is not None:
                found[f"kwh_per_million_{unit}"] = million.kwh
                found[f"kg_co2e_per_million_{unit}"] = million.kg_co2e
                found[f"usd_per_million_{unit}"] = million.usd
    if point.bill is not None:
        found["budget_tokens"] = point.bill.tokens
        found["training_days"] = point.bill.duration_s / SECONDS_PER_DAY
        found["training_system_hours"] = point.bill.system_hours
        found["training_kwh"] = point.bill.footprint.kwh
        found["training_kg_co2e"] = point.bill.footprint.kg_co2e
        found["training_usd"] = point.bill.footprint.usd
    return found
