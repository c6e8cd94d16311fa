"""Configurations are frozen, survive their files, and tell what is wrong by its path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag

from wsc.core.config import Config, dump_yaml, load_yaml, validate
from wsc.core.errors import ConfigError


def refuse(value: int) -> int:
    raise ConfigError("never", where="deep.inside", remedy="give up")


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


def message(data: dict, kind: type[Config] = Garage) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(kind, data, "here.yaml")
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_an_unknown_key_names_its_full_path_and_the_nearest_known_key() -> None:
    """A misspelt nested key is named from the top, with the key that was probably meant."""
    text = message({"car": {"engine": {"cylindres": 4}}, "address": "x"})
    assert "unknown key 'car.engine.cylindres'" in text
    assert "where: here.yaml" in text
    assert "did you mean 'cylinders'?" in text
    assert "known keys: cylinders, fuel" in text


def test_a_key_inside_a_list_is_named_with_its_index() -> None:
    """The second entry of a list is [1]."""
    text = message({"car": {"spares": [{}, {"fule": 1}]}, "address": "x"})
    assert "unknown key 'car.spares[1].fule'" in text
    assert "did you mean 'fuel'?" in text


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
def test_true_and_false_are_no_numbers(car: dict[str, Any], key: str) -> None:
    """Alone, in a list, in a mapping or beside a word, a boolean is refused with its key."""
    text = message({"car": car, "address": "x"})
    assert f"value of 'car.{key}' is not allowed" in text
    assert "a number, not true or false" in text


def test_a_number_may_still_be_written_as_text_and_a_boolean_where_one_is_known() -> None:
    """'7' is 7 and 3 is 3.0; true stays true where a field takes either."""
    tank = validate(Tank, {"litres": 3, "pumps": "7", "marks": ["1e3"], "sealed": True}, "here")
    assert (tank.litres, tank.pumps, tank.marks, tank.sealed) == (3.0, 7, (1000.0,), True)


def test_aliases_are_the_keys_that_are_known() -> None:
    """A key is known by the name it has in the file, not by the name of the Python field."""
    text = message({"car": {"dotted": 1}, "address": "x"})
    assert "unknown key 'car.dotted'" in text
    assert "a.dotted.name" in text


def test_a_typo_comes_before_the_key_that_it_leaves_missing() -> None:
    """With 'addres' for 'address' the unknown key is reported, and that there is more."""
    text = message({"car": {}, "addres": "x"})
    assert text.startswith("unknown key 'addres' (and 1 more)")
    assert "did you mean 'address'?" in text


def test_a_missing_key_is_named() -> None:
    """A required key that is absent is named from the top."""
    assert message({"car": {}}).startswith("key 'address' is missing")


def test_every_rule_that_a_value_could_have_met_is_told() -> None:
    """A value of a union fails with all its alternatives in one message, under one path."""
    text = message({"car": {"engine": {"cylinders": "some"}}, "address": "x"})
    assert "value of 'car.engine.cylinders' is not allowed" in text
    assert "value: 'some'" in text
    assert "integer" in text
    assert "'auto'" in text
    assert "more" not in text.splitlines()[0]


def test_a_misspelt_word_is_answered_with_the_nearest_allowed_one() -> None:
    """Of a fixed set of words the nearest is suggested."""
    text = message({"car": {"engine": {"fuel": "deisel"}}, "address": "x"})
    assert "did you mean 'diesel'?" in text


def test_an_unknown_class_of_a_tagged_union_lists_the_known_ones() -> None:
    """A wrong tag names the known classes; no tag at all lists them too."""
    text = message({"car": {"shape": {"name": "Circel"}}, "address": "x"})
    assert "unknown class 'Circel' at 'car.shape'" in text
    assert "did you mean 'Circle'?" in text
    assert "Circle, Square" in message({"car": {"shape": 3}, "address": "x"})


def test_a_validator_may_raise_a_config_error_with_its_own_place() -> None:
    """Its place is preceded by the place of the whole, its remedy kept."""
    text = message({"car": {"doomed": 1}, "address": "x"})
    assert "where: here.yaml, deep.inside" in text
    assert "remedy: give up" in text


def test_a_configuration_cannot_be_changed() -> None:
    """Configurations are frozen."""
    car = validate(Car, {}, "here")
    with pytest.raises(ValueError, match="frozen"):
        car.color = "blue"


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    """YAML would silently keep the last one."""
    path = written(tmp_path, "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    with pytest.raises(ConfigError, match="'c' stands twice") as caught:
        load_yaml(path)
    assert caught.value.where == f"{path}, line 5, first at line 3"


def test_a_merged_anchor_may_be_overridden(tmp_path: Path) -> None:
    """'<<: *anchor' repeats keys on purpose, and may stand in a file."""
    path = written(tmp_path, "base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n")
    assert load_yaml(path)["other"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("text", ["1e-3", "1.e-3", "1E-3", "+1e-3", "1.0e-3"])
def test_powers_of_ten_are_numbers(tmp_path: Path, text: str) -> None:
    """People who write 1e-3 mean the number, whatever YAML 1.1 says."""
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
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    """Words that look like numbers, numbers of any size, and any character survive a file."""
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(dump_yaml(data))
    assert load_yaml(path) == data


@pytest.mark.parametrize("text", [*BROKEN.splitlines(), "[" * 1000])
def test_a_broken_file_is_a_config_error(tmp_path: Path, text: str) -> None:
    """Whatever stands in the file, the error is one of ours and names the file."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a folder and a file that is not text are told as such."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, why in (
        (tmp_path / "none.yaml", "cannot be read"),
        (tmp_path, "cannot be read"),
        (binary, "not text"),
    ):
        with pytest.raises(ConfigError, match=why):
            load_yaml(path)
