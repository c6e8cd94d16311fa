"""The loss of Connectionist Temporal Classification (CTC) as ops of fixed shapes.

torch computes it in one op that reads lengths on the host. Here lengths are masks, and the
recursion of A. Graves et al., "Connectionist Temporal Classification" (ICML 2006), section 4.1, is
unrolled over time: every step computes all states of all samples, in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.compiler.capture.selected_labels import SelectedLabels
from waferstream.core.errors import ApplianceCompilationError

_REDUCTIONS = ("none", "mean", "sum")  # in the order of aten's numbers

Lengths = torch.Tensor | Sequence[int] | int


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Return the loss of torch's function of that name, with its gradient.

    Arguments are as there. A length that is out of range gives NaN, which ends the run like any
    other loss that is not finite: a traced tensor has no value to check.

    Raises:
        ApplianceCompilationError: Targets are concatenated, or a shape or the blank does not fit.
    """
    if isinstance(targets, SelectedLabels):
        targets = targets.padded(torch.as_tensor(target_lengths, device=log_probs.device))
    named = reduction if isinstance(reduction, str) else _REDUCTIONS[reduction]
    is_batched = log_probs.dim() == 3
    scores = (log_probs if is_batched else log_probs.unsqueeze(1)).to(_dtype(log_probs))
    labels = targets if is_batched else targets.reshape(1, -1)
    within, length = (_as_tensor(each, scores) for each in (input_lengths, target_lengths))
    _check(scores, labels, within, length, blank)
    losses: torch.Tensor = _Ctc.apply(  # type: ignore[no-untyped-call]
        scores, labels.long(), within, length, blank, zero_infinity
    )
    if named == "mean":
        return (losses / length.clamp(min=1).to(losses.dtype)).mean()
    if named == "sum":
        return losses.sum()
    return losses if is_batched else losses.squeeze(0)


class _Ctc(torch.autograd.Function):
    """Losses of samples, and their gradient as torch defines it.

    Like torch's, the gradient is that of the scores before the softmax: it equals the derivative by
    ``log_probs`` after it has passed through log_softmax.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        labels: torch.Tensor,
        within: torch.Tensor,
        length: torch.Tensor,
        blank: int,
        zero_infinity: bool,
    ) -> torch.Tensor:
        """Return one loss per sample."""
        states, skips = _states(labels, length, blank)
        emitted = scores.gather(2, states.expand(len(scores), -1, -1))
        finals = _finals(length, states, scores)
        alphas = _alphas(emitted, skips, within)
        loss = -(alphas[-1] + finals).logsumexp(1)
        most, longest = len(scores), labels.shape[1]
        wrong = (within < 0) | (within > most) | (length < 0) | (length > longest)
        loss = loss.masked_fill(wrong, math.nan)
        ctx.save_for_backward(scores, states, skips, within, finals, alphas[1:], emitted, loss)
        ctx.zero_infinity = zero_infinity
        return loss.masked_fill(loss == math.inf, 0.0) if zero_infinity else loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the softmax less the posterior probability of each label, at each time."""
        scores, states, skips, within, finals, alphas, emitted, loss = ctx.saved_tensors
        betas = _betas(emitted, skips, within, finals)
        posterior = (alphas + betas + loss.unsqueeze(1)).exp()
        index = states.expand(len(scores), -1, -1)
        expected = torch.zeros_like(scores).scatter_add(2, index, posterior)
        result = (scores.exp() - expected) * gradient.unsqueeze(1)
        times = torch.arange(len(scores), device=scores.device).unsqueeze(1)
        result = result.masked_fill((times >= within).unsqueeze(2), 0.0)
        if ctx.zero_infinity:
            result = result.masked_fill((loss == math.inf).unsqueeze(1), 0.0)
        return result, None, None, None, None, None


def _states(
    labels: torch.Tensor, length: torch.Tensor, blank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the label of each state, and which states may follow the last but one.

    Blanks surround the labels, so there are 2 S + 1 states. Padding counts as blank.
    """
    places = torch.arange(labels.shape[1], device=labels.device)
    kept = labels.masked_fill(places >= length.unsqueeze(1), blank)
    blanks = torch.full_like(kept, blank)
    pairs = torch.stack([blanks, kept], 2).flatten(1)
    states = functional.pad(pairs, (0, 1), value=blank)
    skips = functional.pad(states[:, 2:] != states[:, :-2], (2, 0), value=False)
    return states, skips[:, : states.shape[1]]


def _finals(length: torch.Tensor, states: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Return 0 for the two states in which a sample may end, else -inf."""
    places = torch.arange(states.shape[1], device=states.device)
    last = 2 * length.unsqueeze(1)
    is_final = (places == last) | (places == last - 1)
    return _logarithm(is_final, scores)


def _alphas(emitted: torch.Tensor, skips: torch.Tensor, within: torch.Tensor) -> torch.Tensor:
    """Return the forward variables before the first time and after each (equations 5 to 8).

    From the end of a sample's input they stay.
    """
    first = torch.arange(emitted.shape[2], device=emitted.device) == 0
    alpha = _logarithm(first, emitted).expand(emitted.shape[1:])
    allowed = _logarithm(skips, emitted)
    alphas = [alpha]
    for time, emission in enumerate(emitted):
        reached = torch.logaddexp(alpha, _shifted(alpha, 1))
        reached = torch.logaddexp(reached, _shifted(alpha, 2) + allowed)
        alpha = torch.where((time < within).unsqueeze(1), reached + emission, alpha)
        alphas.append(alpha)
    return torch.stack(alphas)


def _betas(
    emitted: torch.Tensor, skips: torch.Tensor, within: torch.Tensor, finals: torch.Tensor
) -> torch.Tensor:
    """Return the backward variables of each time, without what it emits itself (equation 10)."""
    allowed = _logarithm(skips, emitted)
    beta = finals
    betas = [beta]
    for time in range(len(emitted) - 1, 0, -1):
        ahead = beta + emitted[time]
        reached = torch.logaddexp(ahead, _shifted(ahead, -1))
        reached = torch.logaddexp(reached, _shifted(ahead + allowed, -2))
        beta = torch.where((time < within).unsqueeze(1), reached, beta)
        betas.append(beta)
    return torch.stack(betas[::-1])


def _shifted(rows: torch.Tensor, by: int) -> torch.Tensor:
    """Return rows moved to higher states (by > 0) or lower ones, with -inf where none was."""
    count = rows.shape[1]
    padded = functional.pad(rows, (max(by, 0), max(-by, 0)), value=-math.inf)
    return padded[:, :count] if by > 0 else padded[:, -count:]


def _logarithm(allowed: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return 0 where something is allowed, else -inf."""
    zeros = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill(~allowed, -math.inf)


def _dtype(scores: torch.Tensor) -> torch.dtype:
    """Return the dtype of the loss: at least float32, as autocast has it."""
    return torch.promote_types(scores.dtype, torch.float32)


def _as_tensor(lengths: Lengths, scores: torch.Tensor) -> torch.Tensor:
    """Return one length per sample; a sample without a batch has a scalar."""
    found = torch.as_tensor(lengths, device=scores.device).long()
    return found.reshape(1) if found.dim() == 0 else found


def _check(
    scores: torch.Tensor,
    labels: torch.Tensor,
    within: torch.Tensor,
    length: torch.Tensor,
    blank: int,
) -> None:
    """Raise ApplianceCompilationError for arguments whose shapes do not fit."""
    _, batch, classes = scores.shape
    if labels.dim() != 2 or len(labels) != batch:
        raise ApplianceCompilationError(
            "targets of CTCLoss must have the shape (N, S)",
            code="ctc-targets-not-padded",
            where=calling_line(),
            value=f"{tuple(labels.shape)} for a batch of {batch}",
            rule="concatenated targets have no batch dimension that systems can divide",
            remedy="pad the targets of each sample to one length S, with any number",
        )
    fits = within.shape == length.shape == (batch,)
    if not fits or not 0 <= blank < classes or not len(scores):
        raise ApplianceCompilationError(
            "CTCLoss must have one input length and one target length per sample, and a blank "
            "among its classes",
            code="ctc-arguments-do-not-fit",
            where=calling_line(),
            value=f"input_lengths {tuple(within.shape)}, target_lengths {tuple(length.shape)}, "
            f"blank {blank}",
            rule=f"log_probs has the shape {tuple(scores.shape)}: (T, N, C)",
        )
