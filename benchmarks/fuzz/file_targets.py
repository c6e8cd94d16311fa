"""The readers of datasets, tables and checkpoints, each with files to mutate."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from benchmarks.fuzz.campaign import Target, through_file
from benchmarks.fuzz.mutations import as_json, of_bytes, of_trees
from modelzoo.converters.families import DECODERS
from modelzoo.converters.weights import Weights
from modelzoo.data.bert.masked import PreparedSamples
from modelzoo.data.files.csv_file import CsvRows, inspect_csv, words
from modelzoo.data.files.hdf5_file import inspect
from modelzoo.data.images.latents import read_latent
from validation.rows.reader import read_rows
from waferstream.checkpoint import SPARSITY_MASK
from waferstream.checkpoint.packed import PackedSpec
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, reserve_tensors, write_metadata
from waferstream.core.program.program import TensorSpec
from waferstream.management.schedule.trace import read_trace
from waferstream.preparation.sequences import FEATURES
from waferstream.workload.hugging_face import read_hf, read_json
from waferstream.workload.models import parameter_shapes

_ROOT = Path(__file__).parents[2]

_TABLES = (
    b'input_ids,attention_mask,labels\n"[5, 6, 7]","[1, 1, 0]","[-100, 6, -100]"\n',
    b"tokens,is_random_next\n\"['a', '##b', '[SEP]']\",0\n",
)
"""CSV files of prepared sequences, and of words."""

_SWF = (
    b"; MaxProcs: 8\n1 100 -1 1451 8 -1 -1 -1 -1 -1 -1 4 1\n2 40 -1 60.5 1 -1 -1 -1 -1 -1 -1 7 1\n",
)
_CSV_TRACE = (b"timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66.0,1,11cb48\n",)
"""Traces of jobs."""

_SIZES = {"vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_heads": 2}
_INDEX = "pytorch_model.bin.index.json"


def file_targets(folder: Path) -> tuple[Target, ...]:
    """Return the readers of datasets, tables and checkpoints."""
    published = sorted((_ROOT / "validation" / "data").glob("*.csv"))
    tables = [b"".join(path.read_bytes().splitlines(keepends=True)[:12]) for path in published]

    def read_dataset(path: Path) -> object:
        return inspect(path, max_sequence_length=None).read(np.array([0]))

    def read_csv(path: Path) -> object:
        rows = CsvRows([inspect_csv(path)], path.name)
        first = np.arange(min(len(rows), 1))
        if "tokens" in rows.columns:
            return [words(row["tokens"], rows.name) for row in rows.read(first)]
        samples = PreparedSamples(rows, disable_nsp=None)
        return samples.read(first) if len(first) else None

    def read_checkpoint(path: Path) -> object:
        reader = Reader(path)
        reader.verify()
        return [reader[key] for key in reader.tensors]

    return (
        Target("CSV of rows", 30, of_bytes(tables), through_file(folder / "rows.csv", read_rows)),
        Target(
            "HDF5 dataset", 8, of_bytes(_datasets()), through_file(folder / "d.h5", read_dataset)
        ),
        Target("SWF trace", 8, of_bytes(_SWF), through_file(folder / "t.swf", read_trace)),
        Target("CSV trace", 8, of_bytes(_CSV_TRACE), through_file(folder / "t.csv", read_trace)),
        Target("CSV dataset", 8, of_bytes(_TABLES), through_file(folder / "d.csv", read_csv)),
        Target("latents", 8, of_bytes(_latents()), through_file(folder / "d.npz", read_latent)),
        Target(
            "checkpoint",
            1,
            of_bytes([_checkpoint(folder / "valid.mdl"), _packed(folder / "packed.mdl")]),
            through_file(folder / "c.mdl", read_checkpoint),
            limit_s=90.0,  # a file without seal is inspected in a process with a deadline of 60 s
        ),
    )


def _datasets() -> list[bytes]:
    """Return small HDF5 files in the three layouts, plain and compressed."""
    sample = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    named = {name: sample[:, row] for row, name in enumerate(FEATURES)}
    written = []
    for values in ({"data": sample}, named):
        for compression in (None, "gzip"):
            buffer = io.BytesIO()
            with h5py.File(buffer, "w") as file:
                for name, array in values.items():
                    file.create_dataset(name, data=array, compression=compression)
                file.attrs["n_examples"] = 2
            written.append(buffer.getvalue())
    return written


def _checkpoint(path: Path) -> bytes:
    append_tensors(path, "model", {"weight": np.arange(6.0, dtype=np.float32)})
    write_metadata(path, {"global_step": 1})
    return path.read_bytes()


def _packed(path: Path) -> bytes:
    """Return a checkpoint with two values of a weight of 64 elements, and their mask."""
    values, words = np.array([1.5, -2.0], np.float32), np.array([9, 0], np.int32)
    specs = (
        PackedSpec("model.weight", values.shape, "float32", whole=(4, 16)),
        TensorSpec(f"{SPARSITY_MASK}.weight", words.shape, "int32"),
    )
    offsets = reserve_tensors(path, list(specs))
    with path.open("r+b") as file:
        for spec, content in zip(specs, (values, words), strict=True):
            file.seek(offsets[spec.name])
            file.write(content.tobytes())
    write_metadata(path, {"global_step": 1})
    return path.read_bytes()


def _latents() -> list[bytes]:
    """Return a latent of 2 channels and 2 x 2 points, plain and compressed."""
    written = []
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, vae_output=np.arange(16, dtype=np.float32).reshape(4, 2, 2))
        written.append(buffer.getvalue())
    return written


def _weights(name: str) -> dict[str, torch.Tensor]:
    """Return weights of a family as transformers names them."""
    family = DECODERS[name]
    section = family.section(_config(name))
    ours = {name: torch.zeros(shape) for name, shape in parameter_shapes(section).items()}
    return family.to_theirs(ours, section)


def conversion_targets(folder: Path) -> tuple[Target, ...]:
    """Return the readers of configurations, of weights, and of the index of their parts."""
    parts, configs = folder / "parts", [_config(name) for name in DECODERS]
    parts.mkdir()
    family, section = DECODERS["gpt2"], DECODERS["gpt2"].section(_config("gpt2"))
    theirs = {name: _weights(name) for name in DECODERS}
    weights = theirs["gpt2"]
    names = [f"pytorch_model-0000{part}-of-00002.bin" for part in (1, 2)]
    halves = [dict(list(weights.items())[part::2]) for part in range(2)]
    for name, half in zip(names, halves, strict=True):
        (parts / name).write_bytes(_saved(half))
    index = {"weight_map": {key: names[part] for part in range(2) for key in halves[part]}}

    def convert(path: Path) -> object:
        return family.to_ours(read_hf(path), section)

    def convert_config(path: Path) -> object:
        found = read_json(path)
        kind = str(found.get("model_type"))
        own = DECODERS.get(kind, family)
        return own.to_ours(dict(theirs.get(kind, weights)), own.section(found))

    return (
        Target(
            "config of transformers",
            4,
            of_trees(configs, as_json),
            through_file(folder / "config.json", convert_config),
        ),
        Target(
            "index of transformers",
            4,
            of_trees([index], as_json),
            through_file(parts / _INDEX, convert),
        ),
        Target(
            "weights of transformers",
            4,
            of_bytes([_saved(weights)]),
            through_file(folder / "pytorch_model.bin", convert),
        ),
    )


_HEADS = {"num_key_value_heads": 2, "head_dim": 2}
_MORE: Mapping[str, Mapping[str, Any]] = {
    "gptj": {"rotary_dim": 2},
    "gpt_neox": {"rotary_pct": 1.0},
    "gemma2": {**_HEADS, "query_pre_attn_scalar": 2},
    "gemma3_text": {**_HEADS, "query_pre_attn_scalar": 2},
    **dict.fromkeys(("mistral", "mixtral", "qwen3_moe", "gpt_oss"), _HEADS),
}
"""What a family needs besides the sizes, so that its layers fit them."""


def _config(model_type: str) -> dict[str, Any]:
    """Return a small config.json of a family."""
    family = DECODERS[model_type]
    sizes = {family.keys[ours]: value for ours, value in _SIZES.items()}
    positions = {family.keys["max_position_embeddings"]: 8}
    return {
        "model_type": model_type,
        **family.required,
        **sizes,
        **positions,
        **_MORE.get(model_type, {}),
    }


def _saved(weights: Weights) -> bytes:
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()
