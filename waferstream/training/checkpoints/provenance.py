"""What decides about the weights of a run, recorded in its checkpoints, and compared on resuming.

The record is flat: a dotted key for every value of the model, the data, the seed, the optimizer,
its schedules, the precision and what computes kernels, and digests of files of data and of the
user's code. What neither weights nor losses depend on (systems, length, logs) is no part of it.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import logging
import sys
import sysconfig
import tokenize
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from appliance.spec import RuntimeSpec
from waferstream.checkpoint.reader import Reader
from waferstream.config.params import InitConfig
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.units import MIB
from waferstream.core.user_code import import_class
from waferstream.training.checkpoints.changes import STATE, changes_of, listed, of_another_run
from waferstream.workload.data import data_processor
from waferstream.workload.models import known_config
from waferstream.workload.user_classes import CLASS, LOSS

log = logging.getLogger("waferstream")

_MODEL, _DATA = "model", "train_dataloader"
_HARMLESS = ("batch_size", "dropout")  # in a key: values that a run may change on its way
_UNRECORDED = ("num_workers", "prefetch_factor", "persistent_workers")
_SETTINGS = ("seed", "optimizer", "schedulers", "precision", "sparsity")

_MOST_FILES = 10_000  # of a folder
_MOST_BYTES = 64 * MIB  # that are read; of more, the beginnings and ends of files
_LEAST_BYTES = 4096  # of a file
_OWN = ("modelzoo", "cstorch", "waferstream", "torch", "builtins")
_PASSING = (".lock", ".partial", ".tmp")  # files that loaders leave in a folder of data
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING}


def record_of(
    init: InitConfig,
    model: nn.Module,
    data: DataLoaderConfig | None = None,
    runtime: RuntimeSpec | None = None,
) -> dict[str, Any]:
    """Return the record of a run; without ``data`` that of its model alone.

    Of ``runtime`` it has the engine of kernels and the device, where they are not the default.
    """
    record = dict(_flat(_MODEL, _model_section(init)))
    record[f"{_MODEL} code"] = code_digest(_code_of_model(init, model))
    if data is not None:
        record |= _flat(_DATA, _data_section(data))
        record[f"{_DATA} code"] = code_digest(_code_of_data(data.dump()))
        dumped = init.dump()
        for name in _SETTINGS:
            record |= _flat(name, dumped.get(name))
    if runtime is not None:
        kernels = runtime.model_dump(include={"engine", "device"}, exclude_defaults=True)
        record |= _flat("runtime", kernels)
    found: dict[str, Any] = json.loads(json.dumps(record))  # as a checkpoint has it
    return found


def check_changes(path: Path, record: Mapping[str, Any], refused: Collection[str]) -> None:
    """Say what differs from the run that wrote a checkpoint, and refuse it if that matters.

    An evaluation, whose record has the model alone, refuses nothing.

    Args:
        path: The checkpoint.
        record: That of this run.
        refused: States of the checkpoint that must come from the same model and data.

    Raises:
        CheckpointError: The model or the data is another one.
    """
    trains = f"{_DATA} code" in record
    before = Reader(path).objects.get(STATE)
    if not isinstance(before, Mapping):
        log.debug("%s says nothing about the run that wrote it", path)
        return
    keys = {key for key in before.keys() | record.keys() if trains or _section_of(key) == _MODEL}
    changes = changes_of(before, record, keys)
    serious = [change for change in changes if _is_serious(change.key, refused)]
    if trains and serious:
        raise of_another_run(path, serious)
    if changes:
        log.warning("Other values than in the run that wrote %s: %s", path, listed(changes))


def _is_serious(key: str, refused: Collection[str]) -> bool:
    if any(word in key for word in _HARMLESS):
        return False
    state = {_MODEL: "model", _DATA: "dataloader"}.get(_section_of(key))
    return state in refused


def _section_of(key: str) -> str:
    return key.split(".", maxsplit=1)[0].removesuffix(" code")


def _model_section(init: InitConfig) -> Mapping[str, Any]:
    section = init.model.dump()
    known = known_config(section, "trainer.init.model")
    return section if known is None else known.model_dump(mode="json")


def _data_section(data: DataLoaderConfig) -> Mapping[str, Any]:
    """Return the section of a loader with digests in the place of files."""
    section = data.dump()
    if CLASS not in section:
        section = data_processor(section, "trainer.fit.train_dataloader").model_dump(mode="json")
    return {key: _identity(each) for key, each in section.items() if key not in _UNRECORDED}


def _identity(value: Any) -> Any:
    """Return a value with digests in the place of the files that it names."""
    match value:
        case str() if value:
            return file_digest(Path(value)) or value
        case list():
            return [_identity(each) for each in value]
        case Mapping():
            return {key: _identity(each) for key, each in value.items()}
    return value


def _code_of_model(init: InitConfig, model: nn.Module) -> Iterator[str]:
    """Yield the modules that a model is written in."""
    yield from (type(each).__module__ for each in model.modules())
    section = init.model.dump()
    yield from _named_code(section)
    yield from _named_code(section.get(LOSS) or {})


def _code_of_data(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the modules that a data loader is written in."""
    yield from _named_code(section)
    if CLASS not in section:
        yield type(data_processor(section, "trainer.fit.train_dataloader")).__module__


def _named_code(section: Mapping[str, Any]) -> Iterator[str]:
    if CLASS in section:
        yield import_class(section[CLASS], CLASS).__module__


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value below a section with its dotted key; a list is one value."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(f"{prefix}.{key}", each)
    elif value is not None:
        yield prefix, value


def file_digest(path: Path) -> str | None:
    """Return size and checksum of a file, or of the files of a folder; None if there is none.

    Where the files lie is no part of it.
    """
    try:
        files = [path] if path.is_file() else list(_files_in(path)) if path.is_dir() else []
        if not files:
            return None
        limit = max(_MOST_BYTES // len(files), _LEAST_BYTES)
        checksum, total = 0, 0
        for file in files:
            size = file.stat().st_size
            name = "" if file == path else str(file.relative_to(path))
            checksum = zlib.crc32(f"{name} {size} ".encode(errors="replace"), checksum)
            for piece in _pieces(file, size, limit):
                checksum = zlib.crc32(piece, checksum)
            total += size
    except (OSError, ValueError):  # no path at all, or none that can be read here
        return None
    return f"{total} bytes, CRC {checksum:08x}"


def code_digest(modules: Iterable[str]) -> str:
    """Return a digest of the user's modules among some; comments and empty lines do not count."""
    digest = hashlib.sha256()
    for name in sorted(set(modules)):
        if (text := _source(name)) is not None:
            digest.update(f"{name} ".encode())
            digest.update(_without_layout(text).encode())
    return digest.hexdigest()[:16]


def _files_in(folder: Path) -> Iterator[Path]:
    found = (
        each
        for each in sorted(folder.rglob("*"))
        if each.suffix not in _PASSING and not each.name.startswith(".") and each.is_file()
    )
    for _, file in zip(range(_MOST_FILES), found, strict=False):
        yield file


def _pieces(file: Path, size: int, limit: int) -> Iterator[bytes]:
    with file.open("rb") as content:
        if size <= limit:
            yield content.read(limit)
            return
        yield content.read(limit // 2)
        content.seek(size - limit // 2)
        yield content.read(limit // 2)


def _source(name: str) -> str | None:
    """Return the text of a module of the user's, None for those of packages and without files."""
    module = sys.modules.get(name)
    if module is None or name.split(".", maxsplit=1)[0] in _OWN:
        return None
    try:
        file = Path(inspect.getsourcefile(module) or "").resolve()
        is_installed = "site-packages" in file.parts or "dist-packages" in file.parts
        if is_installed or file.is_relative_to(sysconfig.get_path("stdlib")):
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, TypeError, ValueError):
        return None


def _without_layout(text: str) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    return " ".join(token.string for token in tokens if token.type not in _LAYOUT)
