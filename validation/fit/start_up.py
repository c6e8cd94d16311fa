"""Fit the hosts of the start of a job: compiling, sending initial weights, saving checkpoints.

Constants of hosts of CS-2 clusters hold for those of CS-3 clusters where these state none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from validation.families.start_up import compiled, release_changes, saved_bytes, sent
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.core.units import seconds
from waferstream.machine.hardware import HostSpec
from waferstream.machine.hardware.hosts import HOSTS, PRESETS
from waferstream.machine.start_up import checkpoint_ps, compile_ps, initial_weights_ps

_HOLDERS = dict(zip(HOSTS, PRESETS, strict=True))
"""Preset of the hosts by the name of their systems."""


def fit_compile(rows: Sequence[Row]) -> Constants:
    """Fit the time to try a size, and that of each element, to all hosts together."""
    names = ("HostsOfCS2.compile_size_ps", "HostsOfCS2.compile_element_ps")
    return _fitted(rows, names, _predict_compile)


def fit_initial_weights(rows: Sequence[Row]) -> Constants:
    """Fit how fast weights are sent, on each kind of hosts."""
    names = [f"{holder}.send_bandwidth_bytes_per_s" for holder in PRESETS]
    return _fitted(rows, names, _predict_initial_weights)


def fit_checkpoint(rows: Sequence[Row]) -> Constants:
    """Fit how fast checkpoints are written, on each kind of hosts."""
    names = [f"{holder}.save_bandwidth_bytes_per_s" for holder in PRESETS]
    return _fitted(rows, names, _predict_checkpoint)


def _fitted(
    rows: Sequence[Row], names: Sequence[str], predict_s: Callable[[Row, Constants], float]
) -> Constants:
    """Return the named constants that meet the rows; one slow log does not lead them."""
    specs = {_HOLDERS[system]: hosts for system, hosts in HOSTS.items()}
    parts = [name.partition(".") for name in names]
    now = {f"{holder}.{key}": float(getattr(specs[holder], key)) for holder, _, key in parts}
    return least_squares(
        lambda constants: [predict_s(row, constants) / float(row.value) - 1 for row in rows],
        now,
        loss="soft_l1",
    )


def _predict_compile(row: Row, constants: Constants) -> float:
    asked = compiled(row)
    return seconds(compile_ps(_hosts(row, constants), asked.sizes, asked.elements))


def _predict_initial_weights(row: Row, constants: Constants) -> float:
    return seconds(initial_weights_ps(_hosts(row, constants), *sent(row)))


def _predict_checkpoint(row: Row, constants: Constants) -> float:
    return seconds(checkpoint_ps(_hosts(row, constants), saved_bytes(row)))


def _hosts(row: Row, constants: Constants) -> HostSpec:
    """Return the hosts of a row with other constants."""
    system = row.text("system")[:4]
    holder = _HOLDERS[system]
    changed = {}
    for name, value in constants.items():
        owner, _, key = name.partition(".")
        if owner == holder or key not in PRESETS[holder].stated:
            changed[key] = round(value)
    hosts = HOSTS[system].model_copy(update=changed)
    return hosts.model_copy(update=release_changes(row, hosts))


FITS: tuple[Fit, ...] = (
    Fit("start-up compile", fit_compile, _predict_compile),
    Fit("start-up initial weights", fit_initial_weights, _predict_initial_weights),
    Fit("start-up checkpoint", fit_checkpoint, _predict_checkpoint),
)
