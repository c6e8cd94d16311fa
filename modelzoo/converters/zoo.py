"""Weights of the vendor's Model Zoo (release 2.10), to those of modelzoo and back.

Names are those of ``waferstream.workload.published_names`` behind the start that each of the
vendor's classes gives them. Layouts differ, too: its rotation pairs neighbours, ours elements half
a head apart; its patches have their channels last, and the place of the class token is the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from modelzoo.converters.weights import Rule, Weights, matched, rule, to_ours, to_theirs
from modelzoo.models.blocks.attention_mask import alibi_slopes
from waferstream.core.errors import ConfigError
from waferstream.workload.models import ParameterNames, parameter_names
from waferstream.workload.published_names import published_name, published_vit_name

Name = Callable[[str], str]
"""Returns the vendor's name of a parameter of ours."""

_FINAL, _AGAIN = "transformer_decoder.norm.", "ln_f."
"""The last norm of a decoder, which the vendor's class has under two names."""

_COMPUTED = re.compile(r"\.(fpe|inv_freq|slopes|position_ids)$")
"""Buffers of the vendor's classes that ours compute."""

_ROTATED = re.compile(r"(?<!cross_)attention\.(query|key)(_norm)?\.")
_EXPERT = re.compile(r"feed_forward\.(up|gate|down)\.")
_OF_EXPERT = {"up": "0.linear_layer", "gate": "0.linear_layer_for_glu", "down": "1.linear_layer"}


def _of_decoder(name: str) -> str:
    """Return the vendor's name in a decoder, whose last norm is ours at its end."""
    return f"model.{published_name(re.sub(r'^norm[.]', _FINAL, name))}"


def _of_encoder(start: str, name: str) -> str:
    """Return the vendor's name in an encoder of tokens that is called ``start``."""
    if name.startswith("pooler."):
        return f"{start}.pooler.pooler.ffn.0.linear_layer.{name.removeprefix('pooler.')}"
    return f"{start}.{published_name(re.sub(r'^norm[.]', 'transformer_encoder.norm.', name))}"


_OF_BERT = {
    "mlm.transform.": "model.bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer.",
    "mlm.norm.": "model.bert_mlm_head.mlm_transform.ln.",
    "mlm.head.": "model.bert_mlm_head.classifier.ffn.0.linear_layer.",
    "nsp.pooler.": "model.bert_encoder.pooler.pooler.ffn.0.linear_layer.",
    "nsp.classifier.": "model.bert_cls_head.classifier.ffn.0.linear_layer.",
}
_OF_TASK = {
    "head.pooler.": "model.bert.pooler.pooler.ffn.0.linear_layer.",
    "head.classifier.": "model.classifier.",
    "classifier.": "model.classifier.",
}
_OF_ENCODER_DECODER = {
    "embedding.": "encoder_embeddings.word_embeddings.",
    "decoder_embedding.": "decoder_embeddings.word_embeddings.",
    "encoder_bias.table.": "encoder_embeddings.position_embed_helper.relative_attention_bias.",
    "decoder_bias.table.": "decoder_embeddings.position_embed_helper.relative_attention_bias.",
    "encoder_norm.": "encoder.norm.",
    "decoder_norm.": "decoder.norm.",
}


def _replaced_start(name: str, starts: Mapping[str, str]) -> str | None:
    """Return a name with another start; None where none of them fits."""
    for ours, theirs in starts.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return None


def _of_bert(name: str) -> str:
    return _replaced_start(name, _OF_BERT) or _of_encoder("model.bert_encoder", name)


def _of_task(name: str) -> str:
    return _replaced_start(name, _OF_TASK) or _of_encoder("model.bert", name)


def _of_dpr(name: str) -> str:
    encoder, _, rest = name.partition(".")
    return _of_encoder(f"model.{encoder}", rest)


def _of_encoder_decoder(name: str) -> str:
    other = _replaced_start(name, _OF_ENCODER_DECODER)
    plain = other or published_name(name).removeprefix("transformer_")
    return f"model.{plain}"


_LAYER_OF_PROJECTOR = re.compile(r"((?:\w+\.)*(?:projector|projection)\w*\.)layers\.(\d+)\.")


def _of_images_and_text(name: str) -> str:
    text = re.sub(r"^text_model[.]norm[.]", f"text_model.{_FINAL}", name)
    if found := _LAYER_OF_PROJECTOR.match(name):
        text = f"{found[1]}ffn.{found[2]}.linear_layer.{name[found.end() :]}"
    return f"model.{_placed(published_name(text))}"


def _of_vit(name: str) -> str:
    if name.startswith("classifier."):
        return f"model.classifier.classifier.ffn.0.linear_layer.{name.removeprefix('classifier.')}"
    return f"model.{_placed(published_vit_name(name))}"


def _placed(name: str) -> str:
    """Return a name in a model of images, whose positions have no module of their own."""
    return re.sub(r"^((vit|image)_model.*position_embeddings\.)embed\.", r"\1", name)


def _of_preference(name: str) -> str:
    part, _, rest = name.partition(".")
    return f"{part}.{_of_decoder(rest)}"


_OTHERS: Mapping[str, Name] = {
    "bert": _of_bert,
    "esm2": _of_bert,
    "bert/classifier": _of_task,
    "bert/token_classifier": _of_task,
    "bert/extractive_summarization": _of_task,
    "dpr": _of_dpr,
    "t5": _of_encoder_decoder,
    "transformer": _of_encoder_decoder,
    "vision_transformer": _of_vit,
    "llava": _of_images_and_text,
    "multimodal_simple": _of_images_and_text,
    "dpo": _of_preference,
}
_UNKNOWN = ("dino", "dit", "fc_mnist")


def _namer(section: Mapping[str, Any]) -> Name:
    """Return what names the parameters of a section; ConfigError if their names are not known."""
    name = section["name"]
    if name in _UNKNOWN:
        raise ConfigError(
            "the vendor's names of the weights must be known",
            code="config-not-convertible",
            where="model.name",
            value=name,
            rule=f"any model but {', '.join(_UNKNOWN)}",
        )
    return _OTHERS.get(name, _of_decoder)


def _rules(section: Mapping[str, Any], known: ParameterNames) -> Iterator[Rule]:
    """Yield the rule of every parameter of a model."""
    theirs = _namer(section)
    for name in (*known.shapes, *known.tied):
        part = _part_of(name, section)
        sizes: Any = section
        for key in part:
            sizes = sizes[key]
        is_expert = len(known.shape(name)) == 3 and _EXPERT.search(name)
        yield rule(
            theirs(_EXPERT.sub(_expert, name) if is_expert else name),
            name,
            pairs_neighbours=_is_rotated(name, sizes),
            part=part,
            **_layout(name, sizes),
        )


def _part_of(name: str, section: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the path in a section to the sizes of the part that has a parameter."""
    if found := re.match(r"image_model\.image_model_list\.encoder_(\d+)\.", name):
        return ("image_model_list", "image_models", int(found[1]), "image_encoder")
    part = _SECTIONS.get(name.partition(".")[0], name.partition(".")[0])
    return (part,) if isinstance(section.get(part), Mapping) else ()


_SECTIONS = {
    "ref_model": "policy_model", "question_encoder": "q_encoder", "ctx_encoder": "ctx_encoder",
}  # fmt: skip
"""Keys of the sections of parts that have other names."""


def _expert(found: re.Match[str]) -> str:
    return f"ffn.experts.experts.{{e}}.{_OF_EXPERT[found[1]]}."


def _is_rotated(name: str, section: Mapping[str, Any]) -> bool:
    is_rotary = section.get("position_embedding_type") == "rotary"
    return is_rotary and _ROTATED.search(name) is not None


def _layout(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a rule for a weight that theirs has in another layout."""
    if name.endswith("relative.slopes"):
        return {"shape": (-1, 1)}
    if "patch_size" not in section:
        return {}
    if name.endswith("position.weight"):
        return {"ends_with_first": True}
    if not name.endswith("patch.weight"):
        return {}
    if section["use_conv_patchified_embedding"]:
        return {"shape": (-1, "num_channels", "patch_size")}
    return {"shape": (-1, "patch_size", "num_channels"), "channels_last": True}


_SOURCE, _TARGET = (
    f"model.{side}_embeddings.word_embeddings.weight" for side in ("encoder", "decoder")
)
"""Vectors of tokens, which are the same where both sequences share them."""

_SLOPES = "model.embedding_layer.position_embed_helper.slopes"
"""Of heads, which ours compute unless they are trained."""


class ZooNames:
    """The vendor's names and layouts of the weights of a model of ours."""

    def are_of(self, names: Collection[str], section: Mapping[str, Any]) -> bool:
        """Return whether weights with these names are the vendor's of our model."""
        return next(_rules(section, parameter_names(section))).theirs in names

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of our model (``weights.to_ours``)."""
        rules = tuple(_rules(section, parameter_names(section)))
        return to_ours(rules, _read(rules, _plain(weights, section)), section)

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that our model has (``weights.matched``)."""
        rules = tuple(_rules(section, parameter_names(section)))
        return matched(rules, _plain(weights, section), section)

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of the vendor's model, with those that it has under two names."""
        rules = tuple(_rules(section, parameter_names(section)))
        found = to_theirs(rules, weights, section)
        found |= {name.replace(_FINAL, _AGAIN): each for name, each in found.items()}
        if section.get("share_encoder_decoder_embedding"):
            found[_TARGET] = found[_SOURCE]
        if section.get("position_embedding_type") == "alibi" and _SLOPES not in found:
            found[_SLOPES] = torch.tensor(alibi_slopes(section["num_heads"]))[:, None]
        return found


def _read(rules: Sequence[Rule], weights: Weights) -> Weights:
    """Return weights without those of encoders of images behind the layer that is read."""
    names = {each.theirs for each in rules}
    start = "model.image_model."
    return {n: each for n, each in weights.items() if n in names or not n.startswith(start)}


def _plain(weights: Weights, section: Mapping[str, Any]) -> Weights:
    """Return weights without buffers, and each under one name."""
    again = {_TARGET} if section.get("share_encoder_decoder_embedding") else set()
    again |= {name.replace(_FINAL, _AGAIN) for name in weights if _FINAL in name}
    is_trained = section.get("alibi_trainable_slopes")
    return {
        name: each
        for name, each in weights.items()
        if name not in again and (is_trained or not _COMPUTED.search(name))
    }


ZOO = ZooNames()
