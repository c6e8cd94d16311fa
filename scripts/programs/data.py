"""The data of the programs, in the places where they look for it: small, and learned quickly."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase

import numpy as np
from PIL import Image
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, PreTrainedTokenizerFast

LOCAL = {"runtime": {"kind": "local"}}
"""The machine of all runs: every role in the process of the program."""

SENTENCE = "The quick brown fox jumps over the lazy dog. O God, O God! "


def write_tokens(folder: Path) -> None:
    """Write tokens of a vocabulary of 64 where nanoGPT looks for them."""
    data = folder / "data" / "counted"
    data.mkdir()
    for name in ("train.bin", "val.bin"):
        (np.arange(4096) * 7 % 64).astype(np.uint16).tofile(data / name)


def write_text(folder: Path) -> None:
    """Write a text where the programs of minGPT and of the lecture look for it."""
    for place in (folder, folder / "projects" / "chargpt"):
        if place.is_dir():
            (place / "input.txt").write_text(SENTENCE * 100)


def write_language_model(folder: Path) -> None:
    """Write a text, a configuration and a tokenizer of letters for run_clm.py."""
    (folder / "input.txt").write_text(f"{SENTENCE}\n" * 100)
    vocabulary = {letter: i for i, letter in enumerate(("[UNK]", " ", *ascii_lowercase))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    small = folder / "small"
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", model_max_length=16
    ).save_pretrained(small)
    GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        **dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0),
    ).save_pretrained(small)


def write_images(folder: Path) -> None:
    """Write images of four classes, in a folder for each, as a data set of ImageNet has them."""
    draw = np.random.default_rng(1)
    for label in range(4):
        place = folder / "images" / "train" / str(label)
        place.mkdir(parents=True)
        for number in range(8):
            pixels = draw.integers(64 * label, 64 * label + 64, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.png")
