"""The compile cache: the same step is compiled once; a damaged artifact costs a compile."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.support.local_machine import BF16, FP32, Regression, random_batches
from tests.support.plain_steps import backward_step
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.core.errors import ConfigError

REQUEST = CompileRequest(FP32, micro_batch_size=2, num_micro_batches=2, target="2 systems")


def compiled(cache, request=REQUEST, model=None, rows=2, scale=1.0):
    """The artifact, and whether it was found."""
    model = model or Regression()
    step = backward_step(model, lambda loss: loss * scale)
    batch = random_batches(1, rows)[0]
    return compile_step(step, model, list(batch.items()), request, cache)


@pytest.fixture
def cache(tmp_path):
    return ArtifactCache(tmp_path / "deep" / "cache")


def test_the_same_step_is_found(cache):
    """What comes out of the cache is what went in."""
    first, was_found = compiled(cache)
    assert not was_found
    again, was_found = compiled(cache)
    assert was_found
    assert again.program == first.program
    assert [kernel.text for kernel in again.kernels] == [kernel.text for kernel in first.kernels]


@pytest.mark.parametrize(
    "change",
    [
        {"request": replace(REQUEST, precision=BF16)},
        {"request": replace(REQUEST, target="4 systems")},
        {"request": replace(REQUEST, num_micro_batches=4)},
        {"request": replace(REQUEST, disabled_passes=("drop_aliases",))},
        {"rows": 3},
        {"model": Regression(depth=3)},
        {"scale": 2.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_step_is_not_found(change, cache):
    """Precision, cluster, batch, passes, shapes, model and arithmetic all count."""
    first, _ = compiled(cache)
    other, was_found = compiled(cache, **change)
    assert not was_found
    assert other.program.digest != first.program.digest


def test_constants_count():
    """Two models that differ in a buffer have different programs."""

    class Masked(Regression):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", torch.tensor(mask))

        def forward(self, x, y):
            return super().forward(x * self.mask, y)

    digests = [
        compiled(None, model=Masked(mask))[0].program.digest
        for mask in ([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0])
    ]
    assert digests[0] == digests[2] != digests[1]


def test_layers_count():
    """The same arithmetic, cut into other layers, is another program."""

    class Plain(nn.Sequential):
        def forward(self, x, y):
            return (self[2](self.tanh(self[0](x))) - y).square().mean()

        def tanh(self, x):
            return torch.tanh(x)

    class Named(Plain):
        def tanh(self, x):
            return self[1](x)

    as_function, as_module = (
        compiled(None, model=kind(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))[0].program
        for kind in (Plain, Named)
    )
    assert len(as_module.segments) > len(as_function.segments)
    assert as_module.digest != as_function.digest


def test_weights_do_not_count(cache):
    """The program is the same for every value of the parameters."""
    compiled(cache)
    trained = Regression()
    with torch.no_grad():
        trained.layers[0].weight.add_(1)
    assert compiled(cache, model=trained)[1]


@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"", lambda whole: b"nonsense", lambda whole: whole[: len(whole) // 2]],
    ids=["empty", "nonsense", "cut"],
)
def test_a_damaged_artifact_is_compiled_again(damage, cache):
    """With a warning that names the file; afterwards the cache is whole again."""
    first, _ = compiled(cache)
    file = cache.root / first.program.digest / "compiled.pkl"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match=r"compiled.pkl is damaged .* compiling again"):
        again, was_found = compiled(cache)
    assert not was_found
    assert again.program == first.program
    assert compiled(cache)[1]


def test_the_folder_is_for_people_too(cache):
    """Schedule and kernels lie beside the pickle, as text."""
    first, _ = compiled(cache)
    folder = cache.root / first.program.digest
    assert "StreamWeight" in (folder / "schedule.txt").read_text()
    text = (folder / "kernels.py").read_text()
    assert text.count("# segment ") == len(first.program.segments)
    compile(text, "kernels.py", "exec")
    assert pickle.loads((folder / "compiled.pkl").read_bytes()).program == first.program


def test_many_may_store_at_once(cache):
    """One of them wins, nobody fails, and nothing half-written is left."""
    first, _ = compiled(None)
    with ThreadPoolExecutor(8) as threads:
        targets = set(threads.map(lambda _: cache.store(first), range(16)))
    assert targets == {cache.root / first.program.digest}
    assert [path.name for path in cache.root.iterdir()] == [first.program.digest]
    assert cache.load(first.program.digest).program == first.program


def test_a_full_disk_is_no_reason_to_fail(cache, monkeypatch):
    """The step is compiled; the cache stays as it was."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    first, was_found = compiled(cache)
    assert not was_found
    assert first.program.segments
    assert list(cache.root.iterdir()) == []


def test_a_place_that_cannot_be_a_folder_is_named(tmp_path):
    """A wrong compile_dir is the user's to mend, not a traceback of ours."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="compile_dir") as caught:
        compiled(ArtifactCache(tmp_path / "file"))
    assert str(tmp_path / "file") in str(caught.value)


def test_looking_for_nothing_is_silent(cache):
    """No folder, no artifact, no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load("cs_1") is None
    assert not cache.root.exists()
