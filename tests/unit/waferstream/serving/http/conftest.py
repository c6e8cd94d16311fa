"""A small model that is served, for the tests of all paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.support.runs.served_folder import LOCAL, train_decoder
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.http.app import make_app


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_decoder(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def answers(model_dir: Path) -> Iterator[Answers]:
    with Answers(Deployment(model_dir)) as made:
        yield made


@pytest.fixture
def client(answers: Answers, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a service in this process."""
    with TestClient(
        make_app(answers, tmp_path), base_url=LOCAL, raise_server_exceptions=False
    ) as made:
        yield made
