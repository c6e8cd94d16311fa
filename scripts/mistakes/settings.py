"""Mistakes in words, keys and values, 1 to 20, 24, 31, 32 and 36."""

from __future__ import annotations

from scripts.mistakes.mistake import Mistake, Typed

_TRAIN = "waferstream train params.yaml"
_SIMULATE = "waferstream simulate params.yaml"

SETTINGS = (
    Mistake(
        1,
        "a params file that is not there",
        (
            Typed(
                "waferstream train nowhere.yaml",
                ("[file-not-readable]", "nowhere.yaml", "remedy:"),
            ),
        ),
    ),
    Mistake(
        2,
        "no params file at all",
        (Typed("waferstream train", ("params", "Example: waferstream train params.yaml")),),
    ),
    Mistake(
        3,
        "`hiden_size` in the model section",
        (
            Typed(
                _TRAIN,
                ("[unknown-key]", "'hiden_size'", "trainer.init.model", "'hidden_size'"),
                edits=(("hidden_size", "hiden_size"),),
            ),
        ),
    ),
    Mistake(
        4,
        "a flag that does not exist",
        (Typed(f"{_TRAIN} --num_cxs 4", ("unknown flag --num_cxs", "did you mean --num_csx?")),),
    ),
    Mistake(
        5,
        "a model that there is not",
        (
            Typed(
                _TRAIN,
                ("[unknown-model]", "trainer.init.model", "gpt5", "did you mean 'gpt3'?"),
                edits=(("name: gpt2", "name: gpt5"),),
            ),
        ),
    ),
    Mistake(
        6,
        "a tab, or wrong indentation, in YAML",
        (
            Typed(
                _TRAIN,
                ("[file-not-yaml]", "params.yaml, line 4", "spaces"),
                edits=(("    model_dir", "\tmodel_dir"),),
            ),
            Typed(
                _TRAIN,
                ("[file-not-yaml]", "params.yaml, line 4", "indent", "same number of spaces"),
                edits=(("    model_dir", "      model_dir"),),
            ),
        ),
    ),
    Mistake(
        7,
        '`max_steps: "many"`',
        (
            Typed(
                _TRAIN,
                ("[wrong-type]", "max_steps", "many", "a whole number"),
                edits=(("max_steps: 4", 'max_steps: "many"'),),
            ),
        ),
    ),
    Mistake(
        8,
        "a number of systems that cannot be",
        tuple(
            Typed(f"{_TRAIN} --num_csx {number}", ("num_csx", number, rule))
            for number, rule in (
                ("0", "greater than 0"),
                ("-2", "greater than 0"),
                ("4.5", "a whole number"),
            )
        ),
    ),
    Mistake(
        9,
        "a batch smaller than the number of systems",
        (
            Typed(
                f"{_TRAIN} --num_csx 16",
                ("[batch-below-systems]", "batch_size 8", "num_csx 16", "remedy:"),
            ),
        ),
    ),
    Mistake(
        10,
        "heads that do not divide the hidden size",
        (
            Typed(
                _TRAIN,
                ("num_heads must divide hidden_size, which is 32", "3", "remedy: one of 1, 2, 4"),
                edits=(("num_heads: 2", "num_heads: 3"),),
            ),
        ),
    ),
    Mistake(
        11,
        "data: a path that is not there; an empty file; a folder without text",
        (
            Typed(
                _TRAIN,
                ("[data-file-not-found]", "nowhere.txt", "remedy:"),
                edits=(("text.txt", "nowhere.txt"),),
            ),
            Typed(_TRAIN, ("empty", "text.txt", "rule:", "remedy:"), files={"text.txt": ""}),
            Typed(
                _TRAIN,
                ("[data-file-not-found]", "pictures", ".txt", "remedy:"),
                edits=(("text.txt", "pictures"),),
                files={"pictures/a.png": "no text"},
            ),
        ),
    ),
    Mistake(
        12,
        "an optimizer that there is not",
        (
            Typed(
                _TRAIN,
                ("[unknown-class]", "AdmaW", "did you mean 'AdamW'?"),
                edits=(("AdamW", "AdmaW"),),
            ),
        ),
    ),
    Mistake(
        13,
        "both `lr` and `schedulers`",
        (
            Typed(
                f"{_TRAIN} --validate_only",
                ("lr: 0.01 of the optimizer has no effect", "ConstantLR sets the learning rate"),
                edits=(
                    (
                        "    loop:",
                        "    schedulers: [{ConstantLR: {learning_rate: 0.5}}]\n    loop:",
                    ),
                ),
                needs="the run goes on: params files of the vendor have both",
                leaves=("model_dir",),
                code=(0,),
            ),
        ),
    ),
    Mistake(
        14,
        "a system that there is not",
        (
            Typed(
                f"{_SIMULATE} --system CS-4",
                ("CS-4", "CS-2", "CS-3"),
            ),
            Typed(
                _SIMULATE,
                ("CS-4", "cluster.yaml", "machine.system", "CS-2", "CS-3"),
                files={"cluster.yaml": "machine: {system: CS-4}\n"},
            ),
        ),
    ),
    Mistake(
        15,
        "`system:` at the top of cluster.yaml",
        (
            Typed(
                _SIMULATE,
                ("[unknown-key]", "'system'", "cluster.yaml", "machine.system"),
                files={"cluster.yaml": "system: CS-3\n"},
            ),
        ),
    ),
    Mistake(
        16,
        "a tree with a fan-out of 1",
        (
            Typed(
                _SIMULATE,
                ("fan_out", "machine.swarmx", "1", "rule:"),
                files={"cluster.yaml": "machine: {swarmx: {fan_out: 1}}\n"},
            ),
        ),
    ),
    Mistake(
        17,
        "a range of systems in another language",
        (
            Typed(
                f"{_SIMULATE} --sweep 1..8", ("[sweep-invalid]", "--sweep", "1..8", "as in 1,2,4-8")
            ),
        ),
    ),
    Mistake(
        18,
        "a number of tokens in words",
        (
            Typed(
                f"{_SIMULATE} --token_budget 300billion",
                ("--token_budget", "300billion", "300B"),
            ),
        ),
    ),
    Mistake(
        19,
        "a mode that there is not",
        (
            Typed(
                "python -m waferstream --params params.yaml --mode training",
                ("mode", "training", "train", "eval"),
            ),
        ),
    ),
    Mistake(
        20,
        "a word that is no command",
        tuple(
            Typed(f"waferstream {word} params.yaml", (f"'{word}'", meant))
            for word, meant in (
                ("predict", "waferstream simulate FILE"),
                ("show", "waferstream report FOLDER"),
                ("tarin", "Did you mean 'train'?"),
            )
        ),
    ),
    Mistake(
        24,
        "more systems than micro-batches, in a sweep",
        (
            Typed(
                f"{_SIMULATE} --sweep 1,8,16",
                ("Impossible with num_csx 16", "[batch-below-systems]"),
                needs="the other points of the sweep are computed",
                leaves=("model_dir",),
                code=(0,),
            ),
        ),
    ),
    Mistake(
        31,
        "YAML that reads values as others: `seed: 010`, `lr: 1e-3`, `path: 12:30:45`",
        (
            Typed(
                f"{_TRAIN} --validate_only",
                ("[number-ambiguous]", "line 3", "010", "base 8", "remedy:"),
                edits=(("seed: 1", "seed: 010"),),
            ),
            Typed(
                f"{_TRAIN} --validate_only",
                ("report",),
                edits=(("lr: 0.01", "lr: 1e-3"),),
                needs="the run goes on: it is the number that is meant",
                leaves=("model_dir",),
                code=(0,),
            ),
            Typed(
                _TRAIN,
                ("[number-ambiguous]", "line 20", "12:30:45", "in quotes"),
                edits=(("text.txt", "12:30:45"),),
            ),
        ),
    ),
    Mistake(
        32,
        "a key twice; an anchor that is not there",
        (
            Typed(
                _TRAIN,
                ("[duplicate-key]", "seed", "line 4"),
                edits=(("    seed: 1\n", "    seed: 1\n    seed: 2\n"),),
            ),
            Typed(
                _TRAIN,
                ("[file-not-yaml]", "undefined alias", "text", "line"),
                edits=(("text.txt", "*text"),),
            ),
        ),
    ),
    Mistake(
        36,
        "`--system CS-2` beside a cluster.yaml that changes the system",
        (
            Typed(
                f"{_SIMULATE} --system CS-2",
                ("CS-2 as published, without what cluster.yaml changes", "system.clock_hz"),
                files={"cluster.yaml": "machine: {system: {name: CS-3, clock_hz: 900000000}}\n"},
                needs="the prediction is made, for the machine that was named last",
                leaves=("model_dir",),
                code=(0,),
            ),
        ),
    ),
)
