"""Mistakes in programs and in what surrounds a run: 25 to 30 and 37 to 39."""

from __future__ import annotations

from scripts.mistakes.mistake import Mistake, Typed

_TRAIN = "waferstream train params.yaml"
_PROGRAM = "python program.py"
_TORCH = "the program itself imports torch"
_FORWARD = "        return self.layer(inputs)"
_LOSS = "    loss_fn=torch.nn.functional.cross_entropy,\n"
_SAMPLE = "return torch.full((4,), index / 64), index % 3"
_LOADER = "DataLoader(Samples(), batch_size=8)"
_PRINTS = (("trainer.shutdown()\n", "trainer.shutdown()\nprint('fits')\n"),)
_SHADOWS = {f"{name}.py": "" for name in ("timing", "core", "validation", "memory")}


def _program(*edits: tuple[str, str], says: tuple[str, ...], code: tuple[int, ...] = (1,)) -> Typed:
    """Return a program with changes, started by Python itself."""
    return Typed(_PROGRAM, says, edits=edits, needs=_TORCH, code=code)


PROGRAMS = (
    Mistake(
        25,
        "`if inputs.min() < 8` on data in `forward`",
        (
            _program(
                (
                    _FORWARD,
                    f"        if inputs.min() < 8:\n            inputs = inputs * 2\n{_FORWARD}",
                ),
                says=("[op-depends-on-values]", "program.py:21", "inputs.min() < 8", "torch.where"),
            ),
        ),
    ),
    Mistake(
        26,
        "a model that takes the batch as a dict",
        (
            _program(
                (_SAMPLE, 'return {"inputs": torch.ones(4), "labels": index % 3}'),
                ("def forward(self, inputs)", "def forward(self, batch)"),
                (
                    _FORWARD,
                    "        return torch.nn.functional.cross_entropy("
                    'self.layer(batch["inputs"]), batch["labels"])',
                ),
                (_LOSS, ""),
                *_PRINTS,
                says=("fits",),
                code=(0,),
            ),
            _program(
                (_SAMPLE, 'return {"pixels": torch.ones(4), "labels": index % 3}'),
                says=("[batch-does-not-fit-model]", "forward has inputs, the batch pixels, labels"),
            ),
        ),
    ),
    Mistake(
        27,
        "`loss_fn` given, and `forward` returns a loss",
        (
            _program(
                ("def forward(self, inputs)", "def forward(self, inputs, labels)"),
                (
                    _FORWARD,
                    "        return torch.nn.functional.cross_entropy(self.layer(inputs), labels)",
                ),
                says=("[batch-does-not-fit-model]", "labels", "leave out loss_fn"),
            ),
            _program(
                (_FORWARD, "        return self.layer(inputs).square().mean()"),
                says=("[loss-of-loss]", "forward returns a scalar", "leave out loss_fn"),
            ),
        ),
    ),
    Mistake(
        28,
        "labels outside of the classes; NaN in the data",
        (
            _program(
                ("index % 3", "index % 5"),
                says=("[kernel-failed]", "Target 3 is out of bounds", "micro-batch"),
            ),
            _program(
                ("index / 64)", 'float("nan"))'), says=("[loss-not-finite]", "step 1", "data")
            ),
        ),
    ),
    Mistake(
        29,
        "a dataset without `__len__`; a smaller last batch; samples of several lengths",
        (
            _program(
                ("    def __len__(self):\n        return 64\n", ""),
                says=("[dataset-not-readable-by-loader]", "has no len()", "give it __len__"),
            ),
            _program(
                ("batch_size=8)", "batch_size=24)"),
                says=("[batch-rows-mismatch]", "(16, 4)", "24", "drop the last"),
            ),
            _program(
                ("torch.full((4,)", "torch.full((4 + index % 2,)"),
                says=("[dataset-not-readable-by-loader]", "[4] at entry 0 and [5]", "collate_fn"),
            ),
        ),
    ),
    Mistake(
        30,
        "files `timing.py`, `core.py` or `validation.py` beside the script",
        (
            Typed(
                "waferstream exec program.py",
                ("fits",),
                edits=_PRINTS,
                files=_SHADOWS,
                needs=_TORCH,
                leaves=("cerebras_logs",),
                code=(0,),
            ),
            Typed(
                _PROGRAM,
                ("fits",),
                edits=_PRINTS,
                files=_SHADOWS,
                needs=_TORCH,
                code=(0,),
            ),
        ),
    ),
    Mistake(
        37,
        "`RAY_ADDRESS` of a cluster that is gone; proxies that are gone",
        (
            Typed(
                _TRAIN,
                ("[ray-not-answering]", "RAY_ADDRESS=127.0.0.1:9", "unset RAY_ADDRESS"),
                files={"cluster.yaml": "runtime: {kind: ray, address: auto}\n"},
                environment={"RAY_ADDRESS": "127.0.0.1:9"},
            ),
            Typed(
                _TRAIN,
                ("Weights SHA-256",),
                environment={
                    "RAY_ADDRESS": "127.0.0.1:9",
                    "http_proxy": "http://127.0.0.1:9",
                    "https_proxy": "http://127.0.0.1:9",
                },
                files={"cluster.yaml": "runtime: {kind: ray, address: local}\n"},
                needs="the run goes well: its Ray is its own",
                leaves=("model_dir",),
                code=(0,),
            ),
        ),
    ),
    Mistake(
        38,
        "`pip install` beside torch of another release",
        (
            Typed(
                _TRAIN,
                ("[torch-not-tested]", "2.4.0", "2.13.0", "remedy:"),
                files={
                    "other/torch/__init__.py": '__version__ = "2.4.0"\n',
                    "other/torch-2.4.0.dist-info/METADATA": "Name: torch\nVersion: 2.4.0\n",
                },
                environment={"PYTHONPATH": "other"},
            ),
        ),
    ),
    Mistake(
        39,
        "Ctrl-C in each phase, twice, in a cell of a notebook",
        (
            Typed(
                f"{_TRAIN} --max_steps 1000000",
                ("first step",),
                signals=("parameters; results go to",),
                needs="the phase in which it comes",
                leaves=("model_dir",),
                code=(130,),
            ),
            Typed(
                f"{_TRAIN} --max_steps 1000000 --checkpoint.steps 20",
                ("The same command continues from model_dir/checkpoint_",),
                signals=("step 40 ",),
                needs="the phase in which it comes",
                leaves=("model_dir",),
                code=(130,),
            ),
            Typed(
                f"{_TRAIN} --max_steps 1000000",
                ("Interrupt again to end at once", "The same command"),
                signals=("step 3 ", "step 3 "),
                needs="the phase in which it comes",
                leaves=("model_dir",),
                code=(130,),
            ),
            Typed(
                _PROGRAM,
                ("KeyboardInterrupt", "the cell after it runs"),
                edits=(
                    ("max_steps=4", "max_steps=100000"),
                    (
                        f"trainer.fit({_LOADER})\n",
                        "print('fits', flush=True)\n"
                        f"try:\n    trainer.fit({_LOADER})\n"
                        "except KeyboardInterrupt as error:\n"
                        "    print(repr(error), 'the cell after it runs', flush=True)\n",
                    ),
                ),
                signals=("fits",),
                needs=_TORCH,
                code=(0,),
            ),
        ),
    ),
)
