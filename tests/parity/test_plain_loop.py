"""Programs of cstorch end with the weights of the plain loop, whatever their options."""

from typing import Any

import pytest

from tests.support.nightly import nightly
from tests.support.plain_torch.plain_loop import (
    SHALLOW,
    STEPS,
    by_shape,
    default_reference,
    reference_digest,
)
from tests.support.runs.tiny_training import (
    GPT,
    LLAMA,
    LOADER,
    Shape,
    init_config,
    train_on_cluster,
)


@by_shape([Shape(1, 4, 1), Shape(4, 3, 3), Shape(8, 2, 1)])
def test_cstorch_program_equals_the_plain_loop(shape: Shape) -> None:
    """A cstorch program ends with the weights of the plain loop."""
    assert train_on_cluster(init_config(), shape, STEPS) == default_reference()


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"precision": {"max_gradient_norm": 0.5, "precision_opt_level": 0}},
        {
            "model": LLAMA,
            "optimizer": {"SGD": {"momentum": 0.9}},
            "precision": {"fp16_type": "float16", "loss_scaling_factor": 64.0},
        },
    ],
)
def test_cpu_backend_equals_the_plain_loop(sections: dict[str, Any]) -> None:
    """On CPU a batch is one micro-batch; the rules of the update are those of MemoryX."""
    whole = {"GlobalFlags": {"csx.performance.micro_batch_size": LOADER["batch_size"]}}
    init = init_config(**{"callbacks": [whole], **sections})
    assert train_on_cluster(init, Shape(1), STEPS, device="CPU") == reference_digest(init)


@pytest.mark.parametrize(
    "precision",
    [
        {"precision_opt_level": 1},
        {"precision_opt_level": 0},
        {"enabled": False},
        {"fp16_type": "float16", "loss_scaling_factor": 1024.0},
    ],
    ids=["bf16-in-bf16", "bf16-in-fp32", "fp32", "fp16-scaled"],
)
@pytest.mark.parametrize("model", [GPT, *nightly(LLAMA)], ids=["gpt", "llama"])
def test_precisions_equal_the_plain_loop(model: dict[str, Any], precision: dict[str, Any]) -> None:
    """Casts round like those of the plain loop; sums are fp32 in both."""
    init = init_config(model | SHALLOW, precision={"max_gradient_norm": 0.5, **precision})
    assert train_on_cluster(init, Shape(3, 2, 3), STEPS) == reference_digest(init)


@pytest.mark.parametrize(
    ("optimizer", "limits"),
    [
        ({"SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}}, {}),
        ({"SGD": {}}, {"max_gradient_norm": 0.5}),
        ({"Adam": {"amsgrad": True, "weight_decay": 0.01}}, {}),
        ({"AdamW": {"weight_decay": 0.1}}, {}),
        ({"AdamW": {"weight_decay": 0.1}}, {"max_gradient_value": 0.01}),
        ({"Lion": {"weight_decay": 0.1}}, {"max_gradient_norm": 0.5}),
        ({"Adadelta": {"weight_decay": 0.1}}, {}),
        ({"Adagrad": {"lr_decay": 0.1, "initial_accumulator_value": 0.1}}, {}),
        ({"RMSprop": {"momentum": 0.9, "centered": True}}, {"max_gradient_norm": 0.5}),
        ({"Adamax": {"weight_decay": 0.1}}, {}),
        ({"NAdam": {"weight_decay": 0.1}}, {}),
        ({"RAdam": {"weight_decay": 0.1}}, {}),
        ({"ASGD": {"t0": 1.0, "lambd": 0.1}}, {}),
        ({"Rprop": {"etas": [0.4, 1.5]}}, {}),
    ],
)
def test_optimizers_equal_the_plain_loop(optimizer: dict[str, Any], limits: dict[str, Any]) -> None:
    """MemoryX updates and clips like torch's optimizers."""
    # A schedule would change ASGD's step lengths one step later in torch.
    schedule = (
        {"schedulers": {"ConstantLR": {"learning_rate": 0.02}}} if "ASGD" in optimizer else {}
    )
    init = init_config(GPT | SHALLOW, optimizer=optimizer, precision=limits, **schedule)
    assert train_on_cluster(init, Shape(2, 2, 3), STEPS) == reference_digest(init)


def test_several_schedulers_equal_the_plain_loop() -> None:
    """Matrices and vectors have rates of their own, and weight decay has a schedule."""
    cosine = {"initial_learning_rate": 0.02, "T_max": 5}
    cycle = {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 2}
    line = {"initial_val": 0.5, "end_val": 0.0, "total_iters": 2}
    schedulers = [
        {"CosineAnnealingLR": {**cosine, "param_group_tags": "decay"}},
        {"CyclicLR": {**cycle, "param_group_tags": "no_decay"}},
        {"LinearWD": line},
    ]
    init = init_config(GPT | SHALLOW, schedulers=schedulers)
    found = train_on_cluster(init, Shape(3, 2, 3), STEPS)
    assert found == reference_digest(init)
    assert found != reference_digest(init_config(GPT | SHALLOW, schedulers=schedulers[:2]))
