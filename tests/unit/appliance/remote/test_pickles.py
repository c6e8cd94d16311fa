"""Commands may be code, results are data of known classes."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from appliance.coordinator.step_results import StepResult
from appliance.remote.pickles import command_from, pickled, result_from
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCorruptionError, ConfigError
from waferstream.core.roles.activities import Interval, Place
from waferstream.machine.record import Record
from waferstream.machine.trace import Activities


def test_tensors_and_arrays_arrive_beside_the_pickle() -> None:
    values: dict[str, Any] = {
        "large": torch.randn(3000),
        "half": torch.randn(4, 2).bfloat16().T,
        "empty": torch.empty(0, 2),
        "scalar": torch.tensor(3),
        "array": np.arange(6.0).reshape(2, 3),
    }
    buffers = pickled(values)
    found = result_from([bytes(each) for each in buffers])
    assert len(buffers) == 2, "the large tensor alone is beside it"
    assert torch.equal(found["large"], values["large"])
    assert torch.equal(found["half"], values["half"])
    assert found["empty"].shape == (0, 2)
    assert found["scalar"] == 3
    assert np.array_equal(found["array"], values["array"])
    found["array"] += 1  # it is writable
    found["large"] += 1


def test_results_of_commands_are_known() -> None:
    record = Record(4)
    record.add("CS wafer", "compute", 0, 5)
    measured = {"csx-0": [Interval("load", 1, 2)]}
    result = StepResult(1, (0.5, torch.ones(2), None), None, None)
    for value in (
        [result], Activities(record, measured), frozenset({1}), {"wgt-0": {"a": 1}}, None, "text",
        [Place("train", 3)],
    ):  # fmt: skip
        found = result_from([bytes(each) for each in pickled(value)])
        assert type(found) is type(value)


class Attack:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize("content", [pickle.dumps(Attack()), b"", b"\x80\x05.", b"junk"])
def test_result_runs_no_code(content: bytes) -> None:
    with raises(ApplianceCorruptionError, "result-unknown"):
        result_from([content])


def test_what_must_stay_in_its_process_is_refused_with_a_remedy() -> None:
    lock = threading.Lock()
    with raises(ConfigError, "input-not-portable") as caught:
        pickled(lambda: lock)
    assert caught.value.remedy


def test_modules_beside_the_program_travel_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rows.py").write_text("FACTOR = 3\ndef rows(n): return [FACTOR] * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    sent = [bytes(each) for each in pickled(import_module("own_rows").rows)]
    monkeypatch.delitem(sys.modules, "own_rows")
    (tmp_path / "own_rows.py").unlink()
    assert command_from(sent)(2) == [3, 3]


def test_package_that_the_cluster_lacks_is_named() -> None:
    with raises(ConfigError, "command-not-loadable") as caught:
        command_from([b"cabsent_package\nrows\n."])
    assert "absent_package" in str(caught.value.value)
