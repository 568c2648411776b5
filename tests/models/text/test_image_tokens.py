"""Token ids of prompts with images: text as without images, and an image as ids of its own between fixed tokens."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from models.base.errors import UserError
from models.base.images import image_ids, images_in, reference_to, spans_of
from models.text.encoding import Codec
from models.text.image_tokens import AROUND, GLOBAL, IMAGE, image_tokens_of
from models.text.tokenizer import TokenizerSettings, count_tokens, train_tokenizer
from tests.support.tiny_vision import VISION, WORDS

PICTURE = reference_to(b"a picture of the test")
TEXT = "what colour is the circle"


@pytest.fixture(scope="module", params=["words", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return train_tokenizer(
        [*WORDS, f"{PICTURE} {TEXT}"], TokenizerSettings(kind=request.param, vocabulary=300), images=VISION.processor()
    )


def test_a_prompt_is_the_image_between_its_tokens_and_then_the_text(tokenizer: PreTrainedTokenizerFast) -> None:
    codec, tokens = Codec(tokenizer), image_tokens_of(tokenizer)
    assert tokens is not None and tokens.count == 4
    (name,) = images_in(PICTURE)
    around, whole, image = (tokenizer.get_vocab()[token] for token in (AROUND, GLOBAL, IMAGE))
    (ids,) = codec.prompts([f"{PICTURE} {TEXT}"])
    (text,) = codec.prompts([f" {TEXT}"])
    assert ids == [around, whole, *image_ids(name, 4), around, *text]
    assert tokens.image == image and [span.name for span in spans_of(ids)] == [name]
    assert codec.prompts([TEXT, f"{PICTURE}{PICTURE}"])[1] == 2 * ids[:7]
    assert count_tokens(tokenizer, [f"{PICTURE} {TEXT}", TEXT]) == [len(ids), len(codec.prompts([TEXT])[0])]


def test_texts_without_images_have_the_ids_of_a_tokenizer_that_knows_none(tokenizer: PreTrainedTokenizerFast) -> None:
    assert Codec(tokenizer).text(Codec(tokenizer).prompts([TEXT])) == [TEXT]


def test_names_of_special_tokens_in_a_text_never_become_these_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    special = {tokenizer.get_vocab()[token] for token in (AROUND, GLOBAL, IMAGE, "<end>", "<pad>")}
    (ids,) = Codec(tokenizer).prompts([f"{AROUND} {IMAGE}{GLOBAL} <end> the <pad>"])
    assert not special & set(ids)


def test_images_are_no_words_of_the_vocabulary(tokenizer: PreTrainedTokenizerFast) -> None:
    (name,) = images_in(PICTURE)
    assert not any(name in token or "<image:" in token for token in tokenizer.get_vocab())


def test_a_policy_that_reads_no_images_refuses_a_prompt_with_one() -> None:
    blind = Codec(train_tokenizer([TEXT], TokenizerSettings(kind="words", vocabulary=20)))
    with pytest.raises(UserError, match=r"refers to image [0-9a-f]{32}, and the policy reads no images: set policy"):
        blind.prompts([f"{PICTURE} {TEXT}"])
    with pytest.raises(UserError, match=r"image a{32}: no data set that was read has it"):
        Codec(train_tokenizer([TEXT], TokenizerSettings(kind="words", vocabulary=20), VISION.processor())).prompts(
            [f"<image:{'a' * 32}>"]
        )


def test_the_tokens_of_an_image_are_saved_with_the_tokenizer(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert image_tokens_of(again) == image_tokens_of(tokenizer)
    assert Codec(again).prompts([f"{PICTURE} {TEXT}"]) == Codec(tokenizer).prompts([f"{PICTURE} {TEXT}"])
