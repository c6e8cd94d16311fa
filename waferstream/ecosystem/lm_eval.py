"""Models of ``lm_eval`` on the cluster: the evaluation harness of EleutherAI.

    from waferstream.ecosystem.lm_eval import HarnessModel
    results = lm_eval.simple_evaluate(model=HarnessModel("model_dir"), tasks=["arc_easy"])

A choice is one sample of an evaluation step, whose results are its log-probability and whether
it is what the model would choose. Texts are continued as ``waferstream generate`` does.
"""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lm_eval.api.model import TemplateLM
from torch import nn

import cstorch
from cstorch.trainer import CSConfig
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.models.loading import ServedModel, load_model
from waferstream.serving.questions import Piece, Question

Choice = tuple[tuple[str, str], list[int], list[int]]
"""Texts of a context and its continuation, and the tokens of both."""

_MOST_TOKENS = 256
"""The tokens of an answer where a task states no limit, as in the harness."""

_OPTIONS = frozenset({"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k"})
"""What a task may state of its answers."""


class HarnessModel(TemplateLM):  # type: ignore[misc]  # checked without it
    """A decoder that the harness evaluates.

    Args:
        place: Folder of a run or of transformers, a GGUF file, or the name of a packaged model.
        options: What evaluates: fields of ``cstorch.CSConfig``, such as ``num_csx``.
    """

    def __init__(self, place: str | Path, **options: Any) -> None:
        super().__init__()
        self._place = Path(place)
        self._served: ServedModel = load_model(self._place)
        config = CSConfig(**options).for_cluster()
        self._backend = cstorch.backend("CSX", cluster_config=config)
        cstorch.amp.enable_mixed_precision(False)
        self._scorer = _Scorer(self._served.module).eval()
        self._compiled = cstorch.compile(self._scorer, self._backend)

    def shutdown(self) -> None:
        """End the cluster, and the wafers that write."""
        if "_answers" in vars(self):
            self._answers.close()
        self._backend.shutdown()

    @cached_property
    def _answers(self) -> Answers:
        """The model on wafers of this host."""
        return Answers(Deployment(self._place))

    @property
    def eot_token_id(self) -> int:
        """The token before a text without a context."""
        return min(self._served.text.ends, default=0)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_options: Any
    ) -> list[int]:
        """Return the tokens of a text; special ones are those of the model's tokenizer."""
        del add_special_tokens
        return list(self._served.text.encode(string))

    def _loglikelihood_tokens(
        self, requests: Sequence[Choice], **_options: Any
    ) -> list[tuple[float, bool]]:
        """Return log-probability of each continuation, and whether the model would choose it."""
        if not requests:
            return []
        rows = [_row(context, more, self._served.context) for _, context, more in requests]
        found: list[tuple[float, bool]] = []
        compiled = self._compiled

        @cstorch.trace
        def score(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            return compiled(**batch)  # type: ignore[no-any-return]

        @cstorch.step_closure
        def note(log_probability: torch.Tensor, misses: torch.Tensor) -> None:
            found.append((float(log_probability), float(misses) == 0))

        loader = cstorch.utils.data.DataLoader(_loader, rows)
        for batch in cstorch.utils.data.DataExecutor(loader, num_steps=len(rows)):
            note(*score(batch))
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], **_options: Any) -> list[float]:
        """Return the log-probability of each whole text, in windows of the model's context."""
        size = self._served.context
        windows: list[Choice] = []
        counts = []
        for request in requests:
            tokens = self.tok_encode(request.args[0])
            parts = [tokens[start : start + size] for start in range(0, len(tokens), size)]
            before = self.eot_token_id
            for part in parts:
                windows.append((("", ""), [before], part))
                before = part[-1]
            counts.append(len(parts))
        found = iter(self._loglikelihood_tokens(windows))
        return [sum(next(found)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: Sequence[Any], **_options: Any) -> list[str]:
        """Return how the model continues each text, up to a stop or the limit of tokens.

        Of a context that leaves no room for the answer the last tokens count, as in the harness.

        Raises:
            ConfigError: A task states what the service has not, or a limit beyond the context.
        """
        asked = [self._ask(*request.args) for request in requests]
        return [_whole(pieces) for pieces in asked]

    def _ask(self, context: str, options: Mapping[str, Any]) -> queue.Queue[Piece | AnswerFailed]:
        """Ask for a continuation; return the queue of its pieces."""
        most = options.get("max_gen_toks") or _MOST_TOKENS
        room = self._served.context - most
        if room < 1:
            raise _refused("max_gen_toks", most, f"less than the context, {most + room} tokens")
        for name in options.keys() - _OPTIONS:
            raise _refused(name, options[name], f"of {', '.join(sorted(_OPTIONS))}")
        stops = options.get("until") or ()
        question = Question(
            tuple(self.tok_encode(context)[-room:]) or (self.eot_token_id,),
            _sampling(options),
            most,
            (stops,) if isinstance(stops, str) else tuple(filter(None, stops)),
        )
        pieces: queue.Queue[Piece | AnswerFailed] = queue.Queue()
        self._answers.ask(question, pieces.put)
        return pieces


def _sampling(options: Mapping[str, Any]) -> Sampling:
    """Return how tokens are drawn: the best one, if a task does not want samples."""
    if not options.get("do_sample"):
        return Sampling(0, temperature=0.0)
    return Sampling(
        0, options.get("temperature", 1.0), options.get("top_p", 1.0), options.get("top_k")
    )


def _whole(pieces: queue.Queue[Piece | AnswerFailed]) -> str:
    """Return the text of an answer when it is complete."""
    text = ""
    while True:
        piece = pieces.get()
        if isinstance(piece, AnswerFailed):
            raise piece.error
        text += piece.said.text
        if piece.end is not None:
            return text


def _refused(name: str, value: object, rule: str) -> ConfigError:
    return ConfigError(
        "a task must state what the model can write",
        code="harness-answer-refused",
        where=f"generation_kwargs.{name}",
        value=value,
        rule=rule,
        remedy="change generation_kwargs of the task (lm_eval --gen_kwargs)",
    )


class _Scorer(nn.Module):
    """A decoder behind the score of one continuation."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor, counted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability of the counted labels, and how many are not the best."""
        scores = self.decoder.logits(input_ids)  # type: ignore[operator]
        losses = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none")
        weight = counted.flatten().float()
        misses = (scores.argmax(-1) != labels).flatten().float()
        return -(losses * weight).sum(), (misses * weight).sum()


def _row(context: list[int], more: list[int], length: int) -> dict[str, torch.Tensor]:
    """Return the sample of a continuation; of a long one the last tokens, as in the harness."""
    tokens = (context + more)[-(length + 1) :]
    inputs, labels = tokens[:-1], tokens[1:]
    counted = [0] * (len(labels) - min(len(more), len(labels))) + [1] * min(len(more), len(labels))
    padding = [0] * (length - len(inputs))
    return {
        "input_ids": torch.tensor(inputs + padding),
        "labels": torch.tensor(labels + padding),
        "counted": torch.tensor(counted + padding),
    }


def _loader(rows: Sequence[dict[str, torch.Tensor]]) -> Any:
    samples: Any = list(rows)  # which torch takes as a data set
    return torch.utils.data.DataLoader(samples, batch_size=1)
