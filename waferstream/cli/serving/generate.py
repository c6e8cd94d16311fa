"""``waferstream generate``: the continuation of a text."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import prints_json
from waferstream.cli.serving.computing import MODEL, Computing
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.host.files import json_text

if TYPE_CHECKING:
    from waferstream.serving.questions import End

ANSWER_S = 600.0
"""The longest time between two pieces of an answer."""


@dataclass(frozen=True)
class Request:
    """Flags that say what an answer is like."""

    PANEL: ClassVar = "answer"

    max_tokens: Annotated[
        int | None, Option(min=1, help="the most tokens (default: the context)")
    ] = None
    temperature: Annotated[float, Option(min=0, max=2, help="0 takes the best token")] = 1.0
    top_p: Annotated[float, Option(min=1e-6, max=1, help="share of probability to keep")] = 1.0
    top_k: Annotated[
        int | None, Option(min=1, help="number of best tokens to keep (default: all)")
    ] = None
    seed: Annotated[int, Option(help="of the random numbers")] = 1
    stop: Annotated[list[str] | None, Option(help="text that ends the answer; may be repeated")] = (
        None
    )

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.seed, self.temperature, self.top_p, self.top_k)


@command("generate", 'model_dir "Once upon" --max_tokens 40')
def generate(
    model_dir: Annotated[Path, MODEL],
    prompt: Annotated[str, Argument(help="the text to continue")],
    request: Request,
    computing: Computing,
) -> int:
    """Print the continuation of a text as it comes, or the whole as JSON, with emulated times."""
    stop = request.stop or []
    if "" in stop:
        raise ConfigError("--stop must be a text", code="out-of-range", where="--stop", value='""')
    deployment = computing.deployment(model_dir)
    from waferstream.serving.answers import Answers  # noqa: PLC0415  (imports torch: slow)
    from waferstream.serving.questions import Question  # noqa: PLC0415  (likewise)

    pieces: queue.Queue[object] = queue.Queue()
    with Answers(deployment) as answers:
        tokens = answers.model.text.encode(prompt)
        answers.ask(Question(tokens, request.sampling, request.max_tokens, stop), pieces.put)
        text, end = _print_pieces(pieces, shows_them=not prints_json())
        if prints_json():
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
