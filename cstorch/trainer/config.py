"""The settings of a ``cstorch.Trainer``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from appliance.spec import ClusterSpec
from cstorch import amp
from cstorch.cluster.config import ClusterConfig
from waferstream.core.config import Config, validate

Precision = Literal["fp32", "bfloat16", "float16", "cbfloat16"]
"""What weights stream in; masters and updates are fp32 in each."""

_SYSTEMS = {"cs2": "CS-2", "cs3": "CS-3"}


class CSConfig(Config):
    """What a ``Trainer`` runs on, for how long, and what it does beside training."""

    target_device: Literal["cs2", "cs3", "csx", "cpu", "gpu"] = "csx"
    """The device: a kind of system, or ``csx`` for that of cluster.yaml."""

    max_steps: PositiveInt | None = None
    """Steps of one call of ``fit``; None for those of ``max_epochs``."""

    max_epochs: PositiveInt | None = None
    """Epochs of one call of ``fit``, by default 1; not beside ``max_steps``."""

    num_csx: PositiveInt = 1
    log_steps: PositiveInt = 1
    """Interval of steps at which losses come back."""

    seed: int = 0
    cluster: ClusterSpec | None = None
    """The emulated machine: the path of its file, a mapping of its sections, or the name of a
    machine (``waferstream machine list``); None for cluster.yaml beside the program or in the
    working folder."""

    precision: Precision | None = None
    """What weights stream in; None for the settings of ``cstorch.amp``."""

    max_gradient_norm: PositiveFloat | None = None
    """The global norm of all gradients that they are scaled to where it is larger."""

    max_gradient_value: PositiveFloat | None = None
    """The largest absolute value of a gradient; not beside ``max_gradient_norm``."""

    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Factor of ``trainer.ema``, moving averages of the weights, at each update; None for none."""

    limit_train_batches: PositiveInt | None = None
    """Batches that an epoch has at most."""

    limit_val_batches: PositiveInt | None = None
    """Batches that an evaluation has at most."""

    eval_frequency: PositiveInt | None = None
    """Steps between two evaluations; None for one after each epoch, and after the last step."""

    checkpoint_steps: PositiveInt | None = None
    """Steps between two checkpoints; None for none but those of callbacks."""

    model_dir: Path = Path("model_dir")
    """The folder of checkpoints."""

    fast_dev_run: bool = False
    """Train on one batch and evaluate on one, and write no checkpoint: to see that all works."""

    @model_validator(mode="after")
    def _one_length_and_one_clip(self) -> CSConfig:
        for first, second in (
            ("max_steps", "max_epochs"),
            ("max_gradient_norm", "max_gradient_value"),
        ):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(f"{first} and {second} exclude each other; leave one out")
        return self

    def for_cluster(self) -> ClusterConfig:
        """Return the settings of the cluster.

        Raises:
            ConfigError: A value is out of range.
        """
        taken: dict[str, Any] = {"num_csx": self.num_csx}
        if self.cluster is not None:
            taken["cluster"] = self.cluster
        config = validate(ClusterConfig, taken, "CSConfig").with_found_machine()
        system = _SYSTEMS.get(self.target_device)
        return config if system is None else config.with_system(system)

    def set_precision(self) -> None:
        """Set what weights stream in, if that is stated."""
        if self.precision is None:
            return
        amp.enable_mixed_precision(self.precision != "fp32")
        if self.precision != "fp32":
            amp.set_half_dtype(self.precision)

    @property
    def num_train_batches(self) -> int | None:
        """Batches that an epoch has at most."""
        return 1 if self.fast_dev_run else self.limit_train_batches

    @property
    def num_val_batches(self) -> int | None:
        """Batches that an evaluation has at most."""
        return 1 if self.fast_dev_run else self.limit_val_batches
