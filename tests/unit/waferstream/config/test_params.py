"""params.yaml: file and command line become one configuration, written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.config.overrides import Override
from waferstream.config.params import Params, check_phases, load_params, load_phases
from wsc.core.config import dump_yaml, load_yaml, validate
from wsc.core.errors import ConfigError

NUM_CSX = ("init", "backend", "cluster_config", "num_csx")
LOADER = {"data_processor": "Dummy", "batch_size": 8}


def written(folder: Path, trainer: Any) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({"trainer": trainer}))
    return path


def trainer(**init: Any) -> dict[str, Any]:
    return {"init": {"model": {"name": "gpt3"}, **init}, "fit": {"train_dataloader": LOADER}}


def options(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
numbers = st.floats(0, 1, exclude_min=True)
counts = st.integers(1, 1000)
free_keys = st.dictionaries(
    words.map("x".__add__),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)
loaders = st.builds(lambda free: {**free, **LOADER}, free_keys)
flags = options(
    **{
        "csx.performance.micro_batch_size": counts
        | st.sampled_from(["auto", "fill_wafer", "none"]),
        "csx.debug.ini": free_keys,
        "csx.debug.save_gpv": st.booleans(),
    }
)
linear = st.fixed_dictionaries(
    {"initial_learning_rate": numbers, "end_learning_rate": numbers, "total_iters": counts}
).map(lambda arguments: {"LinearLR": arguments})
constant = st.fixed_dictionaries({"learning_rate": numbers}, optional={"total_iters": counts}).map(
    lambda arguments: {"ConstantLR": arguments}
)
sequential = st.builds(
    lambda first, last: {"SequentialLR": {"schedulers": [*first, last]}},
    st.lists(linear, max_size=3),
    linear | constant,
)
init_sections = st.fixed_dictionaries(
    {"model": st.builds(lambda free: {**free, "name": "gpt3"}, free_keys)},
    optional={
        "backend": options(
            compile_dir=words,
            compile_only=st.booleans(),
            cluster_config=options(
                num_csx=st.integers(1, 8),
                job_labels=st.dictionaries(words, words, max_size=2),
                mount_dirs=st.lists(words, max_size=2) | words,
                job_time_sec=counts,
            ),
        ),
        "model_dir": words,
        "optimizer": options(lr=numbers, betas=st.tuples(st.just(0.5), st.just(0.9)).map(list)).map(
            lambda arguments: {"AdamW": arguments}
        ),
        "schedulers": (linear | constant | sequential).map(lambda schedule: [schedule]),
        "precision": options(
            enabled=st.booleans(),
            precision_opt_level=st.sampled_from([0, 1, 2]),
            max_gradient_norm=numbers,
        ),
        "loop": options(max_steps=counts, eval_frequency=st.none() | counts | numbers),
        "checkpoint": options(steps=st.integers(0, 9), save_initial_checkpoint=st.booleans()),
        "logging": options(
            log_level=st.sampled_from(["info", "DEBUG", 15]),
            wsc_log_level=st.sampled_from(["INFO", {"wgt.execute": 10}]),
        ),
        "callbacks": st.lists(
            st.one_of(
                st.just({"CheckLoss": None}),
                st.just({"ComputeNorm": {}}),
                options(n=counts).map(lambda arguments: {"KeepNCheckpoints": arguments}),
                flags.map(lambda arguments: {"ScopedTrainFlags": arguments}),
                flags.map(lambda arguments: {"GlobalFlags": arguments}),
            ),
            unique_by=lambda entry: next(iter(entry)),
        ),
        "loggers": st.lists(st.just({"TensorBoardLogger": None}), max_size=1),
        "seed": st.integers(0, 2**31),
    },
)
trainers = st.fixed_dictionaries(
    {"init": init_sections},
    optional={
        "fit": st.fixed_dictionaries(
            {"train_dataloader": loaders},
            optional={
                "val_dataloader": loaders | st.lists(loaders, max_size=2),
                "ckpt_path": st.none() | words,
            },
        ),
        "validate": st.fixed_dictionaries({"val_dataloader": loaders}),
        "validate_all": options(ckpt_paths=st.lists(words, max_size=2) | words),
    },
)


@settings(deadline=None, max_examples=60)
@given(data=trainers)
def test_what_is_written_is_read_again(
    data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Params -> dump -> YAML -> load gives equal Params, and the same dump again."""
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    params = validate(Params, {"trainer": data}, "generated")
    path.write_text(dump_yaml(params.dump()))
    again = load_params(path)
    assert again == params
    assert again.dump() == params.dump() == load_yaml(path)


def test_the_resolved_configuration_states_its_defaults(tmp_path: Path) -> None:
    """The file saved beside a run has every value of the run, and no unset key."""
    init = load_params(written(tmp_path, trainer(device="CSX"))).dump()["trainer"]["init"]
    assert init["backend"]["cluster_config"]["num_csx"] == 1
    assert init["precision"]["precision_opt_level"] == 1
    assert init["callbacks"] == [{"CheckLoss": {}}, {"DumpAvailableTensorNames": {}}]
    assert "optimizer" not in init
    assert "device" not in init


def test_typed_values_win_and_others_stay(tmp_path: Path) -> None:
    """Only what was typed changes."""
    path = written(tmp_path, trainer(seed=3, logging={"wsc_log_level": "INFO"}))
    levels = ("init", "logging", "wsc_log_level")
    params = load_params(
        path,
        [
            Override("--num_csx", NUM_CSX, 4),
            Override("--wsc_log_level", levels, {"wgt": "DEBUG"}, "merge"),
        ],
    )
    assert params.trainer.init.backend.cluster_config.num_csx == 4
    assert params.trainer.init.seed == 3
    assert params.trainer.init.logging.wsc_log_level["wgt"] == "DEBUG"
    assert params.trainer.init.logging.wsc_log_level["act"] == "INFO"


def test_a_wrong_typed_value_blames_the_command_line(tmp_path: Path) -> None:
    """An error names the file or the flags, whichever brought it."""
    path = written(tmp_path, trainer())
    with pytest.raises(ConfigError) as caught:
        load_params(path, [Override("--num_csx", NUM_CSX, 0)])
    assert "--num_csx" in str(caught.value.where)
    assert "greater than 0" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load_params(written(tmp_path, trainer(sede=3)), [Override("--num_csx", NUM_CSX, 2)])
    assert caught.value.where == str(path)
    assert "did you mean 'seed'?" in str(caught.value)


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


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"trainr": {}}, "did you mean 'trainer'?"),
        ({"trainer": trainer(), "runconfig": {}}, "unknown key 'runconfig'"),
        ({"trainer": {**trainer(), "fitt": {}}}, "did you mean 'fit'?"),
        ({"trainer": {**trainer(), "fit": {"train_datloader": LOADER}}}, "'train_dataloader'?"),
        ({"trainer": trainer(device="CSX", backend={})}, "mutually exclusive"),
        ({"trainer": trainer(device="TPU")}, "CSX, CPU or GPU"),
        ({"trainer": trainer(autorestart={"min_num_csx": 1})}, "max_num_restarts' is missing"),
        ({"trainer": {"init": {}}}, "'trainer.init.model' is missing"),
        ({"trainer": None}, "'trainer'"),
        ({"trainer": {"init": 5}}, "'trainer.init'"),
        ({3: 4}, "'trainer' is missing"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, data: Any, complaint: str) -> None:
    """Every mistake at the top is a ConfigError that names the file and the key."""
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError) as caught:
        load_params(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5])
def test_seed_is_one_that_generators_take(seed: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_params(written(tmp_path, trainer(seed=seed)))
    assert "trainer.init.seed" in caught.value.what


def test_other_devices_pass_the_schema(tmp_path: Path) -> None:
    """CPU and GPU are valid in the file; the builder of the run refuses them."""
    params = load_params(written(tmp_path, trainer(device="GPU")))
    assert params.trainer.init.backend.backend_type == "GPU"
