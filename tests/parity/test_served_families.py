"""Models of Hugging Face, served: the tokens of transformers' own generation."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.support.errors import raises
from tests.support.models.hugging_face_folder import CONTEXT, FAMILIES, OTHERS, write_folder
from waferstream.core.errors import CheckpointError, ConfigError, WaferStreamError
from waferstream.core.serving import AnswerFailed, Sampling
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.models.loading import load_model
from waferstream.serving.questions import End, Piece, Question

PROMPT = "def class import é the print "
GREEDY = Sampling(1, temperature=0)
WAIT_S = 60


@contextmanager
def served(folder: Path) -> Iterator[Answers]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with Answers(Deployment(folder)) as answers:
            yield answers
    finally:
        torch.set_num_threads(threads)


def answer(
    answers: Answers, tokens: tuple[int, ...], sampling: Sampling = GREEDY, most: int | None = None
) -> tuple[str, End]:
    pieces: queue.Queue[Piece | AnswerFailed] = queue.Queue()
    answers.ask(Question(tokens, sampling, most), pieces.put)
    text = ""
    while True:
        piece = pieces.get(timeout=WAIT_S)
        assert isinstance(piece, Piece), piece
        text += piece.said.text
        if piece.end is not None:
            return text, piece.end


@pytest.mark.parametrize("case", FAMILIES)
def test_greedy_answer_is_that_of_transformers(case: str, tmp_path: Path) -> None:
    """Up to the context, or to a token that ends texts; scores are close after the prompt."""
    model = write_folder(tmp_path, case)
    with served(tmp_path) as answers:
        text = answers.model.text
        tokens = text.encode(PROMPT)
        found, end = answer(answers, tokens)
        with torch.no_grad():
            scores = answers.model.scores(torch.tensor([tokens]), torch.arange(len(tokens))[None])
            expected = model(torch.tensor([tokens])).logits
            torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
            whole = model.generate(
                torch.tensor([tokens]),
                attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
                max_length=CONTEXT,
                do_sample=False,
                pad_token_id=0,
            )[0, len(tokens) :].tolist()
    is_ended = whole[-1] in text.ends
    kept = whole[:-1] if is_ended else whole
    decoder = text.decoder(tokens)
    assert found == "".join(map(decoder.feed, kept)) + decoder.end()
    assert end.completion_tokens == len(kept)
    assert end.reason == ("stop" if is_ended else "length")


def test_rotation_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """Its config.json has the scaling beside the base."""
    model = write_folder(tmp_path, "llama-3")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    path.write_text(json.dumps(config))
    with served(tmp_path) as answers, torch.no_grad():
        tokens = torch.arange(60)[None]
        found = answers.model.scores(tokens, torch.arange(60)[None])
        torch.testing.assert_close(found, model(tokens).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", OTHERS)
def test_what_would_be_another_model_is_refused(case: str, tmp_path: Path) -> None:
    write_folder(tmp_path, case)
    code = "model-without-answers" if case == "opt" else "model-not-row-wise"
    with raises(ConfigError, code):
        Answers(Deployment(tmp_path))


def test_weights_in_bfloat16_are_served_in_fp32(tmp_path: Path) -> None:
    """That is exact: fp32 has every value of bf16."""
    model = write_folder(tmp_path, "llama", dtype=torch.bfloat16).float()
    with served(tmp_path) as answers:
        tokens = torch.tensor([answers.model.text.encode(PROMPT)])
        with torch.no_grad():
            found = answers.model.scores(tokens, torch.arange(tokens.shape[1])[None])
            torch.testing.assert_close(found, model(tokens).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", FAMILIES)
def test_scores_in_bfloat16_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    """As close as theirs are to fp32: sums are rounded at other places."""
    model = write_folder(tmp_path, case, dtype=torch.bfloat16)
    served_model = load_model(tmp_path, torch.bfloat16)
    tokens = torch.tensor([served_model.text.encode(PROMPT)])
    with torch.no_grad():
        found = served_model.scores(tokens, torch.arange(tokens.shape[1])[None]).float()
        theirs = model(tokens).logits.float()
        exact = model.float()(tokens).logits
    rounding = (theirs - exact).abs().max()
    assert (found - theirs).abs().max() <= 3 * rounding + 0.01 * exact.abs().max()


def test_added_tokens_that_the_model_has_not_are_text(tmp_path: Path) -> None:
    """As Gemma's for images, of which a model of text has none."""
    write_folder(tmp_path, "llama")
    path = tmp_path / "tokenizer.json"
    about = json.loads(path.read_text())
    first = about["added_tokens"][0]
    added = [{**first, "id": 300 + i, "content": f"<image {i}>"} for i in range(4)]
    about["added_tokens"] += added
    path.write_text(json.dumps(about))
    model = load_model(tmp_path)
    assert model.text.vocabulary == model.vocabulary == 303
    assert model.text.encode("<image 2>") == (302,)
    assert len(model.text.encode("<image 3>")) > 1


def test_weights_of_its_dtype_are_mapped(tmp_path: Path) -> None:
    write_folder(tmp_path, "phi3")
    model = load_model(tmp_path)
    (line,) = [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(tmp_path / "model.safetensors"))
    ]
    begin, end = (int(each, 16) for each in line.split(" ", 1)[0].split("-"))
    assert all(begin <= each.data_ptr() < end for each in model.module.parameters())


@pytest.mark.parametrize("case", ["llama-3", "gemma2", "qwen3_moe"])
def test_answers_in_bfloat16(case: str, tmp_path: Path) -> None:
    """Each row has the same bits in any company, as the stage proves."""
    write_folder(tmp_path, case, dtype=torch.bfloat16)
    with Answers(Deployment(tmp_path, dtype="bfloat16")) as answers:
        found, _ = answer(answers, answers.model.text.encode(PROMPT), most=10)
        assert answer(answers, answers.model.text.encode(PROMPT), most=10)[0] == found


def test_chat_follows_the_template(tmp_path: Path) -> None:
    """Its words for roles are tokens of their own."""
    write_folder(tmp_path, "llama")
    with served(tmp_path) as answers:
        text = answers.model.text
        tokens = text.encode_chat([{"role": "user", "content": "print"}]).tokens
        assert tokens == text.encode("<|user|>print<e><|assistant|>")
        found, end = answer(answers, tokens, Sampling(3), most=10)
        assert answer(answers, tokens, Sampling(3), most=10)[0] == found
        assert end.prompt_tokens == len(tokens)


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("{{ raise_exception('no') }}", "chat-not-rendered"),
        ("{% for", "chat-not-rendered"),
        ("{{ 1 / 0 }}", "chat-not-rendered"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "chat-not-rendered"),
        ("{% include '/etc/passwd' %}", "chat-not-rendered"),
        ("{% for i in range(10000000000) %}x{% endfor %}", "chat-not-rendered"),
        (
            "{% for i in range(999) %}{% for j in range(999) %}x{% endfor %}{% endfor %}",
            "chat-not-rendered",
        ),
        ("{{ 'x' * 10000000000 }}", "chat-not-rendered"),
        ("{{ 9 ** 9999999 }}", "chat-not-rendered"),
        (None, "no-chat-template"),
    ],
)
def test_template_that_does_other_things_is_refused(
    template: str | None, code: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, "llama")
    (tmp_path / "tokenizer_config.json").unlink()
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template)
    with served(tmp_path) as answers, raises(ConfigError, code):
        answers.model.text.encode_chat([{"role": "user", "content": "x"}])


def test_template_gets_what_transformers_gives_it(tmp_path: Path) -> None:
    """Tools that are none, JSON without escapes, all special tokens, the date, loops that break."""
    write_folder(tmp_path, "llama")
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": {"content": "<e>"}}')
    template = (
        "{{ bos_token }}{% if tools is not none %}tools{% endif %}"
        "{% for m in messages %}{{ m.content | tojson }}{% break %}{% endfor %}"
        "{{ strftime_now('') }}"
    )
    (tmp_path / "chat_template.jinja").write_text(template)
    with served(tmp_path) as answers:
        text = answers.model.text
        chat = [{"role": "user", "content": "a < 'é'"}] * 2
        assert text.encode_chat(chat).tokens == text.encode("<e>\"a < 'é'\"")


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("tokenizer.json", "{", "tokenizer-not-readable"),
        ("tokenizer.json", None, "tokenizer-not-readable"),
        ("config.json", "{", "file-not-json"),
        ("model.safetensors", "short", "hf-weights-not-readable"),
        ("model.safetensors", None, "hf-weights-not-readable"),
    ],
)
def test_damaged_folder_is_refused(
    file: str, content: str | None, code: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, "llama")
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(WaferStreamError) as caught:
        Answers(Deployment(tmp_path))
    assert caught.value.code == code


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", "llama")
    write_folder(tmp_path / "b", "qwen3")
    (tmp_path / "b" / "model.safetensors").rename(tmp_path / "a" / "model.safetensors")
    with pytest.raises((CheckpointError, ConfigError)):
        Answers(Deployment(tmp_path / "a"))
