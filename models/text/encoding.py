"""The one place where a prompt or a completion becomes token ids, so that every step means the same tokens.

Prompt and completion are encoded apart and joined as ids: the boundary is exact and nothing is ever
tokenised again. With a chat model (`chat: true`) the prompt goes through the tokenizer's chat template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Codec:
    """A tokenizer and how the recipe uses it."""

    tokenizer: PreTrainedTokenizerBase
    chat: bool = False
    """Wrap prompts in the tokenizer's chat template."""

    @property
    def end(self) -> int:
        """Id of the token that ends a completion."""
        return int(self.tokenizer.eos_token_id)

    @property
    def pad(self) -> int:
        """Id used behind the end of shorter rows; never attended to, never scored."""
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else self.tokenizer.eos_token_id)

    def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each prompt, [prompts] lists."""
        if self.chat:
            if not self.tokenizer.chat_template:
                raise UserError("policy.chat is true but the tokenizer has no chat template")
            turns = [[{"role": "user", "content": text}] for text in texts]
            rendered = [
                self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) for turn in turns
            ]
            texts = [str(text) for text in rendered]
        return self._ids(texts)

    def completions(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each completion with the end token, [completions] lists."""
        return [ids + [self.end] for ids in self._ids(texts)]

    def text(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Text of each completion, end and padding tokens left out, [completions]."""
        return list(self.tokenizer.batch_decode([list(ids) for ids in completions], skip_special_tokens=True))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return [list(ids) for ids in self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
