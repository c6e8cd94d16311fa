"""Recompute in the graph: the same bits, less stash, and just what was foreseen."""

from collections import Counter

import pytest
import torch

from modelzoo.data.registry import build_source
from modelzoo.models.registry import build_model
from tests.support.kernels import run_kernels
from tests.support.local_machine import BF16
from tests.support.plain_steps import backward_step
from tests.support.tiny_training import GPT, LLAMA, LOADER
from timing.sram import moments, recompute
from wsc.compiler.compile import CompileRequest, compile_step

DROPOUT = dict.fromkeys(("dropout_rate", "attention_dropout_rate"), 0.1)
BATCH = build_source(LOADER | {"batch_size": 2}, "test").batch(0)
LAYERS = ("decoder.0", "decoder.1")


def compiled(model, layers):
    request = CompileRequest(BF16, 2, 1, "test", recomputed_layers=layers)
    found, _ = compile_step(backward_step(model), model, list(BATCH.items()), request)
    return found


@pytest.fixture(scope="module", params=[GPT, GPT | DROPOUT, LLAMA], ids=["gpt", "dropout", "llama"])
def both(request):
    """A model, its program, and its program with two layers recomputed."""
    model = build_model(request.param, 0)
    return model, compiled(model, ()), compiled(model, LAYERS)


def kernels(segment):
    """Views may be shared by the ops of a segment; they cost nothing."""
    return Counter((op.kind, op.flops, op.shape) for op in segment.work if op.kind != "view")


def indices(program):
    return [s.index for s in program.segments if s.phase == "forward" and s.layer in LAYERS]


def test_values_do_not_change_by_a_bit(both):
    """Loss and every gradient, with random numbers drawn anew by key."""
    model, plain, again = both
    plain_results, plain_gradients = run_kernels(plain, model, BATCH, key=5)
    results, gradients = run_kernels(again, model, BATCH, key=5)
    assert all(map(torch.equal, plain_results, results))
    assert gradients.keys() == plain_gradients.keys()
    assert all(torch.equal(gradients[name], plain_gradients[name]) for name in gradients)


def test_a_recomputed_layer_leaves_what_others_read(both):
    """And nothing else: the next layer's input, at most a mask that all share."""
    _, plain, again = both
    for index in indices(plain.program):
        stash = again.program.segments[index].stash
        assert set(stash) < set(plain.program.segments[index].stash)
        assert sum(len(piece.values) for piece in stash) <= 2


def test_the_program_is_what_was_foreseen(both):
    """The rewriting of the clock has the same stash and ops, and never less working memory."""
    _, plain, again = both
    foreseen = recompute(plain.program, indices(plain.program))
    for expected, found in zip(foreseen.segments, again.program.segments, strict=True):
        assert [p.footprint for p in found.stash] == [p.footprint for p in expected.stash]
        assert found.working.sample_bytes <= expected.working.sample_bytes
        assert kernels(found) == kernels(expected)
    found_peak, expected_peak, plain_peak = (
        max(m.footprint.of(64) for m in moments(program))
        for program in (again.program, foreseen, plain.program)
    )
    assert found_peak <= expected_peak
    assert expected_peak < plain_peak


def test_nothing_happens_to_layers_that_are_not_there():
    """An unknown name changes no op."""
    model = build_model(GPT, 0)
    assert compiled(model, ("encoder.7",)).program.segments == compiled(model, ()).program.segments


def test_layers_that_write_in_place_keep_their_bits():
    """An op that overwrites what another one reads must not run a second time."""

    class InPlace(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x.to(torch.bfloat16)).relu_()
            return x.float().square().mean()

    model = InPlace()

    def program(layers):
        request = CompileRequest(BF16, 2, 1, "test", recomputed_layers=layers)
        return compile_step(backward_step(model), model, [("x", torch.ones(2, 4))], request)[0]

    batch = {"x": torch.randn(2, 4)}
    plain, again = program(()), program(("layers.0", "layers.1"))
    expected, found = (run_kernels(each, model, batch)[1] for each in (plain, again))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
