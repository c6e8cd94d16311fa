"""The numbers of a service, as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from waferstream.serving.answers import Answers

Numbers = dict[tuple[str, tuple[str, ...]], float]


def numbers(client: TestClient) -> Numbers:
    """Return the value of each sample by its name and the values of its labels."""
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(found.text)
    return {
        (sample.name.removeprefix("waferstream_"), tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_answers_are_counted(client: TestClient, answers: Answers) -> None:
    asked = {"model": "model_dir", "prompt": "def ", "max_tokens": 7}
    for _ in range(2):
        assert client.post("/v1/completions", json=asked).status_code == 200
    client.post("/v1/completions", json={})
    client.get("/v1/models/none")
    client.get("/somewhere/else")
    found = numbers(client)
    assert found["http_requests_total", ("/v1/completions", "200")] == 2
    assert found["http_requests_total", ("/v1/completions", "400")] == 1
    assert found["http_requests_total", ("/v1/models/{name:path}", "404")] == 1
    assert found["http_requests_total", ("none", "404")] == 1
    assert found["prompt_tokens_total", ()] == 8
    assert found["completion_tokens_total", ()] == 14
    assert found["cached_prompt_tokens_total", ()] == 0
    assert found["time_to_first_token_seconds_count", ()] == 2
    assert found["time_per_output_token_seconds_count", ()] == 12
    assert found["emulated_seconds_total", ("prompt",)] > 0
    assert found["emulated_seconds_total", ("completion",)] > 0
    assert found["sequences_running", ()] == found["sequences_waiting", ()] == 0
    assert 0 <= found["cache_tokens", ()] < found["cache_capacity_tokens", ()]
    assert found["cache_capacity_tokens", ()] == answers.capacity


def test_two_services_count_for_themselves(client: TestClient, answers: Answers) -> None:
    with pytest.raises(KeyError):
        numbers(client)["http_requests_total", ("/metrics", "200")]
    assert numbers(client)["http_requests_total", ("/metrics", "200")] == 1
