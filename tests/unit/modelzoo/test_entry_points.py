"""What the zoo offers by name: everything that it has."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pkgutil import walk_packages
from typing import Any

import modelzoo
from waferstream.workload.data import DATA_PROCESSORS, DataProcessor
from waferstream.workload.hugging_face import CONVERSIONS
from waferstream.workload.models import MODELS, ModelFamily


def _everything() -> Iterator[Any]:
    """Yield what the modules of the zoo define."""
    for found in walk_packages(modelzoo.__path__, "modelzoo."):
        yield from vars(import_module(found.name)).values()


def test_every_model_has_a_name() -> None:
    families = [each for each in _everything() if isinstance(each, ModelFamily)]
    assert all(family in MODELS.values() for family in families)


def test_every_data_processor_has_the_name_of_its_class() -> None:
    processors = {
        each.__name__: each
        for each in _everything()
        if isinstance(each, type) and issubclass(each, DataProcessor) and not isabstract(each)
    }
    bases = {base for each in processors.values() for base in each.__mro__[1:]}
    named = {name: each for name, each in processors.items() if each not in bases}
    assert named.items() <= dict(DATA_PROCESSORS).items()


def test_every_conversion_is_of_a_model_of_the_zoo() -> None:
    assert {each.name for each in CONVERSIONS.values()} <= set(MODELS)
