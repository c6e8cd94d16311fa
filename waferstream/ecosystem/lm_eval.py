"""Models of ``lm_eval`` on the cluster: the evaluation harness of EleutherAI.

    from waferstream.ecosystem.lm_eval import HarnessModel
    results = lm_eval.simple_evaluate(model=HarnessModel("model_dir"), tasks=["arc_easy"])

A choice is one sample of an evaluation step, whose results are its log-probability and whether
it is what the model would choose. Texts are continued token by token on this host.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lm_eval.api.model import TemplateLM
from torch import nn

import cstorch
from cstorch.trainer import CSConfig
from waferstream.core.errors import ConfigError
from waferstream.serving.models.loading import ServedModel, load_model

Choice = tuple[tuple[str, str], list[int], list[int]]
"""Texts of a context and its continuation, and the tokens of both."""


class HarnessModel(TemplateLM):  # type: ignore[misc]  # checked without it
    """A decoder that the harness evaluates.

    Args:
        place: Folder of a run or of transformers, a GGUF file, or the name of a packaged model.
        options: What evaluates: fields of ``cstorch.CSConfig``, such as ``num_csx``.
    """

    def __init__(self, place: str | Path, **options: Any) -> None:
        super().__init__()
        self._served: ServedModel = load_model(Path(place))
        config = CSConfig(**options).for_cluster()
        self._backend = cstorch.backend("CSX", cluster_config=config)
        cstorch.amp.enable_mixed_precision(False)
        self._scorer = _Scorer(self._served.module).eval()
        self._compiled = cstorch.compile(self._scorer, self._backend)

    def shutdown(self) -> None:
        """End the cluster."""
        self._backend.shutdown()

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
        """Refuse tasks that let the model write: only choices are evaluated."""
        raise ConfigError(
            "a task must ask for choices",
            code="harness-task-writes",
            value=f"{len(requests)} texts to write",
            rule="tasks of output_type multiple_choice, loglikelihood or loglikelihood_rolling",
            remedy="serve the model (waferstream serve) and use the harness's local-completions",
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
