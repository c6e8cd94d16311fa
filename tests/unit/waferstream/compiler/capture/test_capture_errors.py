"""A step that cannot be captured is explained: the op, the user's own line, and what to do."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import waferstream
from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.compiler.capture.capture_errors import line_of_node, user_line
from waferstream.core.errors import ApplianceCompilationError, ConfigError


class Item(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scale = self.layers[0](x).mean().item()  # here
        return super().forward(x, y) * scale


class Branch(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = super().forward(x, y)
        if loss > 1:  # here
            loss = loss * 2
        return loss


class Mask(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)[y > 0].sum()  # here


class Unique(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) * len(torch.unique(y))  # here


class Svd(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = torch.linalg.svd(self.layers[0](x))[1]  # here
        return values.sum()


class Fourier(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.fft.rfft(x).abs()[:, [0, 1, 2, 1]], y)  # here


class Ctc(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = self.layers[0](x).log_softmax(-1)[:, None]
        return nn.CTCLoss()(scores, y[:1, 0].long(), [len(x)], [1])  # here


class DrawsFromGenerator(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x + torch.randn(4, generator=torch.Generator()), y)  # here


class AttributeStatistics(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.variance = torch.zeros(4), torch.ones(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = nn.functional.batch_norm(x, self.mean, self.variance, training=True)  # here
        return super().forward(x, y)


class WrongShape(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x).view(3, 7).sum()  # here


class Select(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = y.masked_select(y > 0)  # here
        return super().forward(x, y) + chosen.float().mean()


class SelectLabels(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        labels = (x > 0).long()
        chosen = labels.masked_select(labels > 0)  # here
        return super().forward(x, y) + chosen.sum()


class WritesInput(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)  # here
        return super().forward(x, y)


class WritesView(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.steps[:2] += 1  # here
        return super().forward(x + self.steps, y)


class DrawsInPlace(WritesView):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.steps.bernoulli_(0.5)  # here
        return Regression.forward(self, x + self.steps, y)


class DrawsState(WritesView):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.steps.bernoulli_(0.5)  # here
        return Regression.forward(self, x, y)


class SparseGradient(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4, sparse=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(x[:, 0].long(), self.embedding.weight, sparse=True)  # here
        return super().forward(rows, y)


class _Cut(torch.autograd.Function):
    """A function whose gradient has another shape than its operand."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2  # here

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient[:1, :3]


class WrongGradient(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = _Cut.apply(self.layers[0](x))  # type: ignore[no-untyped-call]
        return super().forward(hidden, y)


class _Fails(_Cut):
    """A function whose backward fails in a line of its own."""

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.view(3, 7)  # here


class FailingGradient(Regression):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = _Fails.apply(self.layers[0](x))  # type: ignore[no-untyped-call]
        return super().forward(hidden, y)


CASES = [
    (Item, "op-depends-on-values", "aten._local_scalar_dense", "step_closure"),
    (Branch, "op-depends-on-values", "aten._local_scalar_dense", "torch.where"),
    (Mask, "op-depends-on-values", "aten.nonzero", "torch.where"),
    (Select, "op-depends-on-values", "aten.masked_select", "torch.where"),
    (SelectLabels, "op-depends-on-values", "aten.masked_select", "torch.where"),
    (Unique, "op-depends-on-values", "aten._unique2", "input function"),
    (Svd, "op-without-kernel", "aten._linalg_svd", "input function"),
    (Fourier, "op-without-kernel", "aten._fft_r2c", "cosines and sines"),
    (Ctc, "ctc-targets-not-padded", "CTCLoss", "pad the targets"),
    (DrawsFromGenerator, "generator-in-step", "randn", "seed of the run"),
    (WrongShape, "traced-step-failed", "[3, 7]", None),
    (SparseGradient, "op-without-kernel", "sparse_coo", None),
    (WrongGradient, "traced-step-failed", "invalid gradient", None),
    (FailingGradient, "traced-step-failed", "[3, 7]", None),
    (AttributeStatistics, "write-to-constant", "update_running", "buffer of the model"),
    (WritesInput, "write-to-constant", "mul_", "out of place"),
    (WritesView, "state-in-gradient", "gradient", "BatchNorm"),
    (DrawsInPlace, "state-in-gradient", "gradient", "BatchNorm"),
    (DrawsState, "state-in-random-op", "random", "BatchNorm"),
]


@pytest.mark.parametrize(
    ("kind", "code", "op", "remedy"), CASES, ids=[c[0].__name__ for c in CASES]
)
def test_error_names_op_line_and_remedy(
    kind: type[Regression], code: str, op: str, remedy: str | None
) -> None:
    """The line is that of the user's program."""
    with raises(ApplianceCompilationError, code) as caught:
        compile_model(kind(), random_batches(1, 4)[0], 2)
    error = caught.value
    assert op in error.what
    assert error.rule
    assert __file__ in (error.where or "")
    assert (error.where or "").endswith("# here")
    assert (remedy or "") in (error.remedy or "")


class Normed(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x), y)  # here


def test_batch_norm_of_one_sample_asks_for_a_larger_micro_batch() -> None:
    """Two samples have statistics."""
    batch = random_batches(1, 4)[0]
    with raises(ApplianceCompilationError, "batch-norm-of-one-value") as caught:
        compile_model(Normed(), batch, 4)
    assert "micro_batch_size" in (caught.value.remedy or "")
    assert (caught.value.where or "").endswith("# here")
    compile_model(Normed(), batch, 2)


def test_loss_that_nothing_trained_leads_to_is_named() -> None:
    """As of a model whose parameters are all frozen."""
    model = Regression()
    model.requires_grad_(False)
    with raises(ApplianceCompilationError, "loss-without-gradient") as caught:
        compile_model(model, random_batches(1, 4)[0], 2)
    assert "require a gradient" in (caught.value.remedy or "")


def test_error_names_every_op_without_a_kernel() -> None:
    """One run of the compiler lists all of them."""

    class Two(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            hidden = torch.fft.rfft(self.layers[0](x)).abs()
            return torch.linalg.qr(hidden)[1].sum()

    with raises(ApplianceCompilationError, "op-without-kernel") as caught:
        compile_model(Two(), random_batches(1, 8)[0], 2, trains=False)
    assert "aten._fft_r2c.default, aten.linalg_qr.default" in caught.value.what
    assert (caught.value.where or "").count(__file__) == 2


def test_wafer_stream_errors_pass_unchanged() -> None:
    """An error of a model is not wrapped."""

    class Own(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            raise ConfigError("too long", code="own-code")

    with raises(ConfigError, "own-code"):
        compile_model(Own(), random_batches(1, 4)[0], 2)


@pytest.mark.parametrize(
    ("name", "is_user_file"), [("cstorch_run.py", True), ("cstorch/compile.py", False)]
)
def test_user_line_and_line_of_node_find_user_files(name: str, is_user_file: bool) -> None:
    """A file beside the packages is the user's, whatever its name begins with."""
    path = Path(waferstream.__file__).parents[1] / name
    trace = f'  File "{path}", line 1, in step\n    1 / 0'
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", str(path), "exec"))
    for found in (line_of_node(trace), user_line(caught.value)):
        assert (found is not None and str(path) in found) == is_user_file
