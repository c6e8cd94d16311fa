"""``waferstream data``: prepare texts as files of token sequences, and look at them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from waferstream.cli.frame.output import print_rows, prints_json, show
from waferstream.cli.tools.command import Command, argument
from waferstream.config.schema.generator import field_docstrings
from waferstream.core.config import dump_yaml, load_yaml, validate
from waferstream.preparation.preparing import prepare
from waferstream.preparation.recipe import Recipe
from waferstream.preparation.viewing import read_sequence
from waferstream.preparation.written import files_of, packing_of
from waferstream.workload.packing import Packing

_LONGEST_TEXT = 100
"""Characters of a document that a table shows; ``--json`` has all."""


def _preprocess(given: argparse.Namespace) -> int:
    """Write the files of a dataset, and show the dataloader section that reads them."""
    recipe = _recipe(given)
    with tqdm(unit="file", disable=None, leave=False, file=sys.stderr) as bar:

        def told(done: int, of_all: int) -> None:
            bar.total = of_all
            bar.update(done - bar.n)

        packing = prepare(recipe, told)
    section = _dataloader(recipe)
    if prints_json():
        return print_rows([{**_facts(packing), "dataloader": section}])
    print(
        f"{packing.text()}.\n\nRead it with\n\n{dump_yaml({'train_dataloader': section})}", end=""
    )
    return 0


def _recipe(given: argparse.Namespace) -> Recipe:
    """Return the keys of a file, below those that were typed."""
    keys = {} if given.config is None else load_yaml(given.config)
    typed = {name: getattr(given, name) for name in Recipe.model_fields if name != "sources"}
    keys |= {name: value for name, value in typed.items() if value is not None}
    if given.sources:
        keys["sources"] = given.sources
    return validate(Recipe, keys, str(given.config or "waferstream data preprocess"))


def _dataloader(recipe: Recipe) -> dict[str, Any]:
    """Return the section of a params file that reads what a recipe has made."""
    section: dict[str, Any] = {
        "data_processor": "GptHDF5MapDataProcessor",
        "data_dir": str(recipe.output_dir),
        "batch_size": 32,
        "shuffle": True,
    }
    if recipe.layout == "packed":
        section["use_vsl"] = True
    if recipe.layout == "corpus":
        section["max_sequence_length"] = recipe.max_sequence_length
    return section


def _view(given: argparse.Namespace) -> int:
    """Show how full the sequences are, and one of them."""
    sequence = read_sequence(given.place, given.sequence, given.tokenizer)
    rows = sequence.tokens() if given.tokens else sequence.documents()
    if prints_json():
        return print_rows(rows)
    packing = packing_of(files_of(given.place))
    if packing is not None:
        print(f"{packing.text()}.")
    print(f"Sequence {sequence.number:,}, in {sequence.file}:\n")
    shown = rows if given.tokens else [{**row, "text": _short(row["text"])} for row in rows]
    return show(shown)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _facts(packing: Packing) -> dict[str, Any]:
    return {
        "documents": packing.num_documents,
        "sequences": packing.num_sequences,
        "length": packing.length,
        "tokens": packing.num_tokens,
        "share_of_tokens": packing.share,
        "cost_of_padding": packing.cost_of_padding,
    }


_KEYS = tuple(
    argument(f"--{name}", help=" ".join(meaning.split("\n\n")[0].replace("``", "").split()))
    for name, meaning in field_docstrings(Recipe).items()
    if name != "sources"
)

COMMANDS = (
    Command(
        "preprocess",
        "turn texts, lines of JSON or tables into files of token sequences",
        _preprocess,
        (
            argument("sources", nargs="*", help="files, folders or globs: text, .jsonl, .parquet"),
            argument("--config", type=Path, help="file with the same keys as the flags"),
            *_KEYS,
        ),
    ),
    Command(
        "view",
        "show the documents of a prepared sequence",
        _view,
        (
            argument("place", type=Path, help="folder or file that was written"),
            argument("--sequence", type=int, default=0, help="which one (default: 0)"),
            argument("--tokens", action="store_true", help="show each token instead"),
            argument("--tokenizer", help="its folder or file (default: the one that wrote it)"),
        ),
    ),
)
