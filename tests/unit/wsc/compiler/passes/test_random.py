"""Random ops depend on their key and position, and draw what torch's own would draw."""

import pickle

import pytest
import torch
from torch import nn

from modelzoo.data.registry import build_source
from modelzoo.models.registry import build_model
from tests.support.kernels import run_kernels
from tests.support.local_machine import Regression, compile_model, random_batches
from tests.support.tiny_training import GPT, LOADER
from wsc.compiler.keyed_random import KEY_INPUT


class Noisy(Regression):
    """Three random ops, of which two are alike."""

    def forward(self, x, y):
        x = nn.functional.dropout(x, 0.5)
        y = nn.functional.dropout(y, 0.5)
        return super().forward(x + torch.rand_like(x), y)


@pytest.fixture(scope="module")
def noisy():
    return compile_model(Noisy(), random_batches(1, 4)[0], 2)


@pytest.fixture(scope="module")
def loss():
    model, batch = Noisy(), random_batches(1, 2)[0]
    return lambda compiled, key: run_kernels(compiled, model, batch, key)[0][0]


def test_the_key_decides(noisy, loss):
    """Same key, same bits, in this process or another; another key, other bits."""
    again = pickle.loads(pickle.dumps(noisy))
    assert torch.equal(loss(noisy, 7), loss(noisy, 7))
    assert torch.equal(loss(noisy, 7), loss(again, 7))
    assert not torch.equal(loss(noisy, 7), loss(noisy, 8))


def test_torch_s_own_generator_is_left_alone(noisy, loss):
    """Neither read nor advanced: what else draws numbers in the process does not matter."""
    torch.manual_seed(1)
    first = loss(noisy, 7)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(loss(noisy, 7), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_random_op_has_a_position_of_its_own(noisy):
    """Two equal ops of one step draw different numbers."""
    text = "".join(kernel.text for kernel in noisy.kernels)
    used = [line for line in text.splitlines() if KEY_INPUT in line and "def " not in line]
    positions = [line.split(f"{KEY_INPUT}, ")[1].split(",")[0] for line in used]
    assert sorted(positions) == ["0", "1", "2"]


def test_a_draw_into_part_of_a_tensor_is_not_lost():
    """Its result is read under the name of the whole tensor alone."""

    class Masked(Regression):
        def forward(self, x, y):
            mask = torch.zeros(2, 4)
            mask[0].bernoulli_(1.0)
            return super().forward(x * mask, y)

    model, batch = Masked(), random_batches(1, 2)[0]
    results, _ = run_kernels(compile_model(model, batch, 1), model, batch)
    assert torch.equal(results[0], model(**batch))


def test_attention_dropout_is_keyed():
    """The vendor's default dropout of 0.1 everywhere compiles, and the key decides."""
    config = {key: value for key, value in GPT.items() if "dropout" not in key}
    model = build_model(config | {"num_hidden_layers": 1}, 0)
    batch = build_source({**LOADER, "batch_size": 2}, "test").batch(0)
    compiled = compile_model(model, batch, 1)
    first, second, third = (run_kernels(compiled, model, batch, key) for key in (1, 1, 2))
    assert first[0] == second[0] != third[0]
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


def test_a_step_without_random_ops_has_no_key():
    """Nothing is handed in that nobody reads."""
    program = compile_model(Regression(), random_batches(1, 4)[0], 2).program
    assert all(KEY_INPUT not in segment.inputs for segment in program.segments)
