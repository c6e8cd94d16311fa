"""A params file at a size that this host trains: ``--shrink 2M``.

Widths, heads, layers, batches and evaluations shrink; where the data are not on this host, random
ones take their place, and vocabularies, lengths and images shrink, too. Masks that would change
after the end of the run only change after every step; tags of layers that are no longer there go,
with their schedulers. Precision, optimizer, schedules, callbacks,
checkpoints, sparsity and the shape of the model stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from waferstream.config.params import InitConfig, Params
from waferstream.config.sections.optimizer import DECAYED, NOT_DECAYED
from waferstream.config.shrinking.data import SmallData, absent_data
from waferstream.config.shrinking.sizes import Sizes, model_width, shrunk_model
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.spec import UpdateSteps
from waferstream.workload.models import known_config, parameter_shapes
from waferstream.workload.published_names import published_name

FLAG = "--shrink"
_WIDTHS = (1024, 768, 512, 384, 256, 192, 128, 96, 64, 32)
_WIDTH_OF_A_LAYER = 32
"""How much wider a model is for each of its layers."""
_MODES = ("fit", "validate", "validate_all")
_MICRO_BATCH = "csx.performance.micro_batch_size"
_EVAL_STEPS = 8
"""Most steps of an evaluation: an epoch of the synthetic data."""


def shrunk(params: Params, num_parameters: float) -> Params:
    """Return a configuration whose model has at most so many parameters.

    Raises:
        ConfigError: The smallest version of the model has more parameters.
    """
    trainer = params.dump()["trainer"]
    absent = absent_data(params.trainer)
    is_synthetic = params.trainer.dataloaders()[0][0] in absent if absent else False
    model = _fitting(trainer["init"]["model"], num_parameters, shrinks_data=is_synthetic)
    data = SmallData(known_config(model), absent, is_synthetic)
    trainer["init"] |= {"model": model, **tags_left(params.trainer.init, model)}
    for mode in _MODES:
        if mode in trainer:
            trainer[mode] = data.section(trainer[mode], f"trainer.{mode}")
    _limit_micro_batches(trainer)
    _limit_evaluations(trainer["init"].get("loop", {}))
    _limit_mask_updates(trainer["init"])
    return validate(Params, {"trainer": trainer}, FLAG)


def _fitting(model: dict[str, Any], num_parameters: float, *, shrinks_data: bool) -> dict[str, Any]:
    """Return the section of the widest version of a model that has at most so many parameters."""
    width = model_width(model)
    if width is None:
        raise ConfigError(
            "the model has no width that is known",
            code="shrink-without-width",
            where="trainer.init.model",
            rule=f"{FLAG} scales models with hidden_size or d_model",
            remedy=f"write smaller values by hand, without {FLAG}",
        )
    least = 0
    for candidate in (each for each in _WIDTHS if each <= max(width, _WIDTHS[-1])):
        sizes = Sizes(candidate, max(2, candidate // _WIDTH_OF_A_LAYER), width, shrinks_data)
        section: dict[str, Any] = shrunk_model(model, sizes)
        least = sum(map(prod, parameter_shapes(section).values()))
        if least <= num_parameters:
            return section
    raise ConfigError(
        "the smallest version of the model must have at most so many parameters",
        code="shrink-too-small",
        where=FLAG,
        value=f"{num_parameters:,.0f}",
        rule=f"it has {least:,}",
        remedy=f"{FLAG} {least}",
    )


def _limit_micro_batches(trainer: dict[str, Any]) -> None:
    """Let no flag state a micro-batch larger than the batch of training."""
    if "fit" not in trainer:
        return
    batch_size = trainer["fit"]["train_dataloader"]["batch_size"]
    for callback in trainer["init"].get("callbacks", []):
        for flags in callback.values():
            if isinstance(flags, dict) and isinstance(flags.get(_MICRO_BATCH), int):
                flags[_MICRO_BATCH] = min(flags[_MICRO_BATCH], batch_size)


def _limit_evaluations(loop: dict[str, Any]) -> None:
    """Let no evaluation take more steps than an epoch of the synthetic data."""
    if isinstance(loop.get("eval_steps"), int):
        loop["eval_steps"] = min(loop["eval_steps"], _EVAL_STEPS)


def _limit_mask_updates(init: dict[str, Any]) -> None:
    """Let masks that would change after the last step only change after every step."""
    loop = init.get("loop", {})
    steps = [loop[key] for key in ("num_steps", "max_steps") if loop.get(key) is not None]
    for group in init.get("sparsity") or ():
        update = group.get("update")
        if not steps or update is None:
            continue
        written = validate(UpdateSteps, update, "trainer.init.sparsity.update")
        if max(written.first, written.last or 0) > min(steps):
            group["update"] = {"freq": 1}


def tags_left(init: InitConfig, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return optimizer and schedulers for a smaller model, by their keys in ``trainer.init``.

    Tags that select parameters of the whole model and none of the smaller one are left out, and
    schedulers of these tags alone. Empty for an optimizer without tags.

    Args:
        init: The configuration with the whole model.
        model: The section of the smaller model.
    """
    optimizer = init.optimizer
    if optimizer is None or not optimizer.params:
        return {}
    whole, small = (_all_names(section) for section in (init.model.dump(), model))
    kept = tuple(
        each for each in optimizer.params if each.selects_any(small) or not each.selects_any(whole)
    )
    gone = optimizer.tags - {DECAYED, NOT_DECAYED, *(each.tag for each in kept)}
    return {
        "optimizer": optimizer.model_copy(update={"params": kept}),
        "schedulers": tuple(one for each in init.schedulers if (one := each.without(gone))),
    }


def _all_names(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names of each parameter of a model section: here, and at the vendor."""
    return [(name, published_name(name)) for name in parameter_shapes(model)]


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each value that two configurations do not share: key, old and new value."""
    if before == after:
        return
    match before, after:
        case {"data_processor": old}, {"data_processor": new} if old != new:
            yield f"{path}.data_processor: {old} -> {new}, random inputs of the model"
            yield from differences(before["batch_size"], after["batch_size"], f"{path}.batch_size")
        case dict(), dict():
            for key in before:
                inner = f"{path}.{key}" if path else key
                yield from differences(before[key], after.get(key), inner)
        case [dict(), *_], [dict(), *_] if len(before) == len(after):
            for number, pair in enumerate(zip(before, after, strict=True)):
                yield from differences(*pair, f"{path}[{number}]")
        case [dict(), *_], list():
            gone = (str(number) for number, each in enumerate(before) if each not in after)
            yield f"{path}: {len(before)} -> {len(after)}, without {', '.join(gone)}"
        case _:
            yield f"{path}: {before} -> {after}"
