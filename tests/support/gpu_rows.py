"""Published GPU rows, with their ids, and parts to make others of."""

from pathlib import Path

from validation.families.gpu import FAMILIES
from validation.families.replay import Family
from validation.rows.columns import COLUMNS
from validation.rows.row import Row, read_rows

MPT = {
    "cluster": "MosaicML",
    "gpus_per_node": "8",
    "phase": "train",
    "seq_len": "2048",
    "parallelism": "FSDP FULL_SHARD",
    "unit": "tokens/s",
}
MPT_13B = MPT | {
    "workload": "MPT 13b",
    "model_params": "12853954560",
    "hidden": "5120",
    "layers": "40",
    "heads": "40",
}
MPT_7B = MPT | {
    "workload": "MPT 7b",
    "model_params": "6658859008",
    "hidden": "4096",
    "layers": "32",
    "heads": "32",
}
H100 = {"gpu": "h100_80gb", "dtype": "amp_bf16"}
A100 = {"gpu": "a100_80gb", "dtype": "amp_bf16"}
SMALL_A100 = {"gpu": "a100_40gb", "dtype": "bf16"}
GENSLM = {
    "cluster": "Selene",
    "gpu": "A100-80GB",
    "gpus_per_node": "8",
    "phase": "train",
    "seq_len": "2048",
    "dtype": "fp16",
    "unit": "samples/s",
}
GENSLM_25M = GENSLM | {
    "workload": "GenSLM GPT-NeoX 25M",
    "model_params": "25290752",
    "hidden": "512",
    "layers": "8",
    "heads": "8",
}
GENSLM_250M = GENSLM | {
    "workload": "GenSLM GPT-NeoX 250M",
    "model_params": "244464576",
    "hidden": "1840",
    "layers": "12",
    "heads": "16",
}
GENSLM_25B = GENSLM | {
    "workload": "GenSLM GPT-NeoX 25B",
    "model_params": "25076188032",
    "hidden": "8196",
    "layers": "64",
    "heads": "64",
}
GENSLM_2B = GENSLM | {
    "workload": "GenSLM GPT-NeoX 2.5B",
    "model_params": "2533931008",
    "hidden": "3840",
    "layers": "28",
    "heads": "32",
}
LLAMA_8B = {
    "cluster": "Meta Grand Teton",
    "gpu": "H100-96GB HBM2e 500W",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "phase": "train",
    "workload": "Llama 3.1 8B",
    "model_params": "8030000000.0",
    "hidden": "4096",
    "layers": "32",
    "seq_len": "8192",
    "microbatch": "2",
    "unit": "tokens/s/GPU",
}
SERVED = {
    "cluster": "WaferLLM testbed",
    "gpu": "A100",
    "gpus_per_node": "8",
    "phase": "inference",
    "seq_len": "4096",
    "parallelism": "TP",
    "unit": "tokens/s",
}


def mpt(gpus, micro, accumulated, recomputed, value):
    """What tells runs of an MPT apart, and tokens/s."""
    return {
        "n_gpus": gpus,
        "microbatch": micro,
        "grad_accum": accumulated,
        "act_ckpt": recomputed,
        "value": value,
    }


def slm(gpus, parallelism, value):
    """What tells runs of a GenSLM apart, and samples/s."""
    return {"n_gpus": gpus, "parallelism": parallelism, "value": value}


def llama(parallelism, dtype, value):
    """What tells runs of TorchTitan apart, and tokens/s of a GPU."""
    return {"parallelism": parallelism, "dtype": dtype, "value": value}


def served(phase, gpus, value):
    """What tells requests apart, and tokens/s."""
    return {"workload": f"LLaMA3-8B {phase}", "n_gpus": gpus, "value": value}


PYTHIA = {
    "cluster": "EleutherAI/Stability",
    "gpu": "A100-40GB",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "phase": "train",
    "unit": "GPU-hours for the full training run",
    "value": "4830",
}

CALIBRATION = {
    "GPU training FSDP": {
        "G0007": MPT_13B | H100 | mpt("512", "16", "1", "True", "2535811"),
        "G0010": MPT_7B | H100 | mpt("512", "6", "1", "False", "4951479"),
        "G0030": MPT_13B | H100 | mpt("64", "2", "1", "False", "307209"),
        "G0033": MPT_13B | H100 | mpt("8", "2", "1", "False", "38336"),
        "G0039": MPT_7B | H100 | mpt("8", "6", "1", "False", "85144"),
        "G0089": MPT_13B | A100 | mpt("8", "2", "3", "False", "18097"),
        "G0096": MPT_7B | A100 | mpt("8", "6", "2", "False", "37130"),
        "G0146": MPT_13B | SMALL_A100 | mpt("64", "16", "1", "True", "126479"),
        "G0149": MPT_13B | SMALL_A100 | mpt("8", "4", "16", "True", "13347"),
        "G0156": MPT_7B | SMALL_A100 | mpt("64", "18", "1", "True", "234614"),
        "G0159": MPT_7B | SMALL_A100 | mpt("8", "12", "4", "True", "29436"),
    },
    "GPU training TorchTitan": {
        "G0376": LLAMA_8B | llama("FSDP", "bf16", "5762"),
        "G0377": LLAMA_8B | llama("FSDP+compile", "bf16", "6667"),
        "G0378": LLAMA_8B | llama("FSDP+compile+Float8", "float8", "8532"),
    },
    "GPU training DeepSpeed": {
        "G0268": GENSLM_25M | slm("8", "ZeRO-3", "463.065"),
        "G0272": GENSLM_25M | slm("128", "ZeRO-3", "6276.428"),
        "G0277": GENSLM_250M | slm("8", "ZeRO-3", "106.229"),
        "G0281": GENSLM_250M | slm("128", "ZeRO-3", "1509.376"),
        "G0284": GENSLM_250M | slm("1024", "ZeRO-3", "6651.95"),
        "G0289": GENSLM_2B | slm("64", "ZeRO-3", "139.286"),
        "G0292": GENSLM_2B | slm("512", "ZeRO-3", "749.027"),
        "G0326": GENSLM_25M | slm("8", "DDP", "340.501"),
        "G0330": GENSLM_25M | slm("128", "DDP", "5233.406"),
        "G0332": GENSLM_25M | slm("512", "DDP", "20665.555"),
        "G0334": GENSLM_250M | slm("8", "DDP", "83.142"),
        "G0338": GENSLM_250M | slm("128", "DDP", "1306.981"),
    },
    "GPU training Megatron": {
        "G0402": {
            "cluster": "NVIDIA (Eos-class)",
            "gpu": "H100",
            "n_gpus": "96",
            "gpus_per_node": "8",
            "phase": "train",
            "workload": "strong scaling GPT-3 177B, batch 1152",
            "model_params": "177000000000.0",
            "global_batch": "1152",
            "parallelism": "TP+PP+DP",
            "unit": "% MFU",
            "value": "47",
        }
    },
    "GPU inference prefill": {
        "G0432": SERVED | served("prefill", "1", "13988.3"),
        "G0433": SERVED | served("prefill", "8", "17361.6"),
        "G0434": SERVED | served("prefill", "16", "13994.2"),
    },
    "GPU inference decode": {
        "G0443": SERVED | served("decode", "1", "78.9"),
        "G0444": SERVED | served("decode", "8", "260.4"),
        "G0445": SERVED | served("decode", "16", "164.6"),
    },
}


def rows_of(folder: Path, cells: dict[str, dict[str, str]]) -> tuple[Row, ...]:
    """Rows of a file in ``folder``, by their ids, from the cells that are not empty."""
    columns = COLUMNS["gpu"]
    lines = [",".join(columns)]
    for row_id, known in cells.items():
        filled = {"row_id": row_id, "use": "calibration"} | known
        lines.append(",".join(f'"{filled.get(column, "")}"' for column in columns))
    path = folder / "rows.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_rows(path)


def family_of(row: Row) -> Family:
    """The first that knows a row."""
    return next(family for family in FAMILIES if family.knows(row.described()))
