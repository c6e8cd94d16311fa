"""Programs of the vendor's package, run by ``waferstream exec`` without a changed line.

Their plain run is that on the package's own CPU backend, which computes a step eagerly in torch.
Both runs are in single precision: on a system these programs take a half type, on a CPU none.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from scripts.gigagpt import small_config, write_tokens
from scripts.model_zoo.__main__ import small_params
from scripts.programs.data import LOCAL
from scripts.programs.program import Program

EXEC = ("-m", "waferstream", "exec")

_STEPS = 6


def prepare_gigagpt(folder: Path) -> None:
    """Write tokens and the smallest configuration, scaled down."""
    _write_machine(folder)
    write_tokens(folder)
    config = {**small_config(folder, folder), "num_steps": _STEPS}
    (folder / "small.yaml").write_text(yaml.safe_dump(config))


def prepare_zoo(folder: Path) -> None:
    """Write data and, for each backend, the params file of a small Cerebras-GPT."""
    source = folder / "src"
    _write_machine(source)
    params = small_params(folder, "gpt2", source)
    init = params["trainer"]["init"]
    init["precision"] |= {"enabled": False}
    init["loop"] = {"num_steps": _STEPS, "eval_frequency": None}
    params["trainer"]["fit"].pop("val_dataloader")
    for backend, more in (("CPU", {}), ("CSX", {"cluster_config": {"num_csx": 2}})):
        init["backend"] = {"backend_type": backend, **more}
        (source / f"{backend}.yaml").write_text(yaml.safe_dump(params))


def _write_machine(folder: Path) -> None:
    (folder / "cluster.yaml").write_text(yaml.safe_dump(LOCAL))


VENDOR_PROGRAMS = (
    Program(
        "gigaGPT",
        "Cerebras/gigaGPT",
        "train.py",
        (),
        r"\| Step=\d+, Loss=([\d.]+)",
        ("small.yaml",),
        (
            (
                "train.py",
                'if not backend.is_cpu:\n        cstorch.amp.set_half_dtype("bfloat16")',
                "torch.manual_seed(0); cstorch.amp.enable_mixed_precision(False)",
            ),
        ),
        prepare_gigagpt,
        runner=EXEC,
        plain=("--backend=CPU",),
        handed_over=("--backend=CSX",),
    ),
    Program(
        "The Model Zoo's trainer, Cerebras-GPT",
        "Cerebras/modelzoo",
        "src/cerebras/modelzoo/cli/main.py",
        (),
        r"Step=\d+, Loss=([\d.]+)",
        ("fit",),
        (
            (
                "src/cerebras/modelzoo/trainer/callbacks/precision.py",
                "if not self.enabled:\n            if self.backend.is_csx:",
                "if not self.enabled:\n            if False:",
            ),
        ),
        prepare_zoo,
        folder="src",
        runner=EXEC,
        plain=("CPU.yaml",),
        handed_over=("CSX.yaml",),
    ),
)
