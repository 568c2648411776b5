"""Conversion of a GGUF file: it gives the logits and tokens of the original model, and the same bytes every time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.base.errors import UserError
from models.policies.base_folder import check_base_folder
from models.policies.base_models.convert import convert
from models.policies.base_models.gguf_config import LLAMA3_ROPE
from models.policies.base_models.gguf_file import read_gguf
from models.policies.base_models.gguf_tokenizer import _name_specials, tokenizer_of
from models.policies.base_models.source import read_source
from models.policies.build import open_policy
from models.policies.folder import hash_folder
from tests.support.tiny_gguf import TEMPLATE, TEXT, tiny_model, write_gguf

IDS = torch.tensor([[5, 9, 200, 31, 7, 150, 4, 4, 299]])
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 500_000.0, **LLAMA3_ROPE}


def made(file: Path, folder: Path) -> Any:
    folder.mkdir()
    convert(file, folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        given: torch.Tensor = model(IDS).logits
    return given


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_file_in_float32_gives_the_logits_of_the_model_that_it_was_written_from(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    model = tiny_model(architecture, tied)
    back = made(write_gguf(tmp_path / "a.gguf", model, architecture), tmp_path / "a")
    assert torch.equal(logits(back), logits(model))
    assert back.config.tie_word_embeddings is tied
    check_base_folder(tmp_path / "a", chat=True)


@pytest.mark.parametrize(
    ("settings", "metadata", "factors"),
    [
        ({"attention_bias": True}, {}, False),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 7e5}},
         {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, False),
        ({"rope_parameters": LLAMA3}, {}, True),
    ],
    ids=["biases", "linear", "llama3"],
)  # fmt: skip
def test_biases_and_scaled_rotary_embeddings_of_llama_are_kept(
    settings: dict[str, Any], metadata: dict[str, Any], factors: bool, tmp_path: Path
) -> None:
    model = tiny_model("llama", **settings)
    more = {}
    if factors:
        plain = 1 / (500_000.0 ** (np.arange(0, 32, 2) / 32))
        more = {"rope_freqs.weight": (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_()
    back = made(write_gguf(tmp_path / "a.gguf", model, "llama", changed=metadata, more=more), tmp_path / "a")
    assert torch.equal(logits(back), logits(model))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("Q4_0", torch.bfloat16), ("Q4_1", torch.bfloat16), ("Q8_0", torch.bfloat16), ("BF16", torch.bfloat16),
     ("F16", torch.float16)],
)  # fmt: skip
def test_quantised_matrices_become_bfloat16_and_float_types_stay(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model("qwen2")
    made(write_gguf(tmp_path / "a.gguf", model, "qwen2", kind), tmp_path / "a")
    weights = load_file(tmp_path / "a" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {dtype}
    name, quantisation = "model.layers.1.mlp.up_proj.weight", GGMLQuantizationType[kind]
    expected = dequantize(quantize(model.state_dict()[name].numpy(), quantisation), quantisation)
    assert torch.equal(weights[name], torch.tensor(expected, dtype=dtype))
    source = read_source(tmp_path / "a")
    assert source is not None and source.quantisation == kind and source.dequantised is kind.startswith("Q")
    assert source.licence == "mit" and source.parameters == sum(weight.numel() for weight in weights.values())


def test_weights_of_llama_equal_those_of_the_loader_in_transformers(tmp_path: Path) -> None:
    changed = {"llama.rope.dimension_count": 32}
    file = write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama", "Q4_1", changed)
    peer = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32)
    ours = made(file, tmp_path / "a")
    theirs = {name: weight.to(torch.bfloat16).float() for name, weight in peer.state_dict().items()}
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.state_dict().items())


def test_the_same_content_under_another_name_gives_the_same_bytes(tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    hashes = set()
    for name in ("a", "b"):
        made(write_gguf(tmp_path / f"{name}.gguf", model, "qwen3", "Q8_0"), tmp_path / name)
        hashes.add(hash_folder(tmp_path / name))
    assert len(hashes) == 1


PRE_TOKENIZED = {
    "gpt-2": ["What", "Ġis", "Ġ12345", "Ġ+", "Ġ17", "?", "Ġ", "Ġ9"],
    "smollm": ["What", "Ġis", "Ġ", "1", "2", "3", "4", "5", "Ġ+", "Ġ", "1", "7", "?", "ĠĠ", "9"],
    "qwen2": ["What", "Ġis", "Ġ", "1", "2", "3", "4", "5", "Ġ+", "Ġ", "1", "7", "?", "Ġ", "Ġ", "9"],
    "llama-bpe": ["What", "Ġis", "Ġ", "123", "45", "Ġ+", "Ġ", "17", "?", "Ġ", "Ġ", "9"],
}


@pytest.mark.parametrize("pre", PRE_TOKENIZED)
def test_text_is_cut_by_the_pre_tokenizer_that_the_file_names(pre: str, tmp_path: Path) -> None:
    changed = {"tokenizer.ggml.pre": pre}
    made(write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama", changed=changed), tmp_path / "a")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "a")
    cut = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("What is 12345 + 17?  9")
    assert [piece for piece, _ in cut] == PRE_TOKENIZED[pre]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert tokenizer.chat_template == TEMPLATE and tokenizer.eos_token == "<end>" and tokenizer.pad_token == "<pad>"


@pytest.mark.parametrize(("stated", "begins"), [(True, True), (False, False), (None, True)])
def test_texts_begin_with_the_first_token_as_the_file_states_or_as_llama_3_does(
    stated: bool | None, begins: bool, tmp_path: Path
) -> None:
    changed: dict[str, Any] = {"tokenizer.ggml.pre": "llama-bpe"}
    changed |= {} if stated is None else {"tokenizer.ggml.add_bos_token": stated}
    without = ["tokenizer.ggml.add_bos_token"] if stated is None else []
    made(
        write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama", changed=changed, without=without), tmp_path / "a"
    )
    ids = AutoTokenizer.from_pretrained(tmp_path / "a").encode("What")
    assert (ids[0] == 2) is begins


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"changed": {"llama.logit_scale": 2.0}}, "llama.logit_scale: this variant of llama is not supported"),
    "experts": ({"changed": {"llama.expert_count": 8}}, "mixtures of experts are not supported"),
    "yarn": ({"changed": {"llama.rope.scaling.type": "yarn"}}, "llama.rope.scaling.type 'yarn' is not supported"),
    "partial": ({"changed": {"llama.rope.dimension_count": 16}}, "rope.dimension_count differs from the width"),
    "list": ({"changed": {"llama.attention.head_count": [4, 2]}}, "llama.attention.head_count is not one whole number"),
    "no layers": ({"without": ["llama.block_count"]}, "llama.block_count is missing"),
    "no weight": ({"without": ["blk.1.ffn_up.weight"]}, "blk.1.ffn_up.weight is missing"),
    "one more": ({"more": {"blk.0.extra.weight": np.zeros((2, 2), np.float32)}},
                 "blk.0.extra.weight is not a weight of the architecture llama"),
    "shape": ({"changed": {"llama.feed_forward_length": 128}}, "96 x 64, but its metadata describes 128 x 64"),
    "factors": ({"more": {"rope_freqs.weight": np.linspace(1, 9, 16, dtype=np.float32)}},
                "rope_freqs.weight: a scaling of rotary frequencies that is not supported"),
    "pre": ({"changed": {"tokenizer.ggml.pre": "poro-chat"}}, "tokenizer.ggml.pre 'poro-chat' is not supported"),
    "kind": ({"changed": {"tokenizer.ggml.model": "bert"}}, "tokenizer.ggml.model 'bert' is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_would_become_another_model_is_refused_with_the_name_of_what_is_wrong(
    case: str, tmp_path: Path
) -> None:
    arguments, line = REFUSED[case]
    file = write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama", **arguments)
    with pytest.raises(UserError) as error:
        open_policy(str(file))
    assert line in str(error.value) and str(file) in str(error.value)


@pytest.mark.parametrize("architecture", ["gemma2", "phi3", "qwen2moe"])
def test_another_architecture_is_refused_by_its_name(architecture: str, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    write_gguf(file, tiny_model("llama"), "llama", changed={"general.architecture": architecture})
    with pytest.raises(UserError, match=f"GGUF architecture '{architecture}' is not supported; supported are llama"):
        open_policy(str(file))


def test_a_file_that_is_damaged_or_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "a.gguf", tiny_model("llama"), "llama").read_bytes()
    for name, content, line in [
        ("short.gguf", whole[: len(whole) // 2], "a damaged or incomplete GGUF file"),
        ("head.gguf", whole[:20], "a damaged or incomplete GGUF file"),
        ("text.gguf", b"hello", "not a GGUF file"),
        ("empty.gguf", b"", "not a GGUF file"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=line):
            open_policy(str(tmp_path / name))
    with pytest.raises(UserError, match=r"policy\.base: missing\.gguf: no such file"):
        open_policy("missing.gguf")


def test_the_tokens_that_the_file_names_begin_and_end_texts_whatever_was_read_of_it(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), "llama"))
    tokenizer: Any = tokenizer_of(file)
    ends = tokenizer.eos_token_id
    assert ends == file.metadata["tokenizer.ggml.eos_token_id"]
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends + 7)
    _name_specials(tokenizer, file)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    assert AutoTokenizer.from_pretrained(tmp_path / "tokenizer").eos_token_id == ends
