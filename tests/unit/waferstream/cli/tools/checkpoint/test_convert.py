"""``waferstream checkpoint convert``: files of transformers become ours, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from modelzoo.models.dpo import DpoModel
from tests.support.errors import raises
from tests.support.host.tools import rows, tool
from waferstream.checkpoint.reader import Reader
from waferstream.cli.main import main
from waferstream.cli.tools.checkpoint.convert import write_hf
from waferstream.config.phases import load_params
from waferstream.core.errors import CheckpointError
from waferstream.training.checkpoints.restoring import load_weights
from waferstream.workload.hugging_face import CONVERSIONS, read_hf
from waferstream.workload.models import build_model
from waferstream.workload.special_tokens import special_tokens, with_special_tokens

CONFIG = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
TO_OURS = ("--model=gpt2", "--src-fmt=hf", "--tgt-fmt=cs-current")
TO_HF = ("--model=gpt2", "--src-fmt=cs-auto", "--tgt-fmt=hf")


@pytest.fixture
def hf(tmp_path: Path) -> Path:
    """A folder as transformers writes it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path / "hf"
    sizes = {key: value for key, value in CONFIG.items() if key != "model_type"}
    config = GPT2Config(**sizes, n_positions=8, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("flags", [[], ["--export-safetensors"], ["--hf-shard-size=1KB"]])
def test_checkpoint_goes_there_and_back(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """transformers reads what comes back: the same weights in one file or several."""
    from transformers import GPT2LMHeadModel

    config = ("--config", hf / "config.json")
    out = tool(capsys, "checkpoint", "convert", hf, *TO_OURS, *config, "--output-dir", tmp_path)
    weights, params, *_ = map(Path, out.split())
    assert load_params(params).trainer.init.model.name == "gpt2"
    assert "model.decoder.0.attention.query.weight" in Reader(weights).tensors
    back = tmp_path / "back"
    words = (weights, *TO_HF, "--config", params, "--output-dir", back, *flags)
    tool(capsys, "checkpoint", "convert", *words)
    before, after = (GPT2LMHeadModel.from_pretrained(each).state_dict() for each in (hf, back))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert set(read_hf(back)) == set(after)
    assert "[file-exists]" in tool(capsys, "checkpoint", "convert", *words, code=1)


def test_decoder_becomes_policy_and_reference(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Preference optimization begins with it; what it trains goes back to transformers."""
    config = ("--config", hf / "config.json", "--output-dir", tmp_path)
    formats = ("--model=dpo", *TO_OURS[1:])
    out = tool(capsys, "checkpoint", "convert", hf, *formats, *config)
    weights, params, *_ = map(Path, out.split())
    model = build_model(load_params(params).trainer.init.model.dump(), seed=1)
    load_weights(model, weights)
    assert isinstance(model, DpoModel)
    assert model.ref_model is not None
    pairs = zip(model.policy_model.parameters(), model.ref_model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    back = ("--model=dpo", *TO_HF[1:], "--config", params, "--output-dir", tmp_path / "back")
    tool(capsys, "checkpoint", "convert", weights, *back)
    before, after = read_hf(hf), read_hf(tmp_path / "back")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "gpt2"


def test_decoder_of_no_family_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    words = ("checkpoint", "convert-config", tmp_path / "config.json", "--model=dpo", *TO_OURS[1:])
    assert "[config-not-convertible]" in tool(capsys, *words, code=1)


def test_configuration_is_converted_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    words = ("checkpoint", "convert-config", tmp_path / "config.json", *TO_OURS)
    params = Path(tool(capsys, *words).strip())
    back = tool(
        capsys, "checkpoint", "convert-config", params, *TO_HF, "--output-dir", tmp_path / "b"
    )
    assert json.loads(Path(back.strip()).read_text())["n_embd"] == 8


LLAMA_3 = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "vocab_size": 11, "bos_token_id": 7, "eos_token_id": [8, 9],
    "pad_token_id": None,
}  # fmt: skip
LLAVA_IDS = {"pad_token_id": 3, "text_config": {"eos_token_id": 2}, "vision_config": {"a": 1}}


def test_ids_of_special_tokens_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A LLaMA 3 that comes back ends its texts as it did, not as LLaMA 1 does."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3))
    words = ("checkpoint", "convert-config")
    there = ("--model=llama", *TO_OURS[1:])
    params, kept = map(Path, tool(capsys, *words, tmp_path / "config.json", *there).split())
    assert "bos_token_id" not in params.read_text()
    back = ("--model=llama", *TO_HF[1:], "--output-dir")
    written = json.loads(
        Path(tool(capsys, *words, params, *back, tmp_path / "a").strip()).read_text()
    )
    assert {key: written[key] for key in written if key.endswith("_token_id")} == {
        "bos_token_id": 7, "eos_token_id": [8, 9], "pad_token_id": None,
    }  # fmt: skip
    assert not caplog.records
    kept.unlink()
    tool(capsys, *words, params, *back, tmp_path / "b")
    assert kept.name in caplog.text


def test_tokenizer_comes_along(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There and back, with the ids that the checkpoint has where none lie beside the params."""
    texts = {"tokenizer.json": "{}", "tokenizer_config.json": '{"a": 1}', "merges.txt": "a b"}
    for name, text in texts.items():
        (hf / name).write_text(text)
    words, folder = ("checkpoint", "convert"), tmp_path / "ours"
    config = ("--config", hf / "config.json", "--output-dir", folder)
    weights, params, kept, *copied = map(Path, tool(capsys, *words, hf, *TO_OURS, *config).split())
    assert {file.name for file in copied} >= texts.keys()
    kept.unlink()
    back = tmp_path / "back"
    tool(capsys, *words, weights, *TO_HF, "--config", params, "--output-dir", back)
    assert {name: (back / name).read_text() for name in texts} == texts
    assert (back / "generation_config.json").read_text() == (
        hf / "generation_config.json"
    ).read_text()
    written = json.loads((back / "config.json").read_text())
    assert (written["bos_token_id"], written["eos_token_id"]) == (1, 2)


def test_ids_of_models_in_a_model_are_kept() -> None:
    ids = special_tokens(LLAVA_IDS)
    assert ids == {"pad_token_id": 3, "text_config": {"eos_token_id": 2}}
    config = {"pad_token_id": 0, "text_config": {"hidden_size": 8}}
    assert with_special_tokens(config, ids) == {
        "pad_token_id": 0, "text_config": {"eos_token_id": 2, "hidden_size": 8},
    }  # fmt: skip


def test_list_names_the_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert {row["model"] for row in rows(capsys, "checkpoint", "list")} == set(CONVERSIONS)
    assert len(rows(capsys, "checkpoint", "list", "gpt2")) == 1


def test_what_cannot_be_converted_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    words = ("checkpoint", "convert", tmp_path, *TO_OURS, "--config", config, "--output-dir")
    assert "[hf-weights-not-readable]" in tool(capsys, *words, tmp_path / "a", code=1)
    (tmp_path / "pytorch_model.bin").write_bytes(b"no weights")
    assert "[hf-weights-not-readable]" in tool(capsys, *words, tmp_path / "b", code=1)
    same = ("--model=gpt2", "--src-fmt=hf", "--tgt-fmt=hf", "--config", config)
    err = tool(capsys, "checkpoint", "convert", tmp_path, *same, code=1)
    assert "[formats-not-convertible]" in err


@pytest.mark.parametrize(
    "weight_map", [{"w": "../secret.bin"}, {"w": "/secret.bin"}, {"w": ".."}, {"w": 1}, ["w"], None]
)
def test_index_cannot_name_files_elsewhere(tmp_path: Path, weight_map: object) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    torch.save({"w": torch.ones(1)}, tmp_path / "secret.bin")
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with raises(CheckpointError, "hf-index-malformed"):
        read_hf(index)


@pytest.mark.parametrize(
    "content", [[1], {"w": 1}, {1: torch.ones(1)}, {"w": torch.eye(2).to_sparse()}]
)
def test_file_of_other_things_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with raises(CheckpointError, "hf-weights-not-readable"):
        read_hf(tmp_path)


def test_weight_of_another_size_is_refused_before_it_takes_memory() -> None:
    """A terabyte of equal elements, which a small file can state."""
    family = CONVERSIONS["gpt2"]
    section = family.section(CONFIG | {"n_positions": 8})
    weights = {"transformer.wte.weight": torch.ones(1).expand(2**40)}
    with raises(CheckpointError, "tensor-mismatch"):
        family.to_ours(weights, section)
    with raises(CheckpointError, "no-such-tensor"):
        family.to_ours(weights, section | {"num_hidden_layers": 10**9})


def test_parts_hold_every_weight_once(tmp_path: Path) -> None:
    weights = {f"w{i}": torch.full((4,), float(i)) for i in range(5)}
    index, *files = write_hf(tmp_path, weights, part_bytes=40, as_safetensors=False)
    assert len(files) == 3
    again = read_hf(index)
    assert all(torch.equal(again[name], weights[name]) for name in weights)


@pytest.mark.parametrize("size", ["10", "0GB", "-1GB", "1e400GB", "nanGB"])
def test_size_of_a_file_is_a_positive_number(size: str) -> None:
    words = ["checkpoint", "convert", "weights", *map(str, TO_HF), f"--hf-shard-size={size}"]
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
