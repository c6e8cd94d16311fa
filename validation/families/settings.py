"""What a row measures, as far as the error of its prediction may depend on it."""

from __future__ import annotations

import re

from validation.families.start_up import published
from validation.rows.gpu import gpu_of, parameters_of
from validation.rows.row import CannotPredict, Row, finite, letters_of
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.machine.intervals import Setting
from waferstream.machine.intervals.setting import training_setting

_MODEL = re.compile(
    r"\b(?:genslm|gpt|bert|llama|codellama|esm|dit|mistral|bloom|btlm|jais|vit|flor|mpt|pythia|"
    r"qwen|glm|kimi|deepseek|opt|falcon)[-\w. ]*?"
    r"(?:\d+(?:\.\d+)?[MBT]\b|small|medium|large|xl|base|huge|$)",
    re.IGNORECASE,
)
"""Kind and size of a model, in the workload of a row."""

_SERVED_ON = "CS-3"  # no row of the service says which system served it


def model_name(row: Row) -> str:
    """Return which model a row runs, or which program where it is none: letters and digits.

    Rows of one model err alike, so they are left out together.
    """
    workload = row.text("workload")
    if row.kind == "kernels":
        return letters_of(f"{workload} {row.text('algorithm')}")
    found = _MODEL.search(workload)
    return letters_of(found[0] if found else workload)


def setting_of(row: Row, family: str) -> Setting:
    """Return the setting of a row that a family predicts."""
    if row.kind == "kernels":
        names = ("num_pes", "vector_len", "M", "K", "N")
        sizes = {name: _leading(row, name) for name in names}
        return Setting(family, _system(row), {name: size for name, size in sizes.items() if size})
    if row.kind == "service":
        billions = _leading(row, "active_params_b") or _leading(row, "params_b")
        return Setting(family, _SERVED_ON, {"parameters": billions * 1e9} if billions else {})
    is_gpu = row.kind == "gpu"
    machine, flops_per_s = _gpu(row) if is_gpu else (_system(row), _flops_per_s(row))
    return training_setting(
        family,
        machine,
        flops_per_s,
        _parameters(row),
        _leading(row, "seq_len"),
        _leading(row, "global_batch"),
        _leading(row, "n_gpus" if is_gpu else "num_csx") or 1,
    )


def _parameters(row: Row) -> float | None:
    try:
        return parameters_of(row) if row.kind == "gpu" else published(row).parameters
    except CannotPredict:
        return None


def _gpu(row: Row) -> tuple[str, float | None]:
    """Return name and peak of a GPU; the words of the row for one without numbers."""
    try:
        gpu = gpu_of(row)
    except CannotPredict:
        return row.text("gpu"), None
    return gpu.name, gpu.flops_16bit_per_s


def _system(row: Row) -> str:
    """Return the CS system whose wafer a row names."""
    found = re.search(r"\b(?:CS|WSE)-(\d)", row.text("system"))
    return f"CS-{found[1]}" if found else row.text("system")


def _flops_per_s(row: Row) -> float | None:
    system = SYSTEMS.get(_system(row))
    return None if system is None else system.peak_flops_per_s


def _leading(row: Row, column: str) -> float | None:
    """Return the number with which a column begins, None where it begins with none."""
    found = re.match(r"(?:MSL )?(\d[\d,]*(?:\.\d+)?)", row.text(column))
    return finite(found[1].replace(",", "")) if found else None
