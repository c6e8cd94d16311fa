"""Segments in the reference loop: what it cannot compute is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.reference_loop import train
from tests.support.runs.tiny_training import GPT, LLAMA, LOADER, init_config
from waferstream.compiler.fusion import program
from waferstream.workload.data import build_source

MOE = LLAMA | {"moe": {"num_experts": 4, "top_k": 2, "load_balancing_loss_coef": 0.02}}


@pytest.mark.parametrize(
    ("model", "message"), [(MOE, "micro-batches alone"), (GPT, "no kernels were compiled")]
)
def test_what_has_no_compiled_kernels_is_refused(
    model: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "compiler", lambda: None)
    source = build_source(LOADER, "test")
    with pytest.raises(SystemExit, match=message):
        train(init_config(model), [source.batch(0)], source.batch_size, "compiled", tmp_path)
