"""params.yaml: file and command line become one configuration, written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.spec import AutoRestart
from tests.support.errors import raises
from tests.support.runs.params_files import LOADER, NUM_CSX, trainer, written
from waferstream.config.overrides import Override
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.config import dump_yaml, load_yaml, validate
from waferstream.core.errors import ConfigError

TOKENS = {"data_processor": "BertTokenClassifierDataProcessor", "batch_size": 8}
MODEL = {"name": "bert/token_classifier", "label_vocab_file": "a.json", "num_classes": 3}


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


def test_run_on_ray_survives_losses_by_default() -> None:
    """Not where roles share a process, nor against what the file says of saving."""

    def restarts(kind: str, **keys: Any) -> AutoRestart | None:
        return validate(Params, {"trainer": trainer(**keys)}, "params").trainer.init.restarts(kind)

    stated = {"max_num_restarts": 7}
    assert restarts("ray") == AutoRestart(max_num_restarts=3)
    assert restarts("local") is None
    assert restarts("ray", checkpoint={"async_save": True}) is None
    assert restarts("ray", autorestart=None) is None
    for kind in ("ray", "local"):
        assert restarts(kind, autorestart=stated) == AutoRestart(**stated)


def keys(loader: dict[str, Any], model: dict[str, Any] = MODEL) -> list[dict[str, Any]]:
    """Return the sections of the data loaders, without the keys of all."""
    trainer = {
        "init": {"model": model},
        "fit": {"train_dataloader": loader, "val_dataloader": [loader]},
        "validate": {"val_dataloader": loader},
        "validate_all": {"val_dataloaders": loader},
    }
    loaders = validate(Params, {"trainer": trainer}, "test").trainer.dataloaders()
    every = ("data_processor", "batch_size")
    return [{k: v for k, v in each.dump().items() if k not in every} for _, each in loaders]


def test_every_loader_has_the_keys_of_the_model() -> None:
    assert keys(TOKENS) == [{"label_vocab_file": "a.json"}] * 4
    own = MODEL | {"include_padding_in_loss": True, "vocab_file": "c.txt"}
    assert keys(TOKENS, own)[0] == {"label_vocab_file": "a.json", "include_padding_in_loss": True}


def test_values_of_a_loader_stay() -> None:
    assert keys(TOKENS | {"label_vocab_file": "b.json"})[0] == {"label_vocab_file": "b.json"}
    assert keys({**TOKENS, "data_processor": "MNLIDataProcessor"})[0] == {}


def test_data_processor_that_is_no_name_is_refused() -> None:
    """Whatever YAML may hold in its place."""
    for value in ({"a": 1}, ["BertSumCSVDataProcessor"], 7):
        with raises(ConfigError, code="wrong-type"):
            keys({**TOKENS, "data_processor": value})
