"""The phases of params.yaml: read together, checked against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.errors import raises
from tests.support.runs.params_files import LOADER, NUM_CSX, trainer, written
from waferstream.config.overrides import Override
from waferstream.config.phases import check_phases, load_params, load_phases
from waferstream.core.errors import ConfigError


def test_a_list_of_one_phase_is_one_run(tmp_path: Path) -> None:
    """A list with a single trainer item is that trainer; more are refused where one is due."""
    single = load_params(written(tmp_path, trainer()))
    assert load_params(written(tmp_path, [{"trainer": trainer()}])) == single
    with raises(ConfigError, "several-phases"):
        load_params(written(tmp_path, [{"trainer": trainer()}] * 2))
    for phases in ([], [trainer()], ["trainer"]):
        with raises(ConfigError, "phase-without-trainer"):
            load_params(written(tmp_path, phases))


def phases(tmp_path: Path, *trainers: Any) -> Path:
    return written(tmp_path, [{"trainer": each} for each in trainers])


def test_typed_values_reach_all_phases_but_for_the_checkpoint(tmp_path: Path) -> None:
    path = phases(tmp_path, trainer(), trainer())
    typed = [
        Override("--num_csx", NUM_CSX, 3),
        Override("--checkpoint_path", ("fit", "ckpt_path"), "first.mdl"),
    ]
    found = load_phases(path, typed)
    assert [each.trainer.init.backend.cluster_config.num_csx for each in found] == [3, 3]
    assert [each.trainer.fit.ckpt_path for each in found if each.trainer.fit] == [
        Path("first.mdl"),
        "newest",
    ]


def test_phases_differ_in_cluster_config_only(tmp_path: Path) -> None:
    """The rule is about ``backend``; model, data and loop are free."""
    one = trainer(backend={"cluster_config": {"num_csx": 1}}, seed=1)
    two = trainer(backend={"cluster_config": {"num_csx": 2}}, seed=2)
    assert len(load_phases(phases(tmp_path, one, two))) == 2
    for backend in ({"backend_type": "CPU"}, {"compile_dir": "c"}, {"validate_only": True}):
        with raises(ConfigError, "phases-differ"):
            load_phases(phases(tmp_path, one, trainer(backend=backend)))


def test_phase_needs_the_checkpoint_that_the_next_one_continues_from(tmp_path: Path) -> None:
    path = phases(tmp_path, trainer(), trainer())
    with raises(ConfigError, "phase-without-checkpoint"):
        check_phases(load_phases(path), "train")
    check_phases(load_phases(path), "eval")
    afresh = {**trainer(), "fit": {"train_dataloader": LOADER, "ckpt_path": None}}
    for first, second in (
        (trainer(checkpoint={"steps": 2}), trainer()),
        (trainer(), afresh),
        (trainer(), trainer(model_dir="other")),
    ):
        check_phases(load_phases(phases(tmp_path, first, second)), "train")
