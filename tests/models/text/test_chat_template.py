"""For a policy of plain prompts, a chat of one message has exactly the tokens of the prompt in training."""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from models.text.chat_template import TEMPLATE, chat_ids, plain_template, write_plain_template
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer
from tests.support.special_tokens import CHAT, llama_like
from tests.support.tiny_models import word_tokenizer

TEXTS = ["4 + 5 =", "7", "", "  4 +\n5 =\n\n", "{{ 4 }} {% if 7 %}", "<bos> <end> <pad> <turn>", 'say "16" \\ ü']


def bytes_tokenizer() -> Any:
    return train_tokenizer(TEXTS, TokenizerSettings(kind="bytes", vocabulary=300))


@pytest.mark.parametrize("tokenizer", [word_tokenizer(), bytes_tokenizer(), llama_like(None), llama_like(CHAT)])
@pytest.mark.parametrize("behind", ["", "+ ="])
def test_a_chat_is_the_plain_prompt_whatever_the_tokenizer_adds_and_whatever_template_there_was(
    tokenizer: Any, behind: str, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    (whole,) = Codec(tokenizer).completions([f" {behind}" if behind else ""])
    after = whole[:-1]
    assert write_plain_template(tmp_path, after, behind)
    served = load_tokenizer(tmp_path)
    trained = [[*ids, *after] for ids in Codec(tokenizer).prompts(TEXTS)]
    assert [chat_ids(served, text) for text in TEXTS] == trained


def test_a_template_that_writes_the_prompts_already_stays_and_one_in_the_config_goes(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / TEMPLATE).write_text("{{ messages[-1]['content'] }}")
    assert write_plain_template(tmp_path, (), "")
    assert (tmp_path / TEMPLATE).read_text() == "{{ messages[-1]['content'] }}"
    (tmp_path / TEMPLATE).unlink()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": "4 {{ messages }}"}))
    assert write_plain_template(tmp_path, (), "")
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == config


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "system", "content": "4"}, {"role": "user", "content": "5"}],
        [{"role": "user", "content": "4"}, {"role": "assistant", "content": "5"}, {"role": "user", "content": "6"}],
        [{"role": "assistant", "content": "5"}],
    ],
)
def test_what_the_policy_never_saw_is_refused_and_not_left_out(turns: list[dict[str, str]]) -> None:
    tokenizer: Any = word_tokenizer()
    tokenizer.chat_template = plain_template(tokenizer)
    with pytest.raises(TemplateError, match="one message"):
        tokenizer.apply_chat_template(turns, tokenize=False)


def test_where_ids_are_what_no_text_becomes_no_template_is_left(tmp_path: Path) -> None:
    """Prompts in training end with these ids. A template whose text gives other ids would make another prompt."""
    llama_like(CHAT).save_pretrained(tmp_path)
    assert not write_plain_template(tmp_path, (5, 6), "+ =")
    assert not (tmp_path / TEMPLATE).exists() and load_tokenizer(tmp_path).chat_template is None
