"""``waferstream generate``, ``serve`` and ``batch``: answers of a trained model."""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waferstream.cli.accounts import COMMANDS as OF_ACCOUNTS
from waferstream.cli.accounts import run_accounts
from waferstream.cli.planning import add_planning, check_serves, run_planning
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.host.files import json_text
from waferstream.host.loopback import is_loopback
from waferstream.host.terminal import log_to_terminal

if TYPE_CHECKING:
    from waferstream.serving.deployment import Deployment
    from waferstream.serving.questions import End

COMMANDS = ("generate", "serve", "batch")

_DTYPES = ("float32", "bfloat16")

_DTYPE = "of weights and activations (default: float32)"

_WAFERS = "wafers that share the layers (default: 1; of a plan: as few as are worth it)"

_THREADS = "threads of a step (default: 1, best on a host that does other work)"

_ENGINE = "what computes: torch, or the array of PEs in its order, for small models"

_REGION = "processing elements along a side of that array (default: 512)"

_DRAFT = "smaller model with the same tokens, which proposes what the model then verifies"

_PICTURE = "drawing of batches whose layers stay, or whose weights stream, .png or .svg"

_OUT = "file of the answers, which goes on where it ends; beside it .errors.jsonl"

_FILES = "folder that keeps files and batches of clients (default: until the service ends)"

_APPLIANCE = "let the appliance at host:port serve, on a wafer for each of --wafers"

ANSWER_S = 600.0
"""The longest time between two pieces of an answer."""


def serving_parser(command: str) -> argparse.ArgumentParser:
    """Build the argparse parser of one of the commands."""
    parser = argparse.ArgumentParser(prog=f"waferstream {command}", allow_abbrev=False)
    parser.add_argument(
        "model_dir", type=Path, help="folder of a run or of Hugging Face, a .gguf file, or smollm2"
    )
    if command == "generate":
        _add_request(parser)
    elif command == "batch":
        parser.add_argument("file", type=Path, help="requests, a line of JSON each")
        parser.add_argument("--out", type=Path, required=True, help=_OUT)
        parser.add_argument("--picture", type=Path, help=_PICTURE)
    else:
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="address (default: 127.0.0.1); without --accounts one of loopback",
        )
        parser.add_argument(
            "--port", type=int, default=8000, help="0 takes a free one (default: 8000)"
        )
        parser.add_argument("--files", type=Path, help=_FILES)
        parser.add_argument("--mgmt_address", help=_APPLIANCE)
        parser.add_argument(
            "--detach", action="store_true", help="submit to the appliance, and return at once"
        )
        parser.add_argument(
            "--accounts", type=Path, help="file of keys (serve keys create); default: no keys"
        )
        parser.add_argument("--prices", type=Path, help="YAML of prices by model; default: free")
        add_planning(parser)
    _add_computing(parser)
    return parser


def _add_request(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``generate``."""
    parser.add_argument("prompt", help="the text to continue")
    parser.add_argument("--json", action="store_true", help="print JSON, with emulated times")
    group = parser.add_argument_group("answer")
    group.add_argument("--max_tokens", type=int, help="the most tokens (default: the context)")
    group.add_argument(
        "--temperature", type=float, default=1.0, help="0 takes the best token (default: 1)"
    )
    group.add_argument(
        "--top_p", type=float, default=1.0, help="share of probability to keep (default: 1)"
    )
    group.add_argument("--top_k", type=int, help="number of best tokens to keep (default: all)")
    group.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    group.add_argument(
        "--stop", action="append", default=[], help="text that ends the answer; may be repeated"
    )


def _add_computing(parser: argparse.ArgumentParser) -> None:
    """Declare how a model is computed."""
    group = parser.add_argument_group("how the model is computed")
    group.add_argument("--threads", type=int, default=1, help=_THREADS)
    group.add_argument("--dtype", choices=_DTYPES, default=_DTYPES[0], help=_DTYPE)
    group.add_argument("--draft", type=Path, metavar="MODEL", help=_DRAFT)
    group.add_argument("--wafers", type=int, help=_WAFERS)
    group.add_argument(
        "--runtime", choices=("local", "ray"), default="local", help="ray: a process for each wafer"
    )
    group.add_argument(
        "--engine", choices=("torch", "wafer", "wafer-cycles"), default="torch", help=_ENGINE
    )
    group.add_argument("--region", type=int, default=512, help=_REGION)


def run_serving(words: Sequence[str]) -> int:
    """Run one of the commands; return its exit code.

    Raises:
        ConfigError: An argument is wrong, or the folder cannot be served.
    """
    command, *rest = words
    if command == "serve" and rest[:1] and rest[0] in OF_ACCOUNTS:
        return run_accounts(rest)
    given = serving_parser(command).parse_args(rest)
    for name in ("threads", "region", "top_k", "max_tokens"):
        value = getattr(given, name, None)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} must be at least 1", code="out-of-range", value=value)
    if command == "serve":
        if given.plan or given.simulate:
            return run_planning(given)
        check_serves(given)
        if given.mgmt_address:
            return _serve_elsewhere(given, words)
    print(f"Loading {given.model_dir}", file=sys.stderr, flush=True)
    import torch  # noqa: PLC0415  (slow)

    torch.set_num_threads(given.threads)
    return {"generate": _generate, "serve": _serve, "batch": _batch}[command](given)


def _serve_elsewhere(given: argparse.Namespace, words: Sequence[str]) -> int:
    """Let an appliance serve, as a workflow that ends when it is cancelled."""
    from waferstream.management.client.site import address_of  # noqa: PLC0415
    from waferstream.management.client.submitting import (  # noqa: PLC0415  (gRPC)
        SWITCHES,
        submit,
        without,
    )
    from waferstream.management.manager.commands import OF_CLIENT  # noqa: PLC0415
    from waferstream.management.model.workflow import Submission  # noqa: PLC0415

    log_to_terminal("INFO")
    model = str(given.model_dir)
    place = str(given.model_dir.resolve()) if given.model_dir.exists() else model
    kept = (place if word == model else word for word in without(words, OF_CLIENT, SWITCHES))
    submission = Submission(
        words=tuple(kept),
        num_csx=given.wafers or 1,
        is_service=True,
        is_detached=given.detach,
    )
    address = address_of(given.mgmt_address)
    assert address is not None, "the command line names it"
    submit(address, submission, (), None)
    return 0


def _generate(given: argparse.Namespace) -> int:
    """Print the continuation of a text as it comes, or the whole as JSON."""
    from waferstream.serving.answers import Answers  # noqa: PLC0415  (imports torch: slow)
    from waferstream.serving.questions import Question  # noqa: PLC0415

    if "" in given.stop:
        raise ConfigError("--stop must be a text", code="out-of-range", where="--stop", value='""')
    _check_range("--temperature", given.temperature, least=0.0, most=2.0)
    _check_range("--top_p", given.top_p, least=1e-6, most=1.0)
    pieces: queue.Queue[object] = queue.Queue()
    sampling = Sampling(given.seed, given.temperature, given.top_p, given.top_k)
    with Answers(_deployment(given)) as answers:
        tokens = answers.model.text.encode(given.prompt)
        answers.ask(Question(tokens, sampling, given.max_tokens, given.stop), pieces.put)
        text, end = _print_pieces(pieces, shows_them=not given.json)
        if given.json:
            cycles = answers.take_cycles()
            print(json_text(_described(text, end) | ({"counted_cycles": cycles} if cycles else {})))
    return 0


def _print_pieces(pieces: queue.Queue[object], *, shows_them: bool) -> tuple[str, End]:
    """Return the text of an answer and its end, and print pieces as they come."""
    from waferstream.serving.questions import Piece  # noqa: PLC0415  (imports torch: slow)

    text = ""
    while True:
        piece = pieces.get(timeout=ANSWER_S)
        if isinstance(piece, AnswerFailed):
            raise piece.error
        assert isinstance(piece, Piece)
        text += piece.said.text
        if shows_them:
            print(piece.said.text, end="" if piece.end is None else "\n", flush=True)
        if piece.end is not None:
            return text, piece.end


def _described(text: str, end: End) -> dict[str, Any]:
    """Return an answer as it is printed in JSON."""
    return {
        "text": text,
        "finish_reason": end.reason,
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "seed": end.seed,
        "emulated_prompt_s": end.emulated.prompt_s,
        "emulated_completion_s": end.emulated.completion_s,
        "emulated_ps": end.emulated.attribution,
        "measured_s": end.measured_s,
    }


def _serve(given: argparse.Namespace) -> int:
    """Serve until a signal comes; requests that are under way then end first."""
    if given.accounts is None:
        _check_host(given.host)
    with _needing_packages():
        from waferstream.serving.http.server import (  # noqa: PLC0415  (starlette is an extra)
            ServiceSettings,
            serve,
        )
    settings = ServiceSettings(given.host, given.port, given.files, given.accounts, given.prices)
    serve(_deployment(given), settings, lambda url: print(url, flush=True))
    return 0


def _batch(given: argparse.Namespace) -> int:
    """Answer a file of requests; return 1 if some were refused."""
    with _needing_packages():
        from waferstream.serving.http.offline import answer_file  # noqa: PLC0415  (an extra)
    summary = answer_file(_deployment(given), given.file, given.out, given.picture)
    print(json_text(summary))
    return 1 if summary.failed else 0


@contextmanager
def _needing_packages() -> Iterator[None]:
    """Raise ConfigError if packages of the extra ``serve`` are not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            "serving must have its packages",
            code="serve-not-installed",
            value=error.name,
            remedy="pip install 'waferstream[serve]'",
        ) from error


def _deployment(given: argparse.Namespace) -> Deployment:
    """Return how the model of a command is served."""
    from appliance.spec import RuntimeSpec  # noqa: PLC0415  (imports torch: slow)
    from csnode.engine.spec import EngineSpec  # noqa: PLC0415  (imports torch: slow)
    from waferstream.serving.deployment import Deployment  # noqa: PLC0415  (likewise)

    wafers = 1 if given.wafers is None else given.wafers
    runtime = RuntimeSpec(kind=given.runtime)
    engine = EngineSpec(default=given.engine, rows=given.region, columns=given.region)
    return Deployment(given.model_dir, wafers, runtime, engine, given.dtype, given.draft)


def _check_host(host: str) -> None:
    """Raise ConfigError for an address that others reach: without keys they all could ask."""
    if not is_loopback(host):
        raise ConfigError(
            "the service must listen on loopback",
            code="serve-beyond-loopback",
            where="--host",
            value=host,
            rule="without --accounts everybody who reaches it may use it",
            remedy="give it keys (waferstream serve keys create NAME, --accounts accounts.db)",
        )


def _check_range(flag: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(
            f"{flag} must be in its range",
            code="out-of-range",
            where=flag,
            value=value,
            rule=f"{least:g} to {most:g}",
        )
