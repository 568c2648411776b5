"""A model folder that is written to GGUF and read again gives the same logits, tokens and chat template."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import AutoModelForCausalLM, AutoTokenizer, MistralConfig, PreTrainedTokenizerFast

from models.base.errors import UserError
from models.policies.base_models.convert import convert
from models.policies.base_models.gguf_config import LLAMA3_ROPE
from models.policies.base_models.gguf_file import read_gguf
from models.policies.base_models.gguf_tokenizer import pre_tokenizer
from models.policies.base_models.gguf_writer import TYPES, GgufOrigin, write_gguf
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_gguf import tiny_model

IDS = torch.tensor([[5, 9, 200, 31, 7, 150, 4, 4, 299]])
ORIGIN = GgufOrigin(name="tiny", version="3", licence="mit", description="a test", base="Base")
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL = ("<|pad|>", "<|end|>", "<|start|>")
QWEN2 = (*SPECIAL, "<|endoftext|>")
STRINGS = (
    "What is 12345 + 17?", "It doesn't matter, they'll see", "WE'LL CALL", "  two  spaces  ", "\ttab\n\nlines\r\n", "",
    " ", "naïve façade", "e\u0301t\u0301", "über Straße", "東京タワー", "Привет, мир", "שלום", "مرحبا", "🙂👍🏽",
    "x = y**2;", "1,000,000.50", "٣٤٥", "½ ² ³", "a" * 40, "snake_case and camelCase", "https://a.b/c?d=e#f",
    "{\"a\": [1, 2]}", "<|start|>user\nHi<|end|>\n", "<|end|><|end|>", "a<|pad|>b",
    " <|start|> ", "<think>So 3 < 4.</think>", "</think>x",
    "<|start|>assistant\n<think>\n\n</think>\n\n7<|end|>", "<|unknown|>",
)  # fmt: skip


def tokenizer_with(pre: str = "qwen2", begins: bool = False, **settings: Any) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE of fewer than 300 tokens with special tokens, two tags and a chat template."""
    made = Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizer(pre)
    made.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        made.normalizer = normalizers.NFC()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), list(QWEN2 if pre == "qwen2" else SPECIAL)
    trainer = BpeTrainer(
        vocab_size=280,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator([*STRINGS, "12345 67 the they'll the matter matters"] * 3, trainer)
    made.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in ("<think>", "</think>")])
    if begins:
        made.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", pair="<|start|> $A $B", special_tokens=[("<|start|>", 2)]
        )
    roles = {"pad_token": "<|pad|>", "eos_token": "<|end|>", "bos_token": "<|start|>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=TEMPLATE, **(roles | settings))


def saved(folder: Path, model: Any, tokenizer: Any = None) -> Path:
    model.save_pretrained(folder)
    (tokenizer or tokenizer_with("qwen2" if model.config.model_type == "qwen2" else "gpt-2")).save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        given: torch.Tensor = model.eval()(IDS).logits
    return given


def by_our_reader(file: Path, folder: Path) -> Any:
    folder.mkdir()
    convert(file, folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def by_transformers(file: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_file_in_f32_gives_the_logits_of_the_folder_in_both_readers(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    config = tiny_model(architecture, tied).config
    config.head_dim = {"llama": 32, "qwen2": 16, "qwen3": 128}[architecture]  # all that transformers' reader takes
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    folder, file = saved(tmp_path / "a", model), tmp_path / "gguf" / "a.gguf"
    assert write_gguf(folder, file, None, ORIGIN) == "f32"
    assert torch.equal(logits(by_our_reader(file, tmp_path / "b")), logits(model))
    peer = by_transformers(file)
    assert all(torch.equal(weight, peer.state_dict()[name]) for name, weight in model.state_dict().items())
    torch.testing.assert_close(logits(peer), logits(model), rtol=0, atol=1e-5)  # its epsilon is rounded to float32


@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 2e-3), ("bf16", 2e-2), ("q8_0", 2e-2)])
def test_logits_of_a_shorter_type_are_near_those_of_the_folder_and_equal_in_both_readers(
    kind: Any, tolerance: float, tmp_path: Path
) -> None:
    model = tiny_model("llama")
    folder, file = saved(tmp_path / "a", model), tmp_path / "gguf" / "a.gguf"
    assert write_gguf(folder, file, kind, ORIGIN) == kind
    original, theirs = logits(model), logits(by_transformers(file))
    gap = float((theirs - original).abs().max() / original.abs().max())
    assert 0 < gap < tolerance
    ours = logits(by_our_reader(file, tmp_path / "b"))
    assert torch.allclose(ours, theirs, atol=float(original.abs().max()) * tolerance)
    if kind != "q8_0":  # our reader keeps these types
        assert torch.equal(ours, theirs)


def test_rows_that_blocks_of_q8_0_do_not_fill_become_f16_and_vectors_stay_f32(tmp_path: Path) -> None:
    model = tiny_model("qwen2")
    model.config.intermediate_size = 80
    model = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    file = tmp_path / "a.gguf"
    write_gguf(saved(tmp_path / "a", model), file, "q8_0", ORIGIN)
    kinds = {name: tensor.tensor_type.name for name, tensor in read_gguf(file).tensors.items()}
    assert kinds["blk.0.ffn_down.weight"] == "F16"  # 80 values a row
    assert kinds["blk.0.ffn_up.weight"] == kinds["token_embd.weight"] == "Q8_0"
    assert kinds["blk.0.attn_q.bias"] == kinds["output_norm.weight"] == "F32"
    by_our_reader(file, tmp_path / "b")


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_bias": True},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 7e5}},
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5, **LLAMA3_ROPE}},
    ],
    ids=["biases", "linear", "llama3"],
)
def test_biases_and_scaled_rotary_embeddings_of_llama_are_kept(settings: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model("llama", **settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_()
    file = tmp_path / "a.gguf"
    write_gguf(saved(tmp_path / "a", model), file, "f32", ORIGIN)
    assert torch.equal(logits(by_our_reader(file, tmp_path / "b")), logits(model))


def test_a_model_of_mistral_without_a_window_is_written_as_llama(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = MistralConfig(vocab_size=300, intermediate_size=96, sliding_window=None, num_key_value_heads=2, **sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    file = tmp_path / "a.gguf"
    write_gguf(saved(tmp_path / "a", model), file, "f32", ORIGIN)
    assert read_gguf(file).architecture == "llama"
    assert torch.equal(logits(by_our_reader(file, tmp_path / "b")), logits(model))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_both_readers_give_the_same_tokens_and_the_same_chat(pre: str, begins: bool, tmp_path: Path) -> None:
    tokenizer, file = tokenizer_with(pre, begins), tmp_path / "gguf" / "a.gguf"
    model = tiny_model("qwen2" if pre == "qwen2" else "llama")  # transformers ties one to the other
    write_gguf(saved(tmp_path / "a", model, tokenizer), file, None, ORIGIN)
    by_our_reader(file, tmp_path / "b")
    readers = {"ours": AutoTokenizer.from_pretrained(tmp_path / "b")}
    if pre != "smollm" and not begins:  # transformers' loader ignores both settings
        readers["transformers"] = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    chat = [{"role": "user", "content": "What is 3 + 4?"}, {"role": "assistant", "content": "7"}]
    assert len(STRINGS) >= 30
    for name, made in readers.items():
        texts = [text for text in STRINGS if name == "ours" or text != "e\u0301t\u0301"]  # it composes no accents
        assert [made.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]
        assert made.chat_template == TEMPLATE
        assert made.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
            tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        )
        assert (made.eos_token, made.pad_token, made.bos_token) == ("<|end|>", "<|pad|>", "<|start|>")


def test_metadata_name_the_model_its_licence_its_base_its_type_and_every_end(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", tiny_model("llama"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    write_gguf(folder, tmp_path / "a.gguf", "q8_0", ORIGIN)
    stated = read_gguf(tmp_path / "a.gguf").metadata
    assert {key: value for key, value in stated.items() if key.startswith("general.")} == {
        "general.architecture": "llama", "general.type": "model", "general.name": "tiny", "general.version": "3",
        "general.license": "mit", "general.description": "a test", "general.base_model.count": 1,
        "general.base_model.0.name": "Base", "general.file_type": 7, "general.quantization_version": 2,
    }  # fmt: skip
    assert (stated["tokenizer.ggml.eos_token_id"], stated["tokenizer.ggml.eot_token_id"]) == (1, 2)
    assert len(stated["tokenizer.ggml.tokens"]) == 300, "one token for each embedding"
    assert stated["tokenizer.ggml.tokens"][299] == "[PAD299]" and stated["tokenizer.ggml.token_type"][299] == 5


def broken_config(**changed: Any) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changed))

    return change


def overflowing(folder: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = 1e6
    model.save_pretrained(folder)


def word_level(folder: Path) -> None:
    train_tokenizer(["1 2 3"], TokenizerSettings(kind="words", vocabulary=20)).save_pretrained(folder)


def unknown_split(folder: Path) -> None:
    made = tokenizer_with("gpt-2")
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel()]
    )
    made.save_pretrained(folder)


def stripping_token(folder: Path) -> None:
    made = tokenizer_with("gpt-2")
    made.add_tokens([AddedToken("<gap>", lstrip=True, rstrip=True, normalized=False)])
    made.save_pretrained(folder)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "architecture": (broken_config(model_type="gpt2", architectures=["GPT2LMHeadModel"]),
                     "GPT2LMHeadModel cannot be written to GGUF; supported are the causal language models of llama"),
    "classifier": (broken_config(architectures=["LlamaForSequenceClassification"]),
                   "LlamaForSequenceClassification cannot be written to GGUF"),
    "activation": (broken_config(hidden_act="gelu"), "hidden_act: gelu cannot be written to GGUF; supported is silu"),
    "yarn": (broken_config(rope_parameters={"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}),
             "rope_parameters.rope_type: yarn cannot be written to GGUF"),
    "layers": (broken_config(num_hidden_layers=3), "the weights lack model.layers.2."),
    "shape": (broken_config(intermediate_size=128), "is 96 x 64, but config.json asks for 128 x 64"),
    "overflow": (overflowing, "layers.0.mlp.up_proj.weight has values above 65,504, which do not fit into f16"),
    "words": (word_level, "a tokenizer of the kind WordLevel cannot be written to GGUF; byte-level BPE can be"),
    "split": (unknown_split, "GGUF has no name for the pre-tokenizer of its tokenizer"),
    "stripping": (stripping_token, "GGUF cannot describe its tokenizer: "),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_format_cannot_describe_is_refused_in_one_line_and_leaves_no_file(case: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", tiny_model("llama"))
    change, line = REFUSED[case]
    change(folder)
    with pytest.raises(UserError) as error:
        write_gguf(folder, tmp_path / "gguf" / "a.gguf", "f16", ORIGIN)
    assert line in str(error.value) and str(folder) in str(error.value)
    assert not list(tmp_path.glob("gguf/*"))


def test_the_order_of_queries_and_keys_is_that_of_the_format(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        rows = torch.arange(128.0)[:, None].expand(-1, 64)
        model.model.layers[0].self_attn.q_proj.weight.copy_(rows)  # 4 heads of 32 rows
    write_gguf(saved(tmp_path / "a", model), tmp_path / "a.gguf", "f32", ORIGIN)
    order = read_gguf(tmp_path / "a.gguf").values("blk.0.attn_q.weight")[:, 0]
    assert order[:6].tolist() == [0, 16, 1, 17, 2, 18], "row i of the first half, then row i of the second"
    assert order[32:34].tolist() == [32, 48]
    assert np.array_equal(np.sort(order), np.arange(128))


def test_every_type_has_a_number_in_the_format() -> None:
    from gguf import LlamaFileType

    from models.policies.base_models.gguf_writer import FILE_TYPES

    names: dict[str, str] = {"f32": "ALL_F32", **{kind: f"MOSTLY_{kind.upper()}" for kind in TYPES if kind != "f32"}}
    assert {kind: LlamaFileType[name].value for kind, name in names.items()} == FILE_TYPES
