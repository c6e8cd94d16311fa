"""Fits of the start of a job: which rows count, and what they give."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from validation.fit.start_up import fit_checkpoint, fit_compile, fit_initial_weights
from validation.rows.row import Row

Read = Callable[..., tuple[Row, ...]]

SET_UP = {"phase": "setup", "unit": "s"}


def test_fit_checkpoint_finds_the_bandwidth_of_each_kind_of_hosts(read: Read) -> None:
    """Checkpoints of 12 GB at 100 and 50 MB/s, after the start of each kind."""
    rows = [
        SET_UP | {"workload": "save checkpoint 1B", "value": str(value), "system": system}
        for value, system in ((14.6 + 120, "CS-2"), (4.6 + 240, "CS-3"))
    ]
    found = fit_checkpoint(read(*rows))
    assert found["HostsOfCS2.save_bandwidth_bytes_per_s"] == pytest.approx(100e6, rel=0.01)
    assert found["HostsOfCS3.save_bandwidth_bytes_per_s"] == pytest.approx(50e6, rel=0.01)


def test_fit_initial_weights_knows_that_earlier_releases_were_slower(read: Read) -> None:
    """What tensors took in release 2.0 does not count as bandwidth."""
    sent = {"workload": "send initial weights Llama2-7B", "system": "CS-2", "value": "87.2"}
    old, new = (
        fit_initial_weights(read(SET_UP | sent | {"software": software}))
        for software in ("R2.0.3", "R2.4")
    )
    name = "HostsOfCS2.send_bandwidth_bytes_per_s"
    assert old[name] > 1.1 * new[name]


def test_fit_compile_counts_the_sizes_tried(read: Read) -> None:
    """Ten seconds for each size and a microsecond for each element, on all hosts together."""
    shape = {"hidden": "100", "seq_len": "100", "workload": "compile a model (no cache)"}
    rows = [
        SET_UP | shape | {"global_batch": batch, "value": value, "system": system}
        for batch, value, system in (("32", "50.62", "CS-2"), ("97", "10.97", "CS-3"))
    ]
    found = fit_compile(read(*rows))
    assert found["HostsOfCS2.compile_size_ps"] == pytest.approx(10e12, rel=0.01)
    assert found["HostsOfCS2.compile_element_ps"] == pytest.approx(1e6, rel=0.01)


def test_fit_compile_is_not_led_by_one_row_that_fits_nothing(read: Read) -> None:
    """A log that took seven times as long as the others moves the constants by a few percent."""
    shape = {"hidden": "100", "seq_len": "100", "workload": "compile a model (no cache)"}
    values = (("32", "50.62"), ("64", "61.24"), ("128", "62.52"), ("97", "10.97"), ("89", "75"))
    rows = [
        SET_UP | shape | {"global_batch": batch, "value": value, "system": "CS-2"}
        for batch, value in values
    ]
    found = fit_compile(read(*rows))
    assert found["HostsOfCS2.compile_size_ps"] == pytest.approx(10e12, rel=0.1)
