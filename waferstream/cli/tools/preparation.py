"""``waferstream data``: prepare texts as files of token sequences, and look at them."""

from __future__ import annotations

import sys
from dataclasses import asdict, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.progress import Progress
from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import print_rows, prints_json, show
from waferstream.config.schema.generator import field_docstrings
from waferstream.core.config import dump_yaml, load_yaml, validate
from waferstream.preparation.preparing import prepare
from waferstream.preparation.recipe import Recipe
from waferstream.preparation.viewing import read_sequence
from waferstream.preparation.written import files_of, packing_of
from waferstream.workload.packing import Packing

_LONGEST_TEXT = 100
"""Characters of a document that a table shows; ``--json`` has all."""


Keys = make_dataclass(
    "Keys",
    [
        (name, Annotated[str | None, Option(help=meaning.replace("``", ""))], None)
        for name, meaning in field_docstrings(Recipe).items()
        if name != "sources"
    ],
)
"""Flags for the keys of a recipe."""


@command("data preprocess", "texts --output_dir prepared --max_sequence_length 1024")
def preprocess(
    keys: Keys,  # type: ignore[valid-type]
    sources: Annotated[
        list[str] | None, Argument(help="files, folders or globs: text, .jsonl, .parquet")
    ] = None,
    config: Annotated[Path | None, Option(help="file with the same keys as the flags")] = None,
) -> int:
    """Turn texts, lines of JSON or tables into files of token sequences.

    It prints the section of a params file that reads them.
    """
    typed = {name: value for name, value in asdict(keys).items() if value is not None}
    if sources:
        typed["sources"] = sources
    read = {} if config is None else load_yaml(config)
    recipe = validate(Recipe, read | typed, str(config or "waferstream data preprocess"))
    shown = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as bar:
        files = bar.add_task("Files")
        packing = prepare(recipe, lambda done, of: bar.update(files, completed=done, total=of))
    section = _dataloader(recipe)
    if prints_json():
        return print_rows([{**_facts(packing), "dataloader": section}])
    print(f"{packing.text()}.\n\nRead it with\n")
    print(dump_yaml({"train_dataloader": section}), end="")
    return 0


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


@command("data view", "prepared --sequence 3")
def view(
    place: Annotated[Path, Argument(help="folder or file that was written")],
    sequence: Annotated[int, Option(help="which one")] = 0,
    tokens: Annotated[bool, Option(help="show each token instead")] = False,
    tokenizer: Annotated[
        str | None, Option(help="its folder or file (default: the one that wrote it)")
    ] = None,
) -> int:
    """Show the documents of a prepared sequence, and how full all of them are."""
    found = read_sequence(place, sequence, tokenizer)
    rows = found.tokens() if tokens else found.documents()
    if prints_json():
        return print_rows(rows)
    packing = packing_of(files_of(place))
    if packing is not None:
        print(f"{packing.text()}.")
    print(f"Sequence {found.number:,}, in {found.file}:\n")
    for row in () if tokens else rows:
        if len(row["text"]) > _LONGEST_TEXT:
            row["text"] = f"{row['text'][:_LONGEST_TEXT]}..."
    return show(rows)


def _facts(packing: Packing) -> dict[str, Any]:
    return {
        "documents": packing.num_documents,
        "sequences": packing.num_sequences,
        "length": packing.length,
        "tokens": packing.num_tokens,
        "share_of_tokens": packing.share,
        "cost_of_padding": packing.cost_of_padding,
    }
