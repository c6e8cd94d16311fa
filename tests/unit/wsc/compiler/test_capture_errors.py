"""A step that cannot be captured is explained: the op, the user's own line, and what to do."""

from pathlib import Path

import pytest
import torch
from torch import nn

import wsc
from tests.support.local_machine import Regression, compile_model, random_batches
from wsc.compiler.capture_errors import line_of_node, user_line
from wsc.core.errors import ApplianceCompilationError, ConfigError


class Item(Regression):
    def forward(self, x, y):
        scale = self.layers[0](x).mean().item()  # here
        return super().forward(x, y) * scale


class Branch(Regression):
    def forward(self, x, y):
        loss = super().forward(x, y)
        if loss > 1:  # here
            loss = loss * 2
        return loss


class Mask(Regression):
    def forward(self, x, y):
        return self.layers[0](x)[y > 0].sum()  # here


class Unique(Regression):
    def forward(self, x, y):
        return super().forward(x, y) * len(torch.unique(y))  # here


class Svd(Regression):
    def forward(self, x, y):
        values = torch.linalg.svd(self.layers[0](x))[1]  # here
        return values.sum()


class WrongShape(Regression):
    def forward(self, x, y):
        return self.layers[0](x).view(3, 7).sum()  # here


class RunningStatistics(Regression):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, y):
        return super().forward(self.norm(x), y)  # here


class WritesInput(Regression):
    def forward(self, x, y):
        x.mul_(2)  # here
        return super().forward(x, y)


class WritesView(Regression):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x, y):
        self.steps[:2] += 1  # here
        return super().forward(x + self.steps, y)


class DrawsInPlace(WritesView):
    def forward(self, x, y):
        self.steps.bernoulli_(0.5)  # here
        return Regression.forward(self, x + self.steps, y)


CASES = [
    (Item, "op aten._local_scalar_dense depends on the values", "step_closure"),
    (Branch, "op aten._local_scalar_dense depends on the values", "torch.where"),
    (Mask, "op aten.nonzero depends on the values", "torch.where"),
    (Unique, "op aten._unique2 depends on the values", "input function"),
    (Svd, "no kernel for aten._linalg_svd", "supported ops"),
    (WrongShape, "shape '[3, 7]' is invalid", None),
    (RunningStatistics, "writes to a buffer", "LayerNorm instead of BatchNorm"),
    (WritesInput, "writes to a buffer, an input", "out of place"),
    (WritesView, "op add_ writes to a buffer", "out of place"),
    (DrawsInPlace, "op bernoulli_ writes to a buffer", "out of place"),
]


@pytest.mark.parametrize(("kind", "what", "remedy"), CASES, ids=[c[0].__name__ for c in CASES])
def test_the_message_names_op_line_and_remedy(kind, what, remedy):
    """The user is told which of their own lines does it, not which of ours noticed."""
    with pytest.raises(ApplianceCompilationError) as caught:
        compile_model(kind(), random_batches(1, 4)[0], 2)
    error = caught.value
    assert what in error.what
    assert error.rule
    assert __file__ in error.where
    assert error.where.endswith("# here")
    assert (remedy or "") in (error.remedy or "")


def test_every_op_without_a_kernel_is_named_at_once():
    """One run of the compiler tells all, so that a port is not a treasure hunt."""

    class Two(Regression):
        def forward(self, x, y):
            hidden = torch.cumprod(self.layers[0](x), 0)
            return torch.linalg.qr(hidden)[1].sum()

    with pytest.raises(ApplianceCompilationError) as caught:
        compile_model(Two(), random_batches(1, 8)[0], 2, trains=False)
    assert "aten.cumprod.default, aten.linalg_qr.default" in caught.value.what
    assert caught.value.where.count(__file__) == 2


@pytest.mark.parametrize("part", ["slice", "sum"])
def test_gradients_that_are_copied_in_parts_say_what_makes_them(part):
    """Autograd's own op has no line; the remedy names the two ways in which users come by it."""

    class Copied(Regression):
        def __init__(self):
            super().__init__()
            self.shift, self.offset = (nn.Parameter(torch.ones(4)) for _ in range(2))

        def forward(self, x, y):
            if part == "slice":
                x = self.layers[0](x).clone()
                x[:, 0] = 0
            else:
                x = x + (self.shift + self.offset)
            return super().forward(x, y)

    with pytest.raises(ApplianceCompilationError, match="new_empty_strided") as caught:
        compile_model(Copied(), random_batches(1, 4)[0], 2)
    assert "torch.where" in caught.value.remedy
    assert "two parameters" in caught.value.remedy


def test_our_own_errors_pass_unchanged():
    """A model that explains itself is not explained again."""

    class Own(Regression):
        def forward(self, x, y):
            raise ConfigError("too long")

    with pytest.raises(ConfigError, match="too long"):
        compile_model(Own(), random_batches(1, 4)[0], 2)


@pytest.mark.parametrize(("name", "is_user_s"), [("cstorch_run.py", True), ("cstorch/x.py", False)])
def test_a_user_s_file_beside_our_folders_is_the_user_s(name, is_user_s):
    """Whatever its name begins with; both ways of finding a line agree."""
    path = Path(wsc.__file__).parents[1] / name
    trace = f'  File "{path}", line 1, in step\n    1 / 0'
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", str(path), "exec"))
    for found in (line_of_node(trace), user_line(caught.value)):
        assert (found is not None and str(path) in found) == is_user_s
