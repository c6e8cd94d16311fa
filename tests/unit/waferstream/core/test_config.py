"""Configurations are frozen, survive a file, and name the path of what is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag, TypeAdapter

from tests.support.errors import raises
from waferstream.core.config import Config, before, dump_yaml, load_yaml, validate
from waferstream.core.errors import ConfigError


def refuse(value: int) -> int:
    raise ConfigError("never", code="refused", where="deep.inside", remedy="give up")


class Circle(Config):
    radius: float


class Square(Config):
    side: float


def shape_name(value: object) -> str | None:
    return value.get("name") if isinstance(value, dict) else None


class Engine(Config):
    cylinders: PositiveInt | Literal["auto"] = "auto"
    fuel: Literal["petrol", "diesel"] = "petrol"


class Tank(Config):
    litres: float = 50.0
    pumps: int = 1
    marks: tuple[float, ...] = ()
    by_road: Mapping[str, int] = {}
    sealed: bool | int = 0


class Car(Config):
    engine: Engine = Engine()
    tank: Tank = Tank()
    spares: tuple[Engine, ...] = ()
    dotted: int = Field(default=0, alias="a.dotted.name")
    color: str = "red"
    shape: (
        Annotated[
            Annotated[Circle, Tag("Circle")] | Annotated[Square, Tag("Square")],
            Discriminator(shape_name),
        ]
        | None
    ) = None
    doomed: Annotated[int, AfterValidator(refuse)] | None = None


class Garage(Config):
    car: Car
    address: str


def error_of(data: dict[str, Any], code: str) -> ConfigError:
    with raises(ConfigError, code) as caught:
        validate(Garage, data, "here.yaml")
    return caught.value


def written(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_unknown_key_names_its_path_and_the_nearest_key() -> None:
    """A misspelt nested key is named from the top, with the key that was probably meant."""
    error = error_of({"car": {"engine": {"cylindres": 4}}, "address": "x"}, "unknown-key")
    assert "'car.engine.cylindres'" in error.what
    assert error.where == "here.yaml"
    assert error.remedy == "did you mean 'cylinders'?"
    assert error.rule == "known keys: cylinders, fuel"


def test_key_inside_a_list_is_named_with_its_index() -> None:
    """The second entry of a list is [1]."""
    error = error_of({"car": {"spares": [{}, {"fule": 1}]}, "address": "x"}, "unknown-key")
    assert "'car.spares[1].fule'" in error.what
    assert error.remedy == "did you mean 'fuel'?"


@pytest.mark.parametrize(
    ("car", "key"),
    [
        ({"tank": {"litres": True}}, "tank.litres"),
        ({"tank": {"pumps": False}}, "tank.pumps"),
        ({"tank": {"marks": [1.0, True]}}, "tank.marks"),
        ({"tank": {"by_road": {"gravel": False}}}, "tank.by_road"),
        ({"engine": {"cylinders": True}}, "engine.cylinders"),
    ],
)
def test_boolean_for_a_number_is_a_wrong_type(car: dict[str, Any], key: str) -> None:
    """Alone, in a list, in a mapping or beside a word, a boolean is refused with its key."""
    error = error_of({"car": car, "address": "x"}, "wrong-type")
    assert f"'car.{key}'" in error.what
    assert "a number, not true or false" in str(error.rule)


def test_numbers_as_text_and_boolean_fields_are_read() -> None:
    """'7' is 7 and 3 is 3.0; true stays true where a field takes either."""
    tank = validate(Tank, {"litres": 3, "pumps": "7", "marks": ["1e3"], "sealed": True}, "here")
    assert (tank.litres, tank.pumps, tank.marks, tank.sealed) == (3.0, 7, (1000.0,), True)


def test_aliases_are_the_known_keys() -> None:
    """A key has its name in the file, not the name of the Python field."""
    error = error_of({"car": {"dotted": 1}, "address": "x"}, "unknown-key")
    assert "'car.dotted'" in error.what
    assert "a.dotted.name" in str(error.rule)


def test_unknown_key_is_reported_before_a_missing_key() -> None:
    """With 'addres' for 'address' the unknown key is reported, and that there is more."""
    error = error_of({"car": {}, "addres": "x"}, "unknown-key")
    assert "'addres' (and 1 more)" in error.what
    assert error.remedy == "did you mean 'address'?"


def test_missing_key_is_named() -> None:
    """A required key that is absent is named from the top."""
    assert "'address'" in error_of({"car": {}}, "missing-key").what


def test_wrong_value_lists_all_alternative_rules() -> None:
    """A value of a union fails with all its alternatives in one message, under one path."""
    error = error_of({"car": {"engine": {"cylinders": "some"}}, "address": "x"}, "wrong-type")
    assert "'car.engine.cylinders'" in error.what
    assert "more" not in error.what
    assert error.value == "'some'"
    assert all(word in str(error.rule) for word in ("whole number", "'auto'"))


def test_number_beyond_its_bounds_is_out_of_range() -> None:
    """Also where a union allows a word instead."""
    error_of({"car": {"engine": {"cylinders": 0}}, "address": "x"}, "out-of-range")
    error_of({"car": {"tank": {"litres": float("nan")}}, "address": "x"}, "out-of-range")


def test_misspelt_word_gets_the_nearest_allowed_word() -> None:
    """Of a fixed set of words the nearest is suggested."""
    error = error_of({"car": {"engine": {"fuel": "deisel"}}, "address": "x"}, "not-one-of")
    assert error.remedy == "did you mean 'diesel'?"


def test_unknown_class_lists_the_known_classes() -> None:
    """A wrong tag names the known classes; no tag at all lists them too."""
    error = error_of({"car": {"shape": {"name": "Circel"}}, "address": "x"}, "unknown-class")
    assert "'Circel' at 'car.shape'" in error.what
    assert error.remedy == "did you mean 'Circle'?"
    untagged = error_of({"car": {"shape": 3}, "address": "x"}, "missing-class")
    assert "Circle, Square" in str(untagged.rule)


def test_config_error_of_a_validator_keeps_its_fields() -> None:
    """Its place is preceded by the place of the whole, its remedy kept."""
    error = error_of({"car": {"doomed": 1}, "address": "x"}, "refused")
    assert error.where == "here.yaml, deep.inside"
    assert error.remedy == "give up"


def test_configuration_is_frozen() -> None:
    """Whatever a program would change: the error names class and key."""
    car = Car()
    for name in ("color", "colour", "model_config"):
        with raises(ConfigError, "configuration-frozen") as caught:
            setattr(car, name, "blue")
        assert caught.value.where == f"Car.{name}"
    with raises(ConfigError, "configuration-frozen"):
        del car.color


@pytest.mark.parametrize(
    ("data", "code", "key"),
    [
        ({"car": {"tank": {"pumps": "x"}}, "address": "x"}, "wrong-type", "car.tank.pumps"),
        ({"car": {"doomed": 1}, "address": "x"}, "refused", "never"),
        ({"car": {}}, "missing-key", "address"),
        (3, "wrong-type", "Garage"),
        (None, "wrong-type", "Garage"),
        ([("car", {})], "wrong-type", "Garage"),
    ],
)
def test_program_that_validates_plain_data_gets_our_error(
    data: object, code: str, key: str
) -> None:
    """As one that calls the class; what is no mapping at all has the name of the class."""
    with raises(ConfigError, code) as caught:
        Garage.model_validate(data)
    assert key in str(caught.value)


def test_duplicate_key_is_refused_with_both_lines(tmp_path: Path) -> None:
    """YAML would silently keep the last one."""
    path = written(tmp_path, "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    with raises(ConfigError, "duplicate-key") as caught:
        load_yaml(path)
    assert "'c'" in caught.value.what
    assert caught.value.where == f"{path}, line 5, first at line 3"


def test_merged_yaml_anchor_may_be_overridden(tmp_path: Path) -> None:
    """'<<: *anchor' repeats keys on purpose."""
    path = written(tmp_path, "base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n")
    assert load_yaml(path)["other"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("text", ["1e-3", "1.e-3", "1E-3", "+1e-3", "1.0e-3"])
def test_powers_of_ten_are_numbers(tmp_path: Path, text: str) -> None:
    """1e-3 is a number, although YAML 1.1 reads a string."""
    assert load_yaml(written(tmp_path, f"lr: {text}\n")) == {"lr": 1e-3}


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()

BROKEN = """
- a list
a: [1
a: *nowhere
? [1, 2]
a: !!python/name:os.system
a: 2024-99-99
"""


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text() | st.sampled_from(["1e3", "1", "yes", "<<", "~"]), scalars))
def test_load_yaml_reads_what_dump_yaml_wrote(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    """Words that look like numbers, numbers of any size, and any character survive a file."""
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(dump_yaml(data))
    assert load_yaml(path) == data


def test_dump_yaml_repeats_data_instead_of_referring_to_it() -> None:
    shared = [1]
    assert dump_yaml({"a": shared, "b": shared}) == "a:\n- 1\nb:\n- 1\n"


@pytest.mark.parametrize("text", [*BROKEN.splitlines(), "[" * 90])
def test_broken_yaml_is_a_config_error(tmp_path: Path, text: str) -> None:
    """For any contents of the file the error is a ConfigError that names the file."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    assert str(caught.value.where).startswith(str(path))
    assert caught.value.code in {
        "file-not-yaml",
        "file-not-a-mapping",
        "file-not-plain",
        "wrong-type",
    }


def test_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    """A missing file, a folder and a file that is not text have errors of their own."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, code in (
        (tmp_path / "none.yaml", "file-not-readable"),
        (tmp_path, "file-not-readable"),
        (binary, "file-not-text"),
    ):
        with raises(ConfigError, code):
            load_yaml(path)


def test_folder_of_transformers_is_refused_with_the_command_that_converts_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with raises(ConfigError, "file-not-readable") as caught:
        load_yaml(tmp_path)
    assert f"convert-config {tmp_path}/config.json" in (caught.value.remedy or "")


@pytest.mark.parametrize("number", ["010", "-07", "1:30", "1:30.5", "0_10", "!!int '1:30'"])
def test_number_of_another_base_is_refused(tmp_path: Path, number: str) -> None:
    """YAML 1.1 would read 8, -7, 90, 90.5 and 8; the error names the line, and quotes help."""
    path = written(tmp_path, f"a: 1\nb: [{number}]\n")
    with raises(ConfigError, "number-ambiguous") as caught:
        load_yaml(path)
    assert caught.value.where == f"{path}, line 2"


def test_plain_numbers_and_quoted_texts_are_read(tmp_path: Path) -> None:
    text = "a: [0, 0.5, 1_000, 0x1F, -3, 0e0, '010', '1:30']\n"
    found = load_yaml(written(tmp_path, text))["a"]
    assert found == [0, 0.5, 1000, 31, -3, 0.0, "010", "1:30"]


def test_pipe_is_refused_instead_of_awaited(tmp_path: Path) -> None:
    """Nobody writes to it."""
    pipe = tmp_path / "params.yaml"
    os.mkfifo(pipe)
    with raises(ConfigError, "file-not-readable"):
        load_yaml(pipe)


class Folders(Config):
    one: Path = Path()
    more: tuple[Path, ...] = ()


def test_empty_text_is_no_path(tmp_path: Path) -> None:
    """Pydantic would take the current folder."""
    for data in ({"one": ""}, {"more": ["a", ""]}):
        with raises(ConfigError, "not-allowed"):
            validate(Folders, data, "here")
    assert validate(Folders, {"one": "."}, "here").one == Path()


def bomb(levels: int, width: int, item: str = "*x{}") -> str:
    """Return a short text that stands for ``width ** levels`` values."""
    lines = ["x0: &x0 [1]"]
    for level in range(1, levels):
        inner = ", ".join([item.format(level - 1)] * width)
        lines.append(f"x{level}: &x{level} [{inner}]")
    return "\n".join(lines) + "\n"


MERGE_BOMB = "x0: &x0 {a: 1}\n" + "".join(
    f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (bomb(12, 10), "file-too-large"),
        (MERGE_BOMB, "file-too-large"),
        ("x: &x [*x]\n", "file-too-large"),
        ("x: " + "[" * 200 + "]" * 200, "file-too-large"),
        ("y: " + "[" * 20_000 + "]" * 20_000, "file-too-large"),
        ("x: 0x" + "f" * 10_000, "file-too-large"),
        ("x: " + ":".join(["1"] * 10_000), "file-too-large"),
        ("x: " + "y" * 2**20, "file-too-large"),
        ("x: !!binary /w==\n", "file-not-plain"),
        ("x: !!set {a, b}\n", "file-not-plain"),
        ("x: !!python/object/apply:os.getcwd []\n", "file-not-plain"),
        ('x: "\\ud800"\n', "file-not-plain"),
    ],
    ids=lambda value: value[:24],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str, code: str) -> None:
    """A file that stands for gigabytes, or for what is no plain data, is refused at once."""
    with raises(ConfigError, code) as caught:
        load_yaml(written(tmp_path, text))
    assert str(tmp_path) in str(caught.value.where)


def test_yaml_alias_is_read_within_limits(tmp_path: Path) -> None:
    """Aliases stay usable."""
    found = load_yaml(written(tmp_path, bomb(3, 10)))
    assert found["x2"] == [[[1]] * 10] * 10


@pytest.mark.parametrize("has_input_type", [True, False])
def test_value_is_converted_with_every_release_of_pydantic(
    monkeypatch: pytest.MonkeyPatch, has_input_type: bool
) -> None:
    """The vendor's Model Zoo pins a release without the argument for JSON schemas."""
    monkeypatch.setattr("waferstream.core.config._HAS_INPUT_TYPE", has_input_type)
    read = TypeAdapter(Annotated[int, before(lambda value: value or 0, int | None)])
    assert read.validate_python(None) == 0
    assert (read.json_schema() == {"type": "integer"}) is not has_input_type
