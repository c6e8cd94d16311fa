"""Micro-batches of even size: what a compiler that is free to choose makes of a share of the batch.

Every system has ceil(batch / systems) samples and takes them in as few rounds as the wafer allows;
all rounds are as large as each other, up to the last, which takes what is left. Valid sizes are
therefore ceil(share / rounds) (Cerebras developer documentation, "Automatic microbatching").
"""

from __future__ import annotations

from wsc.core.errors import ConfigError
from wsc.core.micro_batches import check_systems


def share_of(batch_size: int, num_csx: int) -> int:
    """Samples of the busiest system. Raises ConfigError unless every system has a sample."""
    check_systems(batch_size, num_csx)
    return -(-batch_size // num_csx)


def rounds_of(batch_size: int, num_csx: int, micro_batch_size: int) -> int:
    """How often the weights stream in a step. Raises ConfigError as ``share_of`` does."""
    return -(-share_of(batch_size, num_csx) // micro_batch_size)


def even_micro_batch(batch_size: int, num_csx: int, largest: int) -> int:
    """Samples of a micro-batch in the fewest even rounds of at most ``largest`` samples.

    Raises ConfigError if some system has no sample or ``largest`` is below 1.
    """
    if largest < 1:
        raise ConfigError(
            "a micro-batch has no room for a sample", where="largest", value=largest, rule=">= 1"
        )
    return -(-share_of(batch_size, num_csx) // rounds_of(batch_size, num_csx, largest))
