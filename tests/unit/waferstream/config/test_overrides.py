"""Typed values laid over a file: set, put first, or merged."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from waferstream.config.overrides import Override, apply_overrides, put

NAMES = st.sampled_from(["a", "b", "c"])


def trainer() -> dict[str, Any]:
    return {
        "init": {
            "backend": {"cluster_config": {"num_csx": 1, "mount_dirs": ["/file"]}},
            "callbacks": [{"CheckLoss": None}, {"GlobalFlags": {"csx.debug.ini": {"a": 1}}}],
        },
        "fit": {"ckpt_path": "newest"},
    }


def test_set_replaces() -> None:
    """A typed number takes the place of the one in the file, and only that one."""
    path = ("init", "backend", "cluster_config", "num_csx")
    result = apply_overrides(trainer(), [Override("--num_csx", path, 4)])
    expected = trainer()
    expected["init"]["backend"]["cluster_config"]["num_csx"] = 4
    assert result == expected


def test_lists_put_what_was_typed_first() -> None:
    """Typed entries come before those of the file; without any in the file they stand alone."""
    cluster = ("init", "backend", "cluster_config")
    result = apply_overrides(
        trainer(),
        [
            Override("--mount_dirs", (*cluster, "mount_dirs"), ["/typed"], "prepend"),
            Override("--python_paths", (*cluster, "python_paths"), ["/p"], "prepend"),
        ],
    )["init"]["backend"]["cluster_config"]
    assert result["mount_dirs"] == ["/typed", "/file"]
    assert result["python_paths"] == ["/p"]


def test_callbacks_are_found_by_name_or_added() -> None:
    """A flag below a callback merges into it; a callback that is missing is added."""
    ini = ("init", "callbacks", "GlobalFlags", "csx.debug.ini")
    keep = ("init", "callbacks", "KeepNCheckpoints", "n")
    result = apply_overrides(
        trainer(), [Override("--ini", ini, {"b": 2}, "merge"), Override("--keep", keep, 3)]
    )
    assert result["init"]["callbacks"] == [
        {"CheckLoss": None},
        {"GlobalFlags": {"csx.debug.ini": {"a": 1, "b": 2}}},
        {"KeepNCheckpoints": {"n": 3}},
    ]


def test_a_mode_that_the_file_lacks_is_not_made() -> None:
    """--checkpoint_path concerns the modes that the file has."""
    paths = [("fit", "ckpt_path"), ("validate", "ckpt_path")]
    result = apply_overrides(trainer(), [Override("-c", path, "x.mdl") for path in paths])
    assert result["fit"] == {"ckpt_path": "x.mdl"}
    assert "validate" not in result


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.integers()), st.lists(st.dictionaries(NAMES, st.integers())))
def test_merging_keeps_every_key_and_the_last_typed_value_wins(
    in_file: dict[str, int], typed: list[dict[str, int]]
) -> None:
    """For every merge the result is the file's mapping updated with each typed one."""
    data = {"init": {"labels": in_file}}
    before = copy.deepcopy(data)
    result = apply_overrides(
        data, [Override("--labels", ("init", "labels"), labels, "merge") for labels in typed]
    )
    expected = dict(in_file)
    for labels in typed:
        expected.update(labels)
    assert result == {"init": {"labels": expected}}
    assert data == before


def test_put_makes_what_is_missing() -> None:
    """Mappings and lists of classes on the way are made."""
    data: dict[str, Any] = {}
    put(data, ("init", "loop", "max_steps"), 5)
    put(data, ("init", "callbacks", "A", "x"), 1)
    put(data, ("init", "callbacks", "A", "y"), 2)
    assert data == {"init": {"loop": {"max_steps": 5}, "callbacks": [{"A": {"x": 1, "y": 2}}]}}
