"""Fits of the start of a job: which rows count."""

from __future__ import annotations

from collections.abc import Callable

from validation.fit.start_up import fit_checkpoint, fit_initial_weights
from validation.rows.row import Row

Read = Callable[..., tuple[Row, ...]]


def test_fit_checkpoint_averages_several_rows(read: Read) -> None:
    """Two checkpoints at 100 and 50 MB/s per byte of state give a bandwidth between."""
    saved = {"workload": "save checkpoint 1B", "phase": "setup", "unit": "s", "system": "CS-3"}
    (bandwidth,) = fit_checkpoint(read(saved | {"value": "120"}, saved | {"value": "240"})).values()
    assert 50e6 < bandwidth < 100e6


def test_fit_initial_weights_ignores_release_1(read: Read) -> None:
    """Rows of release 1 do not change the rate of later software."""
    sent = {"phase": "setup", "unit": "s"}
    old = {"workload": "send initial weights GPT-J 6B (R1.7)", "value": "129", "system": "CS-2"}
    new = {"workload": "send initial weights Llama2-7B", "value": "13.2", "system": "CS-3"}
    first, second = read(sent | old, sent | new)
    assert fit_initial_weights([first, second]) == fit_initial_weights([second])
