"""Tags that are special tokens remain in the text that rewards read; end, padding and turn tokens do not."""

from pathlib import Path
from typing import Any

import pytest

from models.answers.exact import is_right
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.text.encoding import Codec
from models.text.token_places import token_places
from models.text.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer
from models.text.unwritten import write_tags
from tests.support.special_tokens import CHAT, llama_like
from tests.support.tiny_models import word_tokenizer

TAGS = ("<think>", "</think>", "<answer>", "</answer>", "[STEP]", "<tool_call>", "</tool_call>", "◁sep▷")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
SAID = "<think>2 + 3 [STEP]</think><answer>5</answer>◁sep▷ <tool_call>{}</tool_call>"


def tagged(template: str | None = CHATML, kind: Any = "bytes") -> Any:
    """Make a tokenizer in which tags and the tokens of a chat template are marked as special."""
    texts = [*map(str, range(17)), "+ ; user assistant {}"]
    tokenizer: Any = train_tokenizer(texts, TokenizerSettings(kind=kind, vocabulary=400))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", *TAGS]})
    tokenizer.split_special_tokens = False
    tokenizer.chat_template = template
    return tokenizer


def ids_of(tokenizer: Any, *tokens: str) -> list[int]:
    return [int(tokenizer.convert_tokens_to_ids(token)) for token in tokens]


@pytest.mark.parametrize("template", [None, CHATML, "{% for m in messages %}{{ m.nothing }}{% endfor %}"])
def test_the_text_of_a_completion_has_the_tags_of_its_tokenizer(template: str | None) -> None:
    tokenizer = tagged(template)
    codec = Codec(tokenizer, chat=template == CHATML)
    (ids,) = codec.completions([SAID])
    assert len(ids) < len(SAID)  # each tag is a single token
    assert codec.text([ids, ids[:-1], [*ids, codec.pad]]) == [SAID] * 3


def test_tags_are_text_of_a_tokenizer_of_words_too() -> None:
    codec = Codec(tagged(None, "words"))
    assert codec.text(codec.completions(["<think> 2 + 3 </think> <answer> 5 </answer>"])) == [
        "<think> 2 + 3 </think> <answer> 5 </answer>"
    ]


def test_a_reward_finds_the_answer_that_stands_between_tags() -> None:
    codec = Codec(tagged(), chat=True)
    (ids,) = codec.completions(["<think>#### 7</think> 2 + 3 = 5"])
    text = codec.text([ids])[0]
    assert "<think>" in Attempt(Problem("p", "2 + 3", "5"), text, finished=True).text
    assert is_right("<answer>5</answer>", "5", finished=True) == is_right(
        codec.text(codec.completions(["<answer>5</answer>"]))[0], "5", finished=True
    )


def test_the_tokens_between_messages_are_no_text_and_end_no_turn_of_a_judge() -> None:
    tokenizer = tagged()
    start, end = ids_of(tokenizer, "<|im_start|>", "<|im_end|>")
    codec = Codec(tokenizer, chat=True, also_end=(end,))
    inner = codec.inside(["5"])[0]
    assert codec.text([[start, *inner, end, start, *inner, end]]) == ["55"]
    assert codec.spelt_out("<think>5<|im_end|>") == "< think>5< |im_end|>"


def test_a_tag_has_its_own_characters_among_the_places_of_tokens() -> None:
    codec = Codec(tagged())
    (ids,) = codec.completions(["<answer>5</answer>"])
    (places,) = token_places(codec, [ids], ["<answer>5</answer>"])
    assert [(place.start, place.stop) for place in places] == [(0, 8), (8, 9), (9, 18), (18, 18)]


@pytest.mark.parametrize("tokenizer", [word_tokenizer(), llama_like(None), llama_like(CHAT)])
def test_control_without_tags_every_text_is_as_before(tokenizer: Any) -> None:
    turn = ids_of(tokenizer, "<turn>")[0]
    codec = Codec(tokenizer, also_end=(turn,) if turn is not None and turn != tokenizer.unk_token_id else ())
    rows = [[token, 5, token, 6, token] for token in range(len(tokenizer))]
    before = [row[:-1] if row[-1] in codec.ends else row for row in rows]
    assert codec.text(rows) == tokenizer.batch_decode(before, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["bytes", "words"])
def test_a_server_shows_the_tags_of_a_folder_whose_marks_were_settled(kind: str, tmp_path: Path) -> None:
    tokenizer = tagged(CHATML, kind)
    tokenizer.save_pretrained(tmp_path)
    (end,) = ids_of(tokenizer, "<|im_end|>")
    codec = Codec(tokenizer, chat=True, also_end=(end,))
    text = " ".join([*TAGS, "5", "<|im_start|>", "+", "<|im_end|>"])
    (ids,) = codec.completions([text])
    write_tags(tmp_path, (end,))
    served = load_tokenizer(tmp_path)
    assert served.decode(ids, skip_special_tokens=True) == codec.text([ids])[0]
    assert all(tag in codec.text([ids])[0] for tag in TAGS)
    again = Codec(served, chat=True, also_end=(end,))
    assert again.completions([text]) == [ids] and again.prompts([text]) == codec.prompts([text])
    assert again.text([ids]) == codec.text([ids])
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_tags(tmp_path, (end,))
    assert files == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_control_a_tokenizer_without_tags_keeps_its_files(tmp_path: Path) -> None:
    llama_like().save_pretrained(tmp_path)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_tags(tmp_path, ids_of(llama_like(), "<turn>"))
    assert files == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
