"""Tokenizers and encoding: texts survive a round trip, and the order of the training texts does not matter."""

import random
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, count_tokens, train_tokenizer

SOLUTIONS = [
    "Start with 7 . Add 5 . Take away 3 . Double it .",
    "7 + 5 = 12 ; 12 - 3 = 9 ; 9 * 2 = 18 ; #### 18",
    "3 - 8 = -5 ; -5 * 2 = -10 ; #### -10",
]
WORDS = TokenizerSettings(kind="words", vocabulary=64)
BYTES = TokenizerSettings(kind="bytes", vocabulary=300)


def strange_texts() -> list[str]:
    chance = random.Random(0)
    made = [
        "".join(chr(chance.choice([10, 32, 65, 233, 0x4E2D, 0x1F600, 0x301, 0])) for _ in range(30)) for _ in range(20)
    ]
    return [
        *made,
        "",
        " ",
        "  two  spaces ",
        "line\r\nbreak\t",
        "naïve 👩‍👩‍👧 𝔘𝔫𝔦 中文 العربية",
        "\ufeffmark",
        "don't , . ! 's",
    ]


def test_words_bring_arithmetic_back_as_it_was() -> None:
    codec = Codec(train_tokenizer(SOLUTIONS, WORDS))
    assert codec.text(codec.completions(SOLUTIONS)) == SOLUTIONS
    assert codec.text(codec.prompts(SOLUTIONS)) == SOLUTIONS


def test_a_negative_number_is_one_token_and_a_minus_another() -> None:
    tokenizer = train_tokenizer(SOLUTIONS, WORDS)
    assert count_tokens(tokenizer, ["3 - 8 = -5", "", "-10"]) == [5, 0, 1]
    assert count_tokens(tokenizer, []) == []


def test_bytes_bring_any_text_back_as_it_was() -> None:
    codec = Codec(train_tokenizer(SOLUTIONS, BYTES))
    texts = strange_texts()
    assert codec.text(codec.completions(texts)) == texts


@pytest.mark.parametrize("settings", [WORDS, BYTES])
def test_what_reads_like_a_special_token_in_a_text_is_only_text(settings: TokenizerSettings) -> None:
    codec = Codec(train_tokenizer([*SOLUTIONS, "never <end> here , <pad> or <unk>"], settings))
    (ids,) = codec.completions(["never <end> here , <pad> or <unk>"])
    assert ids.count(codec.end) == 1 and ids[-1] == codec.end and codec.pad not in ids


@pytest.mark.parametrize("settings", [WORDS, BYTES])
def test_the_order_of_texts_does_not_matter(settings: TokenizerSettings) -> None:
    texts = [*SOLUTIONS, "12 + 12 = 24 ; #### 24"]
    forwards, backwards = train_tokenizer(texts, settings), train_tokenizer(reversed(texts), settings)
    assert forwards.get_vocab() == backwards.get_vocab()
    assert forwards.backend_tokenizer.to_str() == backwards.backend_tokenizer.to_str()


@pytest.mark.parametrize("settings", [WORDS, BYTES])
def test_a_saved_tokenizer_cuts_as_before(settings: TokenizerSettings, tmp_path: Path) -> None:
    from models.text.tokenizer import load_tokenizer

    tokenizer = train_tokenizer(SOLUTIONS, settings)
    tokenizer.save_pretrained(tmp_path)
    before, after = Codec(tokenizer), Codec(load_tokenizer(tmp_path))
    texts = [*SOLUTIONS, "7 <end> 5"]
    assert after.completions(texts) == before.completions(texts) and (after.end, after.pad) == (before.end, before.pad)
    assert after.text(after.completions(SOLUTIONS)) == SOLUTIONS


def test_a_vocabulary_too_small_is_one_clear_line() -> None:
    distinct = len({word for text in SOLUTIONS for word in text.split()})
    enough = TokenizerSettings(kind="words", vocabulary=distinct + 3)
    assert len(train_tokenizer(SOLUTIONS, enough)) == distinct + 3
    with pytest.raises(UserError, match=rf"vocabulary: {distinct + 2} is too small for {distinct} distinct words"):
        train_tokenizer(SOLUTIONS, TokenizerSettings(kind="words", vocabulary=distinct + 2))
    with pytest.raises(UserError, match="vocabulary: 258 is too small for the 256 bytes"):
        train_tokenizer(SOLUTIONS, TokenizerSettings(kind="bytes", vocabulary=258))


@pytest.mark.parametrize("settings", [WORDS, BYTES])
@pytest.mark.parametrize("texts", [[], ["", "  \n"]])
def test_no_text_is_one_clear_line(settings: TokenizerSettings, texts: list[str]) -> None:
    with pytest.raises(UserError, match="no text to train a tokenizer on"):
        train_tokenizer(texts, settings)


def test_the_vocabulary_is_never_larger_than_asked_and_merges_what_is_frequent() -> None:
    tokenizer = train_tokenizer(["abab" * 50], TokenizerSettings(kind="bytes", vocabulary=261))
    assert len(tokenizer) == 261 and count_tokens(tokenizer, ["abababab"]) == [2]


def test_a_word_never_seen_is_unknown_and_nothing_else() -> None:
    tokenizer = train_tokenizer(SOLUTIONS, WORDS)
    assert tokenizer("7 + 999", add_special_tokens=False)["input_ids"][2] == tokenizer.unk_token_id


def test_a_chat_prompt_goes_through_the_template_and_a_missing_template_is_named() -> None:
    tokenizer = train_tokenizer(SOLUTIONS, WORDS)
    with pytest.raises(UserError, match="the tokenizer has no chat template"):
        Codec(tokenizer, chat=True).prompts(["7 + 5"])
    tokenizer.chat_template = (
        "{% for m in messages %}Start {{ m['content'] }}{% endfor %}{% if add_generation_prompt %} ={% endif %}"
    )
    assert Codec(tokenizer, chat=True).prompts(["7 + 5"]) == Codec(tokenizer).prompts(["Start 7 + 5 ="])
    assert Codec(tokenizer, chat=True).completions(["18"]) == Codec(tokenizer).completions(["18"])


def test_a_tokenizer_without_padding_pads_with_its_end() -> None:
    tokenizer = train_tokenizer(SOLUTIONS, WORDS)
    tokenizer.pad_token = None
    assert Codec(tokenizer).pad == Codec(tokenizer).end
