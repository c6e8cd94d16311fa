"""Classes of the user's are imported, checked against their signature, and called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from appliance.user_code import importing_from
from tests.support.errors import raises
from tests.support.programs.user_programs import CROSS_ENTROPY, SOURCE
from waferstream.core.errors import ConfigError
from waferstream.core.user_code import USER_CODE
from waferstream.workload.data import build_source, check_section
from waferstream.workload.models import build_model, check_model, parameter_shapes
from waferstream.workload.user_classes import compute_loss, make_loss

LINEAR = {"class": "torch.nn:Linear", "in_features": 4, "out_features": 3}


def test_model_of_the_user_depends_on_its_seed_only() -> None:
    state = torch.get_rng_state()
    one, same, other = (build_model(LINEAR, seed) for seed in (1, 1, 2))
    assert torch.equal(*(model.state_dict()["weight"] for model in (one, same)))
    assert not torch.equal(*(model.state_dict()["weight"] for model in (one, other)))
    assert torch.equal(torch.get_rng_state(), state)
    assert parameter_shapes(LINEAR) == {"weight": (3, 4), "bias": (3,)}


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ({"class": "Linear"}, "class-not-importable"),
        ({"class": "torch.nn:Linaer"}, "class-not-importable"),
        ({"class": "no_such_package.nets:Net"}, "class-not-importable"),
        ({"class": "torch:pi"}, "class-not-importable"),
        ({"class": ".nets:Net"}, "class-not-importable"),
        ({"class": "a\0b:Net"}, "class-not-importable"),
        ({**LINEAR, "in_featurs": 4}, "class-arguments-mismatch"),
        ({"class": "torch.nn:Linear"}, "class-arguments-mismatch"),
    ],
)
def test_wrong_class_is_explained(section: dict[str, Any], code: str) -> None:
    for check in (check_model, check_section):
        with raises(ConfigError, code):
            check(section, "here")


def test_code_of_files_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER_CODE, "refuse")
    with raises(ConfigError, "user-code-refused"):
        check_model(LINEAR, "model")


def test_import_error_inside_the_users_module_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "lacks_something.py").write_text("import no_such_package\n")
    with importing_from([tmp_path]), pytest.raises(ModuleNotFoundError, match="no_such_package"):
        check_model({"class": "lacks_something:Net"})


def test_class_is_found_in_the_folders_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "found_here.py").write_text(SOURCE)
    with raises(ConfigError, "class-not-importable"):
        check_model({"class": "found_here:Net"})
    with importing_from([tmp_path]):
        check_model({"class": "found_here:Net", "width": 2})
        loader = build_source({"class": "found_here:pairs", "batch_size": 8}, "here")
    assert next(iter(loader))[0].shape == (8, 4)


def test_function_must_give_a_module() -> None:
    with raises(ConfigError, "class-gives-no-module"):
        build_model({"class": "torch:zeros", "size": [2]}, 0)
    with raises(ConfigError, "loss-with-parameters"):
        make_loss({**LINEAR, "loss": LINEAR}, "model")


def picky(**sizes: int) -> nn.Module:
    assert sizes["width"] % 2 == 0, "width must be even"
    return nn.Linear(sizes["width"], 1)


def test_exception_of_a_class_is_explained_with_its_line() -> None:
    section = {"class": f"{__name__}:picky", "width": 3}
    with raises(ConfigError, "class-failed") as caught:
        build_model(section, 0)
    assert "AssertionError: width must be even" in str(caught.value.value)
    assert __file__ in str(caught.value.value)


class Pair(nn.Module):
    """A model that names its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_loss_gets_what_the_model_does_not_take() -> None:
    x, target = torch.ones(2), torch.zeros(2)
    loss = make_loss({"class": "x", "loss": {"class": "torch.nn:MSELoss"}}, "model")
    whole: list[Any] = [(x, target), [x, target], {"x": x, "y": target}]
    for batch in whole:
        assert compute_loss(Pair(), loss, batch) == 4
    without: list[Any] = [{"x": x}, x, (x,)]
    for batch in without:
        with raises(ConfigError, "batch-without-target"):
            compute_loss(Pair(), loss, batch)


def test_model_without_loss_returns_a_scalar() -> None:
    assert make_loss({"class": "x"}, "model") is None
    assert compute_loss(Pair(), None, torch.ones(())) == 2
    vectors: list[Any] = [(torch.ones(2),), {"x": torch.ones(2)}, torch.ones(2)]
    for batch in vectors:
        with raises(ConfigError, "loss-not-scalar"):
            compute_loss(Pair(), None, batch)
    others: list[Any] = [(torch.ones(2), 1), {"y": torch.ones(2)}]
    for batch in others:
        with raises(ConfigError, "batch-not-model-input"):
            compute_loss(Pair(), None, batch)


class OfMapping(nn.Module):
    """A model that takes a batch as it is, and returns its loss."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["a"].sum() + batch["b"].sum()


def test_model_of_one_argument_takes_a_mapping_without_its_name_as_a_whole() -> None:
    assert compute_loss(OfMapping(), None, {"a": torch.ones(2), "b": torch.ones(1)}) == 3


class Scored(nn.Module):
    """A model that returns what it is given."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: torch.Tensor) -> Any:
        return self.output


LOGITS, LOSS = torch.ones(2, 3), torch.ones(())


@pytest.mark.parametrize("output", [(LOGITS, LOSS), (LOSS, LOGITS), {"loss": LOSS, "more": LOSS}])
def test_loss_is_found_in_the_output_of_the_model(output: Any) -> None:
    """A model of another project returns (logits, loss)."""
    assert compute_loss(Scored(output), None, torch.ones(2)) is LOSS


@pytest.mark.parametrize("output", [(LOSS, LOSS), (LOGITS, LOGITS), {"logits": LOGITS}])
def test_output_without_a_single_loss_is_refused(output: Any) -> None:
    with raises(ConfigError, "loss-not-scalar"):
        compute_loss(Scored(output), None, torch.ones(2))


def test_cross_entropy_is_found_by_its_dotted_name() -> None:
    loss = make_loss({"class": "x", "loss": {**CROSS_ENTROPY, "label_smoothing": 0.5}}, "model")
    assert isinstance(loss, nn.CrossEntropyLoss)
    assert loss.label_smoothing == 0.5
