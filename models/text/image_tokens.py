"""Token ids of texts that refer to images: ids of the pieces of text, and between them those of the images.

A policy that reads images has an entry `image_tokens` in its tokenizer's settings: how many tokens it reads for an
image, and the tokens before and after them. An image itself is ids below zero (see `models.base.images`). For a base
model with a vision tower, the number of tokens depends on the picture, and its image processor computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.images import REFERENCE, image_ids
from models.base.picture_processor import PictureProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SETTING = "image_tokens"
"""Key in tokenizer_config.json."""
IMAGE = "<image>"
"""Token that represents one token of an image where ids below zero are not possible."""
AROUND = "<fake_token_around_image>"
GLOBAL = "<global-img>"
SPECIALS = (AROUND, IMAGE, GLOBAL, "<end_of_utterance>")
"""Special tokens of a policy that reads images, as Idefics3 names them."""


@dataclass(frozen=True)
class ImageTokens:
    """Tokens of an image in a prompt."""

    count: int
    """Tokens of the image itself; 0: they depend on the picture, and `processor` computes them."""
    image: int
    """Id of the token that represents each of them."""
    before: tuple[int, ...]
    after: tuple[int, ...]
    processor: PictureProcessor
    """Image processor of the policy."""
    expands: bool = True
    """Whether the processor of transformers and vLLM writes `before` and `after` too, and not only the image tokens."""

    def count_of(self, name: str) -> int:
        """Return the number of tokens of an image itself; raises the errors of `PictureProcessor.count`."""
        return self.count or self.processor.count(name)

    def ids(self, name: str) -> list[int]:
        """Return the ids of an image in a prompt."""
        return [*self.before, *image_ids(name, self.count_of(name)), *self.after]


def image_tokens_of(tokenizer: PreTrainedTokenizerBase) -> ImageTokens | None:
    """Return the tokens of an image; None if the policy of this tokenizer reads no images."""
    stored: Any = tokenizer.init_kwargs.get(SETTING)
    if stored is None:
        return None
    before, after = (tuple(map(int, stored[side])) for side in ("before", "after"))
    return ImageTokens(
        int(stored["count"]),
        int(stored["image"]),
        before,
        after,
        PictureProcessor(**stored["processor"]),
        bool(stored["expands"]),
    )


def set_image_tokens(tokenizer: PreTrainedTokenizerBase, tokens: ImageTokens) -> None:
    """Set the tokens of an image; they are saved with the tokenizer."""
    tokenizer.init_kwargs[SETTING] = asdict(tokens)


def give_image_tokens(tokenizer: PreTrainedTokenizerBase, processor: PictureProcessor) -> None:
    """Set the tokens of an image in the order of Idefics3; see `set_image_tokens`.

    Args:
        tokenizer: a tokenizer with `SPECIALS` in its vocabulary.
        processor: image processor of the policy, which makes one tile of a picture.
    """
    around, image, whole = (int(tokenizer.get_vocab()[token]) for token in (AROUND, IMAGE, GLOBAL))
    set_image_tokens(tokenizer, ImageTokens(processor.tile_tokens, image, (around, whole), (around,), processor))


def encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special_tokens: bool = False
) -> list[list[int]]:
    """Return the token ids of texts, [texts] lists; references to images become the ids of the images.

    Args:
        special_tokens: whether to add the tokens that the tokenizer adds to a text by itself.

    Raises:
        UserError: a text refers to an image, and the policy reads none, or no data set that was read has it.
    """
    if not texts:
        return []
    tokens, pieces = image_tokens_of(tokenizer), [REFERENCE.split(text) for text in texts]
    named = next((parts[1] for parts in pieces if len(parts) > 1), None)
    if tokens is None or (named is None and not tokens.count):
        if named is not None:
            raise UserError(
                f"a prompt refers to image {named}, and the policy reads no images: set policy.size.vision, or take a "
                "base model whose images are supported"
            )
        return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=special_tokens)["input_ids"]]
    if not tokens.count:
        return [_by_processor(tokenizer, tokens, parts, special_tokens) for parts in pieces]
    made: list[list[int]] = []
    for parts in pieces:  # text, name, text, name, ..., text
        ids: list[int] = []
        for number, part in enumerate(parts):
            if number % 2:
                ids += tokens.ids(part)
            elif part or not number:
                begins = special_tokens and not number
                ids += tokenizer(part, add_special_tokens=begins, split_special_tokens=True)["input_ids"]
        made.append(ids)
    return made


def _by_processor(
    tokenizer: PreTrainedTokenizerBase, tokens: ImageTokens, parts: Sequence[str], special_tokens: bool
) -> list[int]:
    """Return the ids of a text in the way of a base model's own processor: its tokens of an image are in the text.

    Args:
        parts: text, name of an image, text, ..., text.
    """
    placeholder = "".join(tokenizer.convert_ids_to_tokens([*tokens.before, tokens.image, *tokens.after]))
    names = parts[1::2]
    ids: list[int] = tokenizer(placeholder.join(parts[::2]), add_special_tokens=special_tokens)["input_ids"]
    if ids.count(tokens.image) != len(names):
        written = tokenizer.convert_ids_to_tokens(tokens.image)
        raise UserError(f"a prompt with images contains the text {written}, which marks an image in this model")
    images = (image_ids(name, tokens.count_of(name)) for name in names)
    return [part for token in ids for part in (next(images) if token == tokens.image else (token,))]
