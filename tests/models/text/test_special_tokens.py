"""Special tokens: BOS at the beginning of prompts, end tokens of completions, and special tokens within text."""

import json
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder, ends_of_model, name_ends
from models.text.token_cache import CachedCodec
from models.text.tokenizer import count_tokens, load_tokenizer
from tests.support.special_tokens import llama_like
from tests.support.tiny_models import tiny_policy, word_tokenizer

TEXTS = ["4 + 5 =", "7"]
WITHOUT = "{% for m in messages %}{{ m['content'] }} <turn>{% endfor %}"


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids = tokenizer.convert_tokens_to_ids(text.split())
    assert isinstance(ids, list)
    return ids


def test_a_plain_prompt_begins_as_the_tokenizer_begins_every_text(tmp_path: Path) -> None:
    tokenizer = llama_like()
    tokenizer.save_pretrained(tmp_path)
    bos = tokenizer.bos_token_id
    for codec in (Codec(tokenizer), Codec(load_tokenizer(tmp_path)), CachedCodec(tokenizer, folder=tmp_path / "kept")):
        assert codec.prompts(TEXTS) == [[bos, *plain_ids(tokenizer, text)] for text in TEXTS]
        assert codec.prompts(TEXTS) == [tokenizer(text)["input_ids"] for text in TEXTS]
        assert codec.completions(TEXTS) == [[*plain_ids(tokenizer, text), codec.end] for text in TEXTS]


def test_a_chat_prompt_has_the_bos_of_its_template_and_no_second() -> None:
    tokenizer = llama_like()
    (ids,) = Codec(tokenizer, chat=True).prompts(["4 + 5 ="])
    assert ids == plain_ids(tokenizer, "<bos> user 4 + 5 = <turn> assistant")
    assert ids == tokenizer.apply_chat_template(
        [{"role": "user", "content": "4 + 5 ="}], add_generation_prompt=True, return_dict=False
    )
    (bare,) = Codec(llama_like(WITHOUT), chat=True).prompts(["4 + 5 ="])
    assert bare == plain_ids(tokenizer, "4 + 5 = <turn>")  # no BOS token that the template does not write


def test_special_tokens_within_a_message_can_be_spelt_out() -> None:
    codec = Codec(llama_like(), chat=True)
    said = codec.spelt_out("4 <turn> <tu<turn>rn> <bos> <turn")
    assert said == "4 < turn> <tu< turn>rn> < bos> <turn"
    assert codec.spelt_out(said) == said


def test_the_words_of_arithmetic_have_no_special_tokens_and_the_ids_that_they_had() -> None:
    tokenizer = word_tokenizer()
    assert Codec(tokenizer).prompts(TEXTS) == [plain_ids(tokenizer, text) for text in TEXTS]


def test_what_was_kept_before_a_prompt_had_its_bos_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = llama_like()
    now = CachedCodec(tokenizer, folder=tmp_path).prompts(TEXTS)
    (kept,) = tmp_path.glob("*.safetensors")
    monkeypatch.setattr("models.text.token_cache.ENCODING", 1)
    assert CachedCodec(tokenizer, folder=tmp_path).prompts(TEXTS) == now
    assert len([file for file in tmp_path.glob("*.safetensors") if file != kept]) == 1


def test_the_tokens_of_a_prompt_are_counted_as_it_is_encoded() -> None:
    assert count_tokens(llama_like(), TEXTS) == [len(ids) for ids in Codec(llama_like()).prompts(TEXTS)] == [5, 2]


def test_every_end_that_tokenizer_or_model_names_ends_a_completion(tmp_path: Path) -> None:
    tokenizer, model = llama_like(), tiny_policy(torch.float32, vocabulary=30)
    turn = tokenizer.convert_tokens_to_ids("<turn>")
    assert ends_of_model(model) == (1,)
    name_ends(model, (1, turn))
    save_model_folder(model, tokenizer, tmp_path / "policy")
    assert json.loads((tmp_path / "policy" / "generation_config.json").read_text())["eos_token_id"] == [1, turn]
    assert ends_of_folder(tmp_path / "policy") == ends_of_model(model) == (1, turn)
    codec = Codec(tokenizer, also_end=ends_of_folder(tmp_path / "policy"))
    assert codec.ends == (1, turn)
    (tmp_path / "policy" / "generation_config.json").unlink()
    assert ends_of_folder(tmp_path / "policy") == (1,)  # falls back to config.json, as a server does
    (tmp_path / "policy" / "config.json").unlink()
    assert ends_of_folder(tmp_path / "policy") == ()


def test_what_is_trained_ends_as_the_chat_template_ends_an_answer() -> None:
    tokenizer = llama_like()
    turn = tokenizer.convert_tokens_to_ids("<turn>")
    assert Codec(tokenizer, chat=True, also_end=(turn,)).end == turn
    assert Codec(tokenizer, chat=True, also_end=(turn,)).completions(["9"])[0][-1] == turn
    assert Codec(tokenizer, chat=True).end == tokenizer.eos_token_id  # <turn> does not end generation here
    assert Codec(tokenizer, chat=False, also_end=(turn,)).end == tokenizer.eos_token_id


def test_a_tokenizer_without_an_end_takes_the_models_and_without_both_it_is_one_line() -> None:
    tokenizer = word_tokenizer()
    tokenizer.eos_token = None
    assert Codec(tokenizer, also_end=(7, 5)).end == 5
    with pytest.raises(UserError, match="names no end token"):
        _ = Codec(tokenizer).end


def test_the_text_of_a_completion_has_no_end_whichever_it_was() -> None:
    tokenizer = llama_like()
    codec = Codec(tokenizer, also_end=(7,))
    (ids,) = codec.completions(["4 + 5"])
    assert codec.text([ids, [*ids[:-1], 7]]) == ["4 + 5", "4 + 5"]


def test_a_reward_model_reads_every_completion_at_the_end_it_was_fitted_with() -> None:
    codec = Codec(word_tokenizer(), also_end=(7,))
    assert codec.ended_alike([(5, 1), (5, 7), (5, 6), (7,), ()]) == [[5, 1], [5, 1], (5, 6), [1], ()]
