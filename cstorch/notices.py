"""What a training does otherwise than a plain PyTorch loop of the program, said once in the log."""

from __future__ import annotations

import logging

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from cstorch.amp import half_type_of, stream_precision
from cstorch.metrics import Metric
from cstorch.session.session import Session
from waferstream.core.program.micro_batches import FLAG, share_of
from waferstream.core.program.program import Program

log = logging.getLogger("waferstream")


def say_precision(session: Session, model: nn.Module) -> None:
    """Say that layers compute in a half type which the model does not have itself."""
    precision = stream_precision(model)
    if precision.stream != "float32" and half_type_of(model) is None:
        _say_once(
            session,
            f"Weights stream in {precision.stream} and layers compute in {precision.compute}; "
            "cstorch.amp.enable_mixed_precision(False) before the first fit lets both be float32",
        )


def say_batch_norms(session: Session, model: nn.Module, program: Program) -> None:
    """Say that batch norms take their statistics from micro-batches."""
    size, batch_size = program.micro_batch_size, program.batch_size
    names = [name for name, part in model.named_modules() if _takes_statistics(part)]
    if not program.kind.updates or size == batch_size or not names:
        return
    num_csx = session.settings.cluster_config.num_csx
    _say_once(
        session,
        f"Batch norm ({names[0]}{', ...' * (len(names) > 1)}) takes its statistics from "
        f"micro-batches of {size} samples, not from the batch of {batch_size}; "
        f"{FLAG} sets their size, with num_csx={num_csx} up to {share_of(batch_size, num_csx)}",
    )


def say_buffers(session: Session, model: nn.Module, program: Program) -> None:
    """Say that buffers which forward writes are written once for each micro-batch."""
    known = [part for part in model.modules() if isinstance(part, _BatchNorm | Metric)]
    own = {id(buffer) for part in known for buffer in part.buffers()}
    written = {spec.name for spec in program.state.writes}
    names = [
        name for name, each in model.named_buffers() if name in written and id(each) not in own
    ]
    if program.kind.updates and program.cut.num_micro_batches > 1 and names:
        _say_once(
            session,
            f"A buffer that forward writes ({names[0]}{', ...' * (len(names) > 1)}) is written "
            f"once for each of the {program.cut.num_micro_batches} micro-batches of a batch, as in "
            f"a plain loop with so many batches; {FLAG} sets the size of one",
        )


def _takes_statistics(part: nn.Module) -> bool:
    """Return whether a module normalizes by the samples that it gets."""
    return isinstance(part, _BatchNorm) and (part.training or part.running_mean is None)


def _say_once(session: Session, text: str) -> None:
    if text not in session.notices:
        session.notices.add(text)
        log.warning("%s", text)
