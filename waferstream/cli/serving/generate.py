"""``waferstream generate`` and ``batch``: the continuation of a text, answers to many requests."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import answer, prints_json
from waferstream.cli.serving.computing import Computing, Model, needing_packages
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.host.files import json_text

if TYPE_CHECKING:
    from waferstream.serving.questions import End

ANSWER_S = 600.0
"""The longest time between two pieces of an answer."""


@command("generate", 'model_dir "Once upon" --max_tokens 40')
def generate(
    model_dir: Model,
    prompt: Annotated[str, Argument(help="the text to continue")],
    computing: Computing,
    max_tokens: Annotated[
        int | None, Option(min=1, help="the most tokens (default: the context)")
    ] = None,
    temperature: Annotated[float, Option(min=0, max=2, help="0 takes the best token")] = 1.0,
    top_p: Annotated[float, Option(min=1e-6, max=1, help="share of probability to keep")] = 1.0,
    top_k: Annotated[
        int | None, Option(min=1, help="number of best tokens to keep (default: all)")
    ] = None,
    seed: Annotated[int, Option(help="of the random numbers")] = 1,
    stop: Annotated[
        list[str] | None, Option(help="text that ends the answer; may be repeated")
    ] = None,
) -> int:
    """Print the continuation of a text as it comes, or the whole as JSON, with emulated times."""
    if "" in (stop or ()):
        raise ConfigError("--stop must be a text", code="out-of-range", where="--stop", value='""')
    deployment = computing.deployment(model_dir)
    from waferstream.serving.answers import Answers  # noqa: PLC0415  (imports torch: slow)
    from waferstream.serving.questions import Question  # noqa: PLC0415  (likewise)

    pieces: queue.Queue[object] = queue.Queue()
    with Answers(deployment) as answers:
        tokens = answers.model.text.encode(prompt)
        sampling = Sampling(seed, temperature, top_p, top_k)
        answers.ask(Question(tokens, sampling, max_tokens, stop or []), pieces.put)
        text, end = _print_pieces(pieces, shows_them=not prints_json())
        if prints_json():
            cycles = answers.take_cycles()
            answer(_described(text, end) | ({"counted_cycles": cycles} if cycles else {}), text)
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


@command("batch", "model_dir requests.jsonl --out answers.jsonl")
def batch(
    model_dir: Model,
    file: Annotated[Path, Argument(help="requests, a line of JSON each")],
    out: Annotated[
        Path,
        Option(help="file of the answers, which goes on where it ends; beside it .errors.jsonl"),
    ],
    computing: Computing,
    picture: Annotated[
        Path | None,
        Option(help="drawing of batches whose layers stay, or whose weights stream, .png or .svg"),
    ] = None,
) -> int:
    """Answer a file of requests; the exit code is 1 if some were refused."""
    deployment = computing.deployment(model_dir)
    with needing_packages():
        from waferstream.serving.http.offline import answer_file  # noqa: PLC0415  (an extra)
    summary = answer_file(deployment, file, out, picture)
    print(json_text(summary))
    return 1 if summary.failed else 0
