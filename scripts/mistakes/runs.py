"""Mistakes about files that a run reads and writes: 21 to 23, 33 to 35 and 40."""

from __future__ import annotations

from scripts.mistakes import surroundings
from scripts.mistakes.mistake import Mistake, Typed

_TRAIN = "waferstream train params.yaml"
_TRAINED = "training itself: the loss of a step"
_RUN = ("model_dir",)

RUNS = (
    Mistake(
        21,
        "a checkpoint that is not there",
        (
            Typed(
                f"{_TRAIN} --checkpoint_path nowhere.mdl",
                ("[checkpoint-not-readable]", "nowhere.mdl", "remedy:"),
            ),
            Typed(
                "waferstream serve nowhere",
                ("nowhere", "rule:", "remedy:"),
            ),
        ),
    ),
    Mistake(
        22,
        "a vocabulary smaller than the ids of the data",
        (
            Typed(
                _TRAIN,
                (
                    "[token-out-of-vocabulary]",
                    "which is 100",
                    "train_dataloader",
                    "raise vocab_size",
                ),
                edits=(("vocab_size: 256", "vocab_size: 100"),),
            ),
        ),
    ),
    Mistake(
        23,
        "a learning rate of 3e9",
        (
            Typed(
                _TRAIN,
                ("[loss-not-finite]", "step 2", "lower the learning rate"),
                edits=(("lr: 0.01", "lr: 3.0e9"),),
                needs=_TRAINED,
                leaves=_RUN,
            ),
        ),
    ),
    Mistake(
        33,
        "a model_dir of another model; of the same model with another seed, data or rate",
        (
            Typed(
                f"{_TRAIN} --model.hidden_size 64 --max_steps 8",
                ("[run-changed]", "hidden_size: 64 (was 32)", "model_dir of its own"),
                prepare=surroundings.after_run,
                leaves=_RUN,
            ),
            Typed(
                f"{_TRAIN} --train_dataloader.path other.txt --max_steps 5",
                ("[run-changed]", "train_dataloader.path", "model_dir of its own"),
                prepare=surroundings.after_run,
                files={"other.txt": "another text, of which a model learns else\n" * 800},
                needs="the data of the two runs are compared, by their processor",
                leaves=_RUN,
            ),
            *(
                Typed(
                    f"{_TRAIN} --{key} {value} --max_steps 5",
                    ("Other values than in the run that wrote", "model_dir/checkpoint_4.mdl", said),
                    prepare=surroundings.after_run,
                    needs="the run goes on, which it may with these",
                    leaves=_RUN,
                    code=(0,),
                )
                for key, value, said in (
                    ("init.seed", "7", "seed: 7 (was 1)"),
                    ("optimizer.AdamW.lr", "0.5", "lr: 0.5 (was 0.01)"),
                )
            ),
        ),
    ),
    Mistake(
        34,
        'a model_dir "", on a full disk, read-only, a file, a pipe',
        (
            Typed(f"{_TRAIN} --model_dir ''", ("model_dir", "rule:", "remedy:")),
            Typed(
                f"{_TRAIN} --model_dir disk/model_dir",
                ("disk/model_dir", "No space left", "remedy:"),
                prepare=surroundings.full_disk,
            ),
            Typed(
                f"{_TRAIN} --model_dir disk/model_dir",
                ("disk/model_dir", "No space left", "remedy:"),
                prepare=surroundings.small_disk,
                needs="the disk has room for a log, and none for the checkpoint",
                leaves=("disk",),
            ),
            Typed(
                f"{_TRAIN} --model_dir disk/model_dir",
                ("[model-dir-not-writable]", "disk/model_dir", "read-only", "remedy:"),
                prepare=surroundings.read_only_disk,
            ),
            Typed(
                f"{_TRAIN} --model_dir text.txt",
                ("[model-dir-not-writable]", "text.txt is no folder", "remedy:"),
            ),
            Typed(
                f"{_TRAIN} --model_dir pipe",
                ("[model-dir-not-writable]", "pipe is no folder", "remedy:"),
                prepare=surroundings.pipe,
            ),
        ),
    ),
    Mistake(
        35,
        "two runs in one model_dir",
        (
            Typed(
                _TRAIN,
                ("[model-dir-in-use]", "model_dir", "remedy:"),
                prepare=surroundings.beside_run,
                leaves=_RUN,
            ),
        ),
    ),
    Mistake(
        40,
        "a folder of Hugging Face, a GGUF or an .mdl where another of them is meant",
        (
            Typed(
                f"{_TRAIN} --checkpoint_path llama",
                (
                    "[checkpoint-of-other-kind]",
                    "llama is a folder",
                    "waferstream checkpoint convert",
                ),
                files={"llama/config.json": '{"model_type": "llama"}'},
            ),
            Typed(
                f"{_TRAIN} --checkpoint_path llama.gguf",
                ("[checkpoint-of-other-kind]", "llama.gguf is a GGUF", "waferstream serve"),
                files={"llama.gguf": b"GGUF\3" + bytes(19)},
            ),
            Typed(
                f"{_TRAIN} --checkpoint_path model.safetensors",
                ("[checkpoint-of-other-kind]", "safetensors", "waferstream checkpoint convert"),
                files={"model.safetensors": b"\2" + bytes(7) + b"{}"},
            ),
            Typed(
                f"{_TRAIN} --checkpoint_path half.mdl",
                ("[checkpoint-damaged]", "half.mdl", "remedy:"),
                files={"half.mdl": b"\x89HDF\r\n\x1a\n"},
            ),
            Typed(
                "waferstream train half.mdl",
                ("half.mdl", "checkpoint", "--checkpoint_path"),
                files={"half.mdl": b"\x89HDF\r\n\x1a\n"},
            ),
            Typed(
                "waferstream serve half.mdl",
                ("half.mdl", "rule:", "remedy:"),
                files={"half.mdl": b"\x89HDF\r\n\x1a\n"},
            ),
            Typed(
                "waferstream generate params.yaml 'once upon'",
                ("[nothing-to-serve]", "params.yaml", "remedy:"),
            ),
        ),
    ),
)
