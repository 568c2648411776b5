"""Token ids of texts that refer to images: ids of the pieces of text, and between them those of the images.

A policy that reads images has an entry `image_tokens` in its tokenizer's settings: how many tokens it reads for an
image, and the tokens before and after them. An image itself is ids below zero (see `models.base.images`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.images import REFERENCE, image_ids

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
    """Tokens of one image in a prompt."""

    count: int
    """Tokens of the image itself."""
    image: int
    """Id of the token that represents each of them."""
    before: tuple[int, ...]
    after: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.before) + self.count + len(self.after)

    def ids(self, name: str) -> list[int]:
        """Return the ids of an image in a prompt."""
        return [*self.before, *image_ids(name, self.count), *self.after]


def image_tokens_of(tokenizer: PreTrainedTokenizerBase) -> ImageTokens | None:
    """Return the tokens of an image; None if the policy of this tokenizer reads no images."""
    settings: Any = tokenizer.init_kwargs.get(SETTING)
    if settings is None:
        return None
    before, after = (tuple(map(int, settings[side])) for side in ("before", "after"))
    return ImageTokens(int(settings["count"]), int(settings["image"]), before, after)


def give_image_tokens(tokenizer: PreTrainedTokenizerBase, count: int) -> None:
    """Set the tokens of an image, in the order of Idefics3; they are saved with the tokenizer.

    Args:
        tokenizer: a tokenizer with `SPECIALS` in its vocabulary.
        count: tokens of the image itself.
    """
    around, image, whole = (int(tokenizer.get_vocab()[token]) for token in (AROUND, IMAGE, GLOBAL))
    tokenizer.init_kwargs[SETTING] = asdict(ImageTokens(count, image, (around, whole), (around,)))


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
    if tokens is None:
        if named := next((parts[1] for parts in pieces if len(parts) > 1), None):
            raise UserError(f"a prompt refers to image {named}, and the policy reads no images: set policy.size.vision")
        return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=special_tokens)["input_ids"]]
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
