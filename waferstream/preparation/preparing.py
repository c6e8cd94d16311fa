"""Prepare a dataset: portions of text side by side, a file for each, which is written once.

out/
    part_00000.h5 ...   sequences, as the zoo's GptHDF5MapDataProcessor reads them
    data_params.json    recipe, tokenizer and files, by which an interrupted command goes on

A file is a function of its portion and the recipe alone, so it depends neither on the number of
processes nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path

import h5py
import numpy as np

from waferstream.core.errors import ConfigError, DataError
from waferstream.host.files import replacing, write_json
from waferstream.host.locks import locked
from waferstream.preparation.documents import (
    SUFFIXES,
    Document,
    Fields,
    Portion,
    documents,
    portions,
)
from waferstream.preparation.processes import side_by_side
from waferstream.preparation.recipe import Recipe
from waferstream.preparation.sequences import Sequences, Tokens, arranged
from waferstream.preparation.tokenizer import Tokenizer, check_fits, open_tokenizer
from waferstream.preparation.written import (
    MANIFEST,
    NUM_DOCUMENTS,
    NUM_SEQUENCES,
    NUM_TOKENS,
    files_of,
    packing_of,
    part_name,
    read_manifest,
)
from waferstream.workload.data_files import find_files
from waferstream.workload.packing import Packing

Told = Callable[[int, int], None]
"""Called with the files that are done, and all."""

_AT_A_TIME = 256
"""Documents that the tokenizer is given together."""

_tokenizer = cache(open_tokenizer)


def prepare(recipe: Recipe, told: Told = lambda _done, _all: None) -> Packing:
    """Write the files of a dataset that are missing, and return how full its sequences are.

    Raises:
        ConfigError: The tokenizer does not fit, or the folder holds another dataset.
        DataError: A source is missing or damaged, or holds no document.
        OSError: A file cannot be written, or another process prepares the same folder.
    """
    tokenizer = _tokenizer(recipe.tokenizer, recipe.end_token)
    check_fits(tokenizer, recipe.tokenizer, recipe.vocab_size)
    found = [path for source in recipe.sources for path in find_files(source, SUFFIXES)]
    files = list(dict.fromkeys(path.resolve() for path in found))
    parts = portions(files, recipe.bytes_per_file)
    folder = recipe.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".preparing", 0):
        _begin(recipe, tokenizer, files)
        missing = [each for each in enumerate(parts) if not (folder / part_name(each[0])).exists()]
        done = len(parts) - len(missing)
        told(done, len(parts))
        for _ in side_by_side(partial(_write_part, recipe), missing, recipe.processes):
            done += 1
            told(done, len(parts))
    packing = packing_of(files_of(folder)) if parts else None
    if packing is None or not packing.num_tokens:
        raise _without_documents(recipe)
    return packing


def _begin(recipe: Recipe, tokenizer: Tokenizer, files: Sequence[Path]) -> None:
    """Write the description of a folder, or compare it with that of an interrupted command."""
    keys = recipe.model_dump(mode="json", exclude={"output_dir", "processes", "sources"})
    stats = [(str(path), path.stat()) for path in files]
    about = {
        **keys,
        "tokenizer_digest": tokenizer.digest,
        "files": [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats],
    }
    before = read_manifest(recipe.output_dir)
    if before is None and not list(recipe.output_dir.glob("*.h5")):
        write_json(recipe.output_dir / MANIFEST, about)
    elif before != about:
        changed = [key for key in about if before and about[key] != before.get(key)]
        raise ConfigError(
            "the folder holds another dataset",
            code="folder-of-another-dataset",
            where=str(recipe.output_dir),
            value=f"{', '.join(changed)} differ" if changed else f"files without {MANIFEST}",
            rule="a repeated command writes only what is missing",
            remedy="choose another --output_dir, or delete this folder",
        )


def _write_part(recipe: Recipe, numbered: tuple[int, Portion]) -> None:
    """Write the file of a portion."""
    number, portion = numbered
    tokenizer = _tokenizer(recipe.tokenizer, recipe.end_token)
    assert tokenizer.end is not None, "checked before the first file"
    fields = Fields(recipe.text_key, recipe.prompt_key)
    tokens = list(_tokens(documents(portion, fields), tokenizer))
    _check_known(tokens, tokenizer, recipe, portion)
    length, end = recipe.max_sequence_length, tokenizer.end
    found = arranged(tokens, recipe.layout, length, end)
    with replacing(recipe.output_dir / part_name(number)) as partial_path:
        write_sequences(partial_path, found)


def _tokens(texts: Iterator[Document], tokenizer: Tokenizer) -> Iterator[Tokens]:
    """Yield the tokens of documents, each with the token that ends it."""
    while some := list(islice(texts, _AT_A_TIME)):
        has_prompts = any(each.prompt for each in some)
        befores: list[list[int]] = [[] for _ in some]
        if has_prompts:
            befores = tokenizer.encode([each.prompt for each in some])
        own = tokenizer.encode([each.text for each in some], is_start=not has_prompts)
        for before, text in zip(befores, own, strict=True):
            ends = [] if text[-1:] == [tokenizer.end] else [tokenizer.end]
            ids = np.array([*before, *text, *ends], dtype=np.int32)
            yield Tokens(ids, np.arange(len(ids)) >= len(before))


def _check_known(
    tokens: Sequence[Tokens], tokenizer: Tokenizer, recipe: Recipe, portion: Portion
) -> None:
    """Raise ConfigError if a tokenizer cannot express a text."""
    unknown = sum(int((each.ids == tokenizer.unknown).sum()) for each in tokens)
    share = unknown / max(1, sum(map(len, tokens)))
    if tokenizer.unknown == tokenizer.end or share <= recipe.most_unknown:
        return
    raise ConfigError(
        "the tokenizer does not fit the text",
        code="tokenizer-does-not-fit",
        where=f"{recipe.tokenizer}, {portion[0].path}",
        value=f"{share:.0%} of the tokens stand for what it does not know",
        rule=f"at most {recipe.most_unknown:.0%}",
        remedy="take a tokenizer of this language or kind of text, or raise --most_unknown",
    )


def write_sequences(path: Path, sequences: Sequences) -> None:
    """Write sequences as a file, each compressed by itself."""
    rows = sequences.rows
    with h5py.File(path, "w") as file:
        chunk = (1, *rows.shape[1:]) if rows.ndim > 1 else None
        options = {"compression": "gzip", "compression_opts": 1} if len(rows) else {}
        file.create_dataset("data", data=rows, chunks=chunk if len(rows) else None, **options)
        if rows.ndim > 1:
            file.attrs[NUM_SEQUENCES] = len(rows)
        file.attrs[NUM_DOCUMENTS] = sequences.num_documents
        file.attrs[NUM_TOKENS] = sequences.num_tokens


def _without_documents(recipe: Recipe) -> DataError:
    return DataError(
        "the sources must hold a document of two tokens at least",
        code="no-documents",
        where=", ".join(recipe.sources),
        rule="files of text, lines of JSON or rows of a table that are not empty",
    )
