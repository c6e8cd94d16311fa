"""``cstorch.Trainer``: train a PyTorch model in three lines, for example in a notebook.

trainer = cstorch.Trainer(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config=cstorch.CSConfig(target_device="cs3", max_steps=100),
    loss_fn=torch.nn.functional.cross_entropy,
)
trainer.fit(dataloader)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import PositiveInt
from torch import nn

from appliance.spec import ClusterSpec
from cstorch.closures import step_closure
from cstorch.cluster.config import ClusterConfig, current_witness
from cstorch.compile import compile
from cstorch.current import existing_backend, replace_backend
from cstorch.model_output import loss_in
from cstorch.notices import say_precision
from cstorch.optim.taken import taken
from cstorch.terminal import log_to_terminal
from cstorch.trace import trace
from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.given_loader import FitLoaders
from waferstream.core.config import Config, validate
from waferstream.core.errors import ConfigError, ProgramOrderError

if TYPE_CHECKING:
    from cstorch.referee.referee import Referee

log = logging.getLogger("waferstream")

TARGETS = ("labels", "label", "targets", "target", "y")
"""Keys of a batch that ``loss_fn`` compares the model's output with."""

_SYSTEMS = {"cs2": "CS-2", "cs3": "CS-3"}


class CSConfig(Config):
    """What a ``Trainer`` runs on, and for how long."""

    target_device: Literal["cs2", "cs3", "csx", "cpu", "gpu"] = "csx"
    """The device: a kind of system, or ``csx`` for that of cluster.yaml."""

    max_steps: PositiveInt | None = None
    """Steps of one call of ``fit``; None for one epoch."""

    num_csx: PositiveInt = 1
    log_steps: PositiveInt = 1
    """Interval of steps at which losses come back."""

    seed: int = 0
    cluster: ClusterSpec | None = None
    """The emulated machine; None for cluster.yaml beside the program or in the working folder."""

    def for_cluster(self) -> ClusterConfig:
        """Return the settings of the cluster.

        Raises:
            ConfigError: A value is out of range.
        """
        taken: dict[str, Any] = {"num_csx": self.num_csx}
        if self.cluster is not None:
            taken["cluster"] = self.cluster
        config = validate(ClusterConfig, taken, "CSConfig").with_found_machine()
        system = _SYSTEMS.get(self.target_device)
        return config if system is None else config.with_system(system)


class Trainer:
    """Training of one model.

    After ``fit`` the model has the trained weights, fetched when they are read. A new Trainer ends
    the backend of an earlier one.

    Args:
        model: The model. Called with a batch, it returns the loss, or what ``loss_fn`` takes.
        optimizer: One of ``cstorch.optim`` or of torch over the parameters of the model. Each fit
            begins with its groups and state as they are, and leaves it with the state after the
            last step; a schedule of torch may be stepped between two calls of ``fit``.
        config: Device, steps and sizes.
        loss_fn: Called with the model's output and the target: the last element of a tuple, or
            the entry ``labels``, ``label``, ``targets``, ``target`` or ``y`` of a dict. By default
            the method ``default_loss`` of a CerebrasModel that does not take the target.
        check: How many of the first steps run beside a plain PyTorch loop on the whole batch, which
            their values must be equal or close to (``cstorch.referee``); 0 for none.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: CSConfig | None = None,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
        check: int = 0,
    ) -> None:
        log_to_terminal()
        self.config = config or CSConfig()
        self.referee: Referee | None = None
        """What watches the first steps; None without a check."""
        witness = current_witness()
        if check or witness is not None:
            from cstorch.referee.plain_loop import Training  # noqa: PLC0415  (slow)
            from cstorch.referee.referee import Referee  # noqa: PLC0415

            training = Training(model, optimizer, loss_fn, self._loss_of)
            self.referee = Referee(training, check if witness is None else witness.steps)
        self.optimizer = optimizer
        self._taken = taken(optimizer)
        device = self.config.target_device.upper()
        self.backend = replace_backend(
            device if device in ("CPU", "GPU") else "CSX",
            cluster_config=self.config.for_cluster(),
            seed=self.config.seed,
        )
        self.model = compile(model, self.backend)
        self._loss_fn = loss_fn
        self._step = trace(self._training_step)
        self._loaders = FitLoaders()

    def fit(self, dataloader: Iterable[Any] | Callable[[], Iterable[Any]]) -> list[float]:
        """Train on a loader; return the losses at an interval of ``log_steps``.

        Args:
            dataloader: A loader of global batches (tuples or dicts; without ``loss_fn`` also
                tensors), as torch's DataLoader, or a function that makes one. Every input worker
                gets a copy. A dict has the model's arguments by name, or is its one argument.

        Raises:
            ConfigError: The loss is no scalar and there is no ``loss_fn``, or a batch is of
                another kind.
            ProgramOrderError: The trainer was shut down, or another one was made after it.
        """
        if existing_backend() is not self.backend:
            raise ProgramOrderError(
                "a trainer cannot train after its end",
                code="trainer-ended",
                rule="shutdown, a fit that fails on the cluster, or another Trainer ends it",
                remedy="make a Trainer of the model again: it has its trained weights",
            )
        say_precision(self.backend.session, self.model)
        self._taken.take(self.optimizer)
        executor = DataExecutor(
            self._loaders.of(dataloader),
            self.config.max_steps,
            activation_steps=self.config.log_steps,
        )
        session = self.backend.session
        before = session.global_step
        losses: list[float] = []

        @step_closure
        def note(loss: torch.Tensor) -> None:
            losses.append(loss.item())

        try:
            with closing(iter(executor)) as batches:  # also where a traceback keeps this frame
                for batch in batches:
                    loss = self._step(batch)
                    if executor.is_initial_step:
                        self._taken.check(self._trained())
                    note(loss)
                    if self.referee is not None:
                        self.referee.note(loss, self._step, executor)
        finally:
            self._loaders.note_read(session.global_step - before)
            if session.execution.has_failed:
                self.shutdown()
            session.gradients.end(self.model)
            self._taken.give(self.optimizer, self._trained())
        return losses

    def shutdown(self) -> None:
        """Fetch the weights into the model and end the cluster. Idempotent."""
        self.backend.end_idle()

    def _trained(self) -> set[torch.Tensor]:
        """Return the parameters that a step updates."""
        names = self.backend.session.trained
        return {tensor for name, tensor in self.model.named_parameters() if name in names}

    def _training_step(self, batch: Any) -> torch.Tensor:
        loss = self._loss(batch)
        loss.backward()
        self._taken.optimizer.step()
        self._taken.optimizer.zero_grad()
        return loss

    def _loss(self, batch: Any) -> torch.Tensor:
        return self._loss_of(self.model, self._loss_fn, batch)

    def _loss_of(self, model: nn.Module, loss_fn: Any, batch: Any) -> torch.Tensor:
        loss_fn = loss_fn or _loss_of_model(model, batch)
        arguments, named, target = _split(model, batch, has_loss=loss_fn is not None)
        _check_arguments(model, arguments, named, has_loss=loss_fn is not None)
        output = model(*arguments, **named)
        if loss_fn is not None:
            return _checked(loss_fn(output, target), "the result of loss_fn")
        return _checked(loss_in(output), "the model's output")


def _loss_of_model(model: nn.Module, batch: Any) -> Callable[[Any, Any], torch.Tensor] | None:
    """Return the loss of a CerebrasModel, unless it takes a batch with its target."""
    loss: Callable[[Any, Any], torch.Tensor] | None = getattr(model, "default_loss", None)
    if loss is None:
        return None
    arguments, named, _ = _split(model, batch, has_loss=False)
    return loss if _misfit(model, arguments, named) else None


def _split(
    model: nn.Module, batch: Any, *, has_loss: bool
) -> tuple[list[Any], dict[str, Any], Any]:
    """Return the positional and named arguments of a model, and the target of its loss.

    A dict has the arguments by name, unless it is itself the one argument of the model.
    """
    if isinstance(batch, Mapping):
        named = dict(batch)
        target = named.pop(_target_of(named)) if has_loss else None
        return ([batch], {}, target) if _takes_whole(model, named) else ([], named, target)
    if isinstance(batch, tuple | list) and batch:
        arguments = list(batch)
        return arguments, {}, arguments.pop() if has_loss else None
    is_tensor = isinstance(batch, torch.Tensor)
    if is_tensor and not has_loss:
        return [batch], {}, None
    raise ConfigError(
        "a batch must be a tuple or a dict",
        code="batch-not-tuple-or-dict",
        where="cstorch.Trainer",
        value="Tensor" if is_tensor else type(batch).__name__,
        rule="a tensor alone has no target for loss_fn",
        remedy="yield (input, target), or a dict of the model's arguments",
    )


def _takes_whole(model: nn.Module, named: dict[str, Any]) -> bool:
    """Return whether a model needs a single argument, which has none of the names in a batch."""
    parameters = signature(model.forward).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return len(needed) == 1 and needed[0].name not in named


def _target_of(batch: Mapping[str, Any]) -> str:
    """Return the key of the target in a batch."""
    found = [key for key in TARGETS if key in batch]
    if len(found) != 1:
        raise ConfigError(
            "a batch for loss_fn must have one target",
            code="target-not-found",
            where="cstorch.Trainer",
            value=", ".join(batch),
            rule=f"one of the keys {', '.join(TARGETS)}",
            remedy="rename the entry that loss_fn compares the output with",
        )
    return found[0]


def _check_arguments(
    model: nn.Module, arguments: list[Any], named: dict[str, Any], *, has_loss: bool
) -> None:
    """Raise ConfigError if the model does not take the elements of a batch."""
    if error := _misfit(model, arguments, named):
        raise ConfigError(
            "the model must take the elements of a batch as its arguments",
            code="batch-does-not-fit-model",
            where="cstorch.Trainer",
            value=f"{type(model).__name__}.forward: {error}",
            remedy=None if has_loss else "pass loss_fn=..., which takes the target off the batch",
        ) from error


def _misfit(model: nn.Module, arguments: list[Any], named: dict[str, Any]) -> TypeError | None:
    """Return why a model cannot be called with arguments, None if it can."""
    try:
        signature(model.forward).bind(*arguments, **named)
    except TypeError as error:
        return error
    return None


def _checked(loss: Any, what: str) -> torch.Tensor:
    """Return the loss; ConfigError unless it is a scalar, for micro-batches of any size."""
    if isinstance(loss, torch.Tensor) and loss.ndim == 0:
        return loss
    shape = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
    raise ConfigError(
        f"{what} must be a scalar loss",
        code="loss-not-scalar",
        where="cstorch.Trainer",
        value=shape,
        remedy="pass loss_fn=..., a function of output and target that returns a scalar",
    )
