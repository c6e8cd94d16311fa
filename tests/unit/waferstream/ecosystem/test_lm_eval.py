"""The evaluation harness scores the choices of a task on the cluster, as transformers does."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.errors import raises
from tests.support.models.hugging_face_folder import CONTEXT, write_folder
from waferstream.core.errors import ConfigError

QUESTIONS: list[dict[str, Any]] = [
    {"question": "def the", "choices": [" return", " in for", " class if"], "answer": 0},
    {"question": "import of", "choices": [" the", " not and"], "answer": 1},
]

pytestmark = pytest.mark.nightly


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The harness, which tells of its imports and reads the command line."""
    monkeypatch.setattr(sys, "argv", ["test"])
    with warnings.catch_warnings(action="ignore"):
        import lm_eval
        from lm_eval.api.instance import Instance

        from waferstream.ecosystem.lm_eval import HarnessModel

        yield lm_eval, Instance, HarnessModel


def test_choices_of_a_task_are_scored(harness: Any, tmp_path: Path) -> None:
    """By log-probabilities equal to those of transformers."""
    lm_eval, instance, kind = harness
    theirs = write_folder(tmp_path / "model", "gpt2")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in QUESTIONS))
    model = kind(tmp_path / "model", num_csx=1, cluster={"runtime": {"kind": "local"}})
    try:
        pairs = [(row["question"], choice) for row in QUESTIONS for choice in row["choices"]]
        asked = [instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
        found = model.loglikelihood(asked, disable_tqdm=True)
        for pair, (value, is_best) in zip(pairs, found, strict=True):
            context, more = model._encode_pair(*pair)
            with torch.no_grad():
                scores = theirs(torch.tensor([context + more])).logits[0].log_softmax(-1)
            rows = scores[len(context) - 1 : -1]
            own = rows[range(len(more)), more].sum().item()
            assert value == pytest.approx(own, abs=1e-4)
            assert is_best == (rows.argmax(-1).tolist() == more)
        task = {
            "task": "tiny", "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "output_type": "multiple_choice", "doc_to_text": "{{question}}",
            "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}", "target_delimiter": "",
            "metric_list": [{"metric": "acc", "aggregation": "mean"}],
        }  # fmt: skip
        results = lm_eval.simple_evaluate(model=model, tasks=[task], bootstrap_iters=0)
        values = [value for value, _ in found]
        right = [values[:3].index(max(values[:3])) == 0, values[3:].index(max(values[3:])) == 1]
        assert results["results"]["tiny"]["acc,none"] == sum(right) / 2
    finally:
        model.shutdown()


def test_texts_are_continued(harness: Any, tmp_path: Path) -> None:
    """With the best tokens, as transformers does, up to a stop; several at a time."""
    _, instance, kind = harness
    theirs = write_folder(tmp_path / "model", "gpt2")
    model = kind(tmp_path / "model", num_csx=1, cluster={"runtime": {"kind": "local"}})

    def written(context: str, **options: Any) -> str:
        (text,) = model.generate_until([instance("generate_until", {}, (context, options), 0)])
        return str(text)

    try:
        prompts = ["def the", "import of in", "def the " * 40]
        asked = [instance("generate_until", {}, (x, {"max_gen_toks": 8}), 0) for x in prompts]
        for prompt, text in zip(prompts, model.generate_until(asked), strict=True):
            ids = torch.tensor([model.tok_encode(prompt)[-CONTEXT + 8 :]])
            whole = theirs.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]
            end = [*whole.tolist(), model.eot_token_id].index(model.eot_token_id)
            assert text == model._served.text.decode(whole[:end].tolist())
        first = written(prompts[0], max_gen_toks=8)
        stop = first[len(first) // 2 :][:2]
        assert written(prompts[0], max_gen_toks=8, until=[stop]) == first.partition(stop)[0]
        for refused in ({"max_gen_toks": CONTEXT}, {"max_gen_toks": 8, "num_beams": 2}):
            with raises(ConfigError, "harness-answer-refused"):
                written(prompts[0], **refused)
    finally:
        model.shutdown()
