"""A tokenizer fitted to the data, for a policy without a base model.

There are two kinds. `words` splits at white space and keeps whole numbers and whole words as tokens: with a small
vocabulary it lets a model under a million parameters learn arithmetic in a minute. `bytes` is the byte-level
byte-pair encoding of ordinary language models, for natural text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.trainers import BpeTrainer

from models.base.errors import UserError
from models.base.images import without_images
from models.base.picture_processor import PictureProcessor
from models.base.remote_code import refuse_untrusted
from models.text.base_images import adopt_images
from models.text.image_tokens import SPECIALS, encoded, give_image_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

MOST_TEXTS = 1_000_000
"""Largest number of distinct texts that `bytes` is fitted to: their distinct words are in memory, and more texts change
few of the pairs."""
PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """Tokenizer of a policy without a base model, under `policy.tokenizer:`."""

    kind: Literal["words", "bytes"] = "bytes"
    """`words`: white-space separated words and numbers. `bytes`: byte-level BPE."""
    vocabulary: Annotated[int, Field(ge=4, le=4_194_304)] = 4096
    """Largest number of tokens, including the special ones."""
    words: tuple[str, ...] = ()
    """Additional known words that the data may not contain (`words`), such as those of a principle."""


def train_tokenizer(
    texts: Iterable[str], settings: TokenizerSettings, images: PictureProcessor | None = None
) -> PreTrainedTokenizerFast:
    """Fit a tokenizer to `texts`, which are iterated once; the same texts in any order give the same tokenizer.

    A text that happens to contain the name of a special token never becomes that token: it cannot end a completion.
    References to images are left out.

    Args:
        images: image processor of the policy; None: it reads no images.

    Raises:
        UserError: all `texts` are blank, or the vocabulary is too small for the words, or for the 256 bytes.
    """
    specials = [PAD, END, UNKNOWN, *(SPECIALS if images else ())]
    texts = _begun(map(without_images, texts))
    if settings.kind == "words":
        counts = Counter(word for text in texts for word in text.split() if word not in specials)
        counts.update(dict.fromkeys((word for text in settings.words for word in text.split()), 0))
        if len(counts) + len(specials) > settings.vocabulary:
            raise UserError(
                f"policy.tokenizer.vocabulary: {settings.vocabulary} is too small for {len(counts)} distinct words; "
                "raise it or use kind: bytes"
            )
        words = sorted(counts, key=lambda word: (-counts[word], word))
        vocabulary = {token: index for index, token in enumerate(specials + words)}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
        replaced = [name for name in specials if name != UNKNOWN]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(name, UNKNOWN) for name in replaced])
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        least = len(specials) + len(pre_tokenizers.ByteLevel.alphabet())
        if settings.vocabulary < least:
            raise UserError(
                f"policy.tokenizer.vocabulary: {settings.vocabulary} is too small for the 256 bytes and the special "
                f"tokens; it takes {least} or more"
            )
        tokenizer = Tokenizer(BPE(unk_token=None))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = BpeTrainer(
            vocab_size=settings.vocabulary,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
    from transformers import PreTrainedTokenizerFast

    fitted = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        # the processor of images writes their tokens by name; `encoded` splits the names in a text nevertheless
        split_special_tokens=images is None,
        additional_special_tokens=list(SPECIALS) if images else None,
    )
    if images is not None:
        give_image_tokens(fitted, images)
    return fitted


def _begun(texts: Iterator[str]) -> Iterator[str]:
    """Return the same texts after checking that one of them is not blank.

    Raises:
        UserError: all are blank.
    """
    blank: list[str] = []
    for text in texts:
        if text.strip():
            return chain(blank, [text], texts)
        blank.append(text)
    raise UserError("policy.tokenizer: no text to train a tokenizer on")


def count_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text as a prompt, [texts]: with the special tokens that the tokenizer adds by itself.

    A completion ends with one additional token and begins with none of these.
    """
    return [len(ids) for ids in encoded(tokenizer, texts, special_tokens=True)]


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer next to the weights of a model folder.

    Raises:
        UserError: it is not available, or needs code of the model's own that is not trusted.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        refuse_untrusted(error, folder)
        raise UserError(f"{folder}: its tokenizer cannot be loaded ({str(error).splitlines()[0]})") from None
    adopt_images(tokenizer, folder)
    return tokenizer
