"""The one release of torch whose kernels give the weights that are promised."""

from __future__ import annotations

from waferstream.core.errors import ConfigError
from waferstream.version import TORCH


def check_torch(found: str) -> None:
    """Check that training and evaluation compute with the kernels of the tested torch.

    A simulation computes no values, so that it may run on another one.

    Args:
        found: The version of torch, with its build.

    Raises:
        ConfigError: It is another release.
    """
    if found.partition("+")[0] != TORCH:
        raise ConfigError(
            "training and evaluation must run on the tested PyTorch",
            code="torch-not-tested",
            where="torch.__version__",
            value=found,
            rule=f"{TORCH}, of any build: weights are bit for bit those of its kernels",
            remedy=f"pip install torch=={TORCH}, or simulate, which runs on this one",
        )
