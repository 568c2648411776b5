"""Unknown tokens by the kind of the tokenizer (words, bytes, byte fallback), and the kinds of answers."""

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from models.answers.answers import answer_kind
from models.answers.unknown import unknown_shares
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_models import word_tokenizer


def test_words_that_are_not_in_the_vocabulary_are_unknown() -> None:
    tokenizer = word_tokenizer()
    rows = tokenizer(["1 + 2 =", "1 plus 2 =", "one plus two"])["input_ids"]
    assert unknown_shares(tokenizer, [*rows, []]).tolist() == [0.0, 0.25, 1.0, 0.0]


def test_parts_of_a_character_are_unknown_to_a_byte_level_vocabulary_and_letters_are_not() -> None:
    tokenizer = train_tokenizer(["naïve café"] * 9, TokenizerSettings(kind="bytes", vocabulary=300))
    known, broken = unknown_shares(tokenizer, tokenizer(["naïve café zq", "日"])["input_ids"]).tolist()
    assert (known, broken) == (0.0, 1.0)


def test_bytes_that_a_vocabulary_falls_back_to_are_unknown() -> None:
    vocabulary = {"<unk>": 0, "a": 1, "b": 2, **{f"<0x{byte:02X}>": 3 + byte for byte in range(256)}}
    plain = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    plain.decoder = decoders.ByteFallback()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>")
    assert unknown_shares(tokenizer, tokenizer(["ab", "abcé"])["input_ids"]).tolist() == [0.0, 0.6]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("42", "whole number"), ("$1,200.00", "whole number"), ("-3", "negative number"), ("1/2", "other number"),
     ("0.5 km", "other number"), ("C", "letter"), ("(b)", "letter"), ("Paris", "word"), ("the red one", "text"),
     ("5 or 6", "text"), ("", "none"), ("  ", "none")],
)  # fmt: skip
def test_an_answer_is_of_one_kind(answer: str, kind: str) -> None:
    assert answer_kind(answer) == kind
