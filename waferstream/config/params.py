"""All sections of params.yaml, and what a mode needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from appliance.spec import AutoRestart
from waferstream.config.sections.backend import BackendConfig, DeviceType
from waferstream.config.sections.callbacks import Callbacks, Loggers
from waferstream.config.sections.flags import (
    GlobalFlags,
    MicroBatchSize,
    ScopedTrainFlags,
    ScopedValidateFlags,
)
from waferstream.config.sections.init import (
    CheckpointConfig,
    CheckpointPath,
    DataLoaderConfig,
    DataLoaders,
    LoggingConfig,
    LoopConfig,
    ModelConfig,
    StartFrom,
)
from waferstream.config.sections.optimizer import (
    DECAYED,
    NOT_DECAYED,
    OptimizerConfig,
    Schedulers,
    unknown_tags,
)
from waferstream.config.sections.precision import PrecisionConfig
from waferstream.config.sections.section import Named, Section, one_or_many
from waferstream.core.config import before
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.core.sparsity.groups import Groups
from waferstream.core.stores import local_folder

Kind = TypeVar("Kind", bound=Named)
Mode = Literal["train", "eval", "train_and_eval", "eval_all"]
"""What a run does."""
Scope = Literal["train", "validate"]
"""What a flag or a loader is for."""

SHARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BertTokenClassifierDataProcessor": ("label_vocab_file", "include_padding_in_loss"),
        "BertSumCSVDataProcessor": ("vocab_file",),
        "HuggingFaceDatasetProcessor": ("vocab_size",),
    }
)
"""Keys of the model by the data processor that reads them, too."""


class InitConfig(Section):
    """Section ``trainer.init``: everything that is built before the first step."""

    backend: BackendConfig = BackendConfig()
    """``device: CSX`` is the short form of ``backend: {backend_type: CSX}``."""
    model_dir: Annotated[Path, before(local_folder, Path)] = Path("model_dir")
    model: ModelConfig
    optimizer: OptimizerConfig | None = None
    schedulers: Schedulers = ()
    precision: PrecisionConfig = PrecisionConfig()
    sparsity: Groups | None = None
    """Weights that are sparse: a share of zeros, a group, or a list of groups."""
    loop: LoopConfig = LoopConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    callbacks: Callbacks = ()
    loggers: Loggers = ()
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Of weights and dropout; the order of the data has a seed of its own."""
    autorestart: AutoRestart | Literal["auto"] | None = "auto"
    """How often a run goes on after it has lost processes; null ends it with an error. ``auto`` on
    Ray: three times; not in one process, nor where ``async_save`` keeps restarts from beginning
    with a checkpoint."""

    def restarts(self, kind: str) -> AutoRestart | None:
        """Return how often the run goes on after a loss on a kind of cluster."""
        if self.autorestart != "auto":
            return self.autorestart
        is_for_it = kind == "ray" and not self.checkpoint.async_save
        return AutoRestart(max_num_restarts=3) if is_for_it else None

    @model_validator(mode="before")
    @classmethod
    def _expand_device(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "device" not in data:
            return data
        if "backend" in data:
            raise ValueError("device and backend are mutually exclusive")
        if data["device"] not in get_args(DeviceType):
            raise ValueError(f"device is CSX, CPU or GPU, not {data['device']!r}")
        rest = {key: value for key, value in data.items() if key != "device"}
        return {**rest, "backend": {"backend_type": data["device"]}}

    @model_validator(mode="after")
    def _one_learning_rate(self) -> Self:
        if any(one.overlaps(other) for one, other in combinations(self.schedulers, 2)):
            raise ValueError(
                "two schedulers set the same value of the same parameters; put them into a "
                "SequentialLR, or give them different param_group_tags"
            )
        optimizer = self.optimizer
        for number, scheduler in enumerate(self.schedulers):
            known = optimizer.tags if optimizer else {DECAYED, NOT_DECAYED}
            if not known.issuperset(scheduler.param_group_tags or ()):
                where = f"trainer.init.schedulers[{number}].{scheduler.name}.param_group_tags"
                raise unknown_tags(scheduler.param_group_tags, where, known)
        scheduled = any(scheduler.key == "lr" for scheduler in self.schedulers)
        if optimizer and optimizer.lr is None and not scheduled and optimizer.needs_lr:
            raise ValueError(f"{optimizer.class_name} needs lr, or schedulers that give it")
        return self

    def callback(self, kind: type[Kind]) -> Kind | None:
        """Return the callback of a class, or None if none is configured."""
        return next((each for each in self.callbacks if isinstance(each, kind)), None)

    def micro_batch_policy(self, scope: Scope) -> MicroBatchPolicy:
        """Return ``csx.performance.micro_batch_size``: of the scope, else global, else ``auto``."""
        scoped = ScopedTrainFlags if scope == "train" else ScopedValidateFlags
        flags = (self.callback(scoped), self.callback(GlobalFlags))
        found = (each.micro_batch_size for each in flags if each is not None)
        size: MicroBatchSize = next((size for size in found if size is not None), "auto")
        return MicroBatchPolicy(None if size == "none" else size)


class FitConfig(Section):
    """Section ``trainer.fit``: training, with evaluations where evaluation data is given."""

    train_dataloader: DataLoaderConfig
    val_dataloader: DataLoaders = ()
    ckpt_path: StartFrom = "newest"


class ValidateConfig(Section):
    """Section ``trainer.validate``: one evaluation."""

    val_dataloader: DataLoaderConfig
    ckpt_path: StartFrom = "newest"


class ValidateAllConfig(Section):
    """Section ``trainer.validate_all``: every checkpoint on every data set."""

    val_dataloaders: DataLoaders = ()
    ckpt_paths: Annotated[tuple[CheckpointPath, ...], one_or_many] = ()
    """Files or globs; every checkpoint in ``model_dir`` if empty."""


class TrainerConfig(Section):
    """Section ``trainer``: its construction and the sections of the modes."""

    init: InitConfig
    fit: FitConfig | None = None
    validation: ValidateConfig | None = Field(default=None, alias="validate")
    validate_all: ValidateAllConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _share_keys_of_the_model(cls, data: Any) -> Any:
        return with_shared_keys(data) if isinstance(data, Mapping) else data

    def check(self, mode: Mode) -> None:
        """Raise ConfigError unless every section is there that a mode needs."""
        missing = self._missing(mode)
        if missing is None:
            return
        others = [other for other in get_args(Mode) if self._missing(other) is None]
        choice = f", or choose --mode {' or '.join(others)}" if others else ""
        raise ConfigError(
            f"mode {mode} requires {missing}",
            code="missing-key",
            where=missing,
            value="missing",
            remedy=f"add it to the params file{choice}",
        )

    def _missing(self, mode: Mode) -> str | None:
        """Return the first section that a mode needs and the file lacks."""
        needed: dict[str, object]
        if mode in ("train", "train_and_eval"):
            needed = {"trainer.fit": self.fit, "trainer.init.optimizer": self.init.optimizer}
        elif mode == "eval":
            needed = {"trainer.validate": self.validation}
        else:
            given = self.validate_all and self.validate_all.val_dataloaders
            needed = {
                "trainer.validate_all": self.validate_all,
                "trainer.validate_all.val_dataloaders": given or None,
            }
        return next((path for path, section in needed.items() if section is None), None)

    def dataloaders(self) -> list[tuple[str, DataLoaderConfig]]:
        """Return all data loaders, each with its key path."""
        found: list[tuple[str, DataLoaderConfig]] = []
        if self.fit:
            found.append(("trainer.fit.train_dataloader", self.fit.train_dataloader))
            found += _numbered("trainer.fit.val_dataloader", self.fit.val_dataloader)
        if self.validation:
            found.append(("trainer.validate.val_dataloader", self.validation.val_dataloader))
        if self.validate_all:
            found += _numbered(
                "trainer.validate_all.val_dataloaders", self.validate_all.val_dataloaders
            )
        return found


def _numbered(
    where: str, loaders: Sequence[DataLoaderConfig]
) -> list[tuple[str, DataLoaderConfig]]:
    return [(f"{where}[{index}]", loader) for index, loader in enumerate(loaders)]


class Params(Section):
    """All of params.yaml in the Trainer layout."""

    trainer: TrainerConfig


def with_shared_keys(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section ``trainer`` whose data loaders have the keys that they share.

    A value in the section of a data loader stays as it is.
    """
    init = trainer.get("init")
    model = init.get("model") if isinstance(init, Mapping) else None
    if not isinstance(model, Mapping):
        return dict(trainer)
    changed = dict(trainer)
    for mode in ("fit", "validate", "validate_all"):
        if isinstance(section := trainer.get(mode), Mapping):
            changed[mode] = {key: _completed(value, model) for key, value in section.items()}
    return changed


def _completed(value: Any, model: Mapping[str, Any]) -> Any:
    """Return the value of a key of a mode, with every data loader in it completed."""
    if isinstance(value, list | tuple):
        return [_completed(each, model) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {**value, **dict(_missing(value, model))}


def _missing(loader: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    processor = loader.get("data_processor")
    for key in SHARED.get(processor, ()) if isinstance(processor, str) else ():
        if loader.get(key) is None and model.get(key) is not None:
            yield key, model[key]
