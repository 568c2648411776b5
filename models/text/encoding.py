"""Encoding of prompts and completions as token ids, in one place, so that every step uses the same tokens.

Prompt and completion are encoded separately and joined as ids: the boundary is exact and nothing is ever
tokenised again. With a chat model (`chat: true`), the prompt is rendered by the tokenizer's chat template, which writes
its own special tokens. Without, it begins as the tokenizer begins every text (Llama and Gemma: with a BOS). In both
cases the ids are those that a server makes of the same prompt, so that training and serving agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from models.base.errors import UserError
from models.text.image_tokens import encoded
from models.text.prompt_form import BARE, PromptForm
from models.text.rendering import ChatTemplate, Message, Tool
from models.text.token_rows import TokenRows, rows_in_memory
from models.text.unwritten import ids_left_out_of_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Codec:
    """A tokenizer with the recipe's settings, which converts prompts and completions to token ids and back."""

    tokenizer: PreTrainedTokenizerBase
    chat: bool = False
    """Whether to wrap prompts in the tokenizer's chat template."""
    also_end: tuple[int, ...] = ()
    """Ids that end a completion in addition to the tokenizer's own (see `models.text.end_ids`)."""
    form: PromptForm = BARE
    """Text that the recipe writes around every prompt."""

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Ids of all tokens that end a completion, for generation, [one or more], rising.

        Raises:
            UserError: there are none.
        """
        own = self.tokenizer.eos_token_id
        ends = {*self.also_end, *(() if own is None else (int(own),))}
        if not ends:
            raise UserError("the tokenizer names no end token (eos_token), and the model no eos_token_id")
        return tuple(sorted(ends))

    @cached_property
    def end(self) -> int:
        """Id of the token that ends the completions of the data.

        It is the one of `ends` that the chat template writes after an answer, if any; otherwise the tokenizer's own.
        """
        if self.chat and (end_id := self._end_of_answer()) is not None:
            return end_id
        own = self.tokenizer.eos_token_id
        return self.ends[0] if own is None else int(own)

    @cached_property
    def template(self) -> ChatTemplate:
        """The tokenizer's chat template."""
        return ChatTemplate(self.tokenizer)

    @cached_property
    def _unwritten(self) -> frozenset[int]:
        return ids_left_out_of_text(self.tokenizer, self.ends)

    @property
    def pad(self) -> int:
        """Id used after the end of shorter rows; never attended to, never scored."""
        pad = self.tokenizer.pad_token_id
        return int(pad) if pad is not None else self.end

    @cached_property
    def token_texts(self) -> list[str]:
        """Text of each token of the tokenizer by itself, [vocabulary]; empty for tokens that texts leave out."""
        return self.text([[token] for token in range(len(self.tokenizer))])

    def prompts(self, texts: Sequence[str], systems: Sequence[str] = ()) -> list[list[int]]:
        """Return the token ids of each prompt, [prompts] lists.

        Args:
            texts: prompts of the rows, or texts that contain them.
            systems: the rows' own system messages, which the texts begin with, [prompts]; empty: none has one.
        """
        of_rows = list(zip(texts, systems or [""] * len(texts), strict=True))
        if self.chat:
            return self.conversations([self.form.messages(*row) for row in of_rows])
        return self.plain([self.form.text(*row) for row in of_rows])

    def unwrapped(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of prompts without the recipe's template around them, [prompts] lists.

        They do not come from rows: they are, for example, the prompts of an environment's seats.
        """
        return self.conversations([[("user", text)] for text in texts]) if self.chat else self.plain(texts)

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts with the special tokens that the tokenizer adds itself, [texts] lists.

        A chat template is not used.
        """
        return self._ids(texts, as_it_begins=True)

    def conversations(self, turns: Sequence[Sequence[Message]], tools: Sequence[Tool] = ()) -> list[list[int]]:
        """Return the token ids of conversations in the chat template, up to the policy's reply, [conversations] lists.

        Args:
            turns: role and text of each message of each conversation; one without a system message gets the recipe's.
            tools: functions that the policy may call, for a template that writes them.

        Raises:
            UserError: the tokenizer has no chat template, or one that refuses a conversation or leaves out a message.
        """
        from jinja2 import TemplateError

        if not self.tokenizer.chat_template:
            raise UserError("policy.chat is true but the tokenizer has no chat template")
        try:
            return self._ids([self.template.render(self.form.opened(turn), tools=tools) for turn in turns])
        except TemplateError as error:
            raise UserError(f"the tokenizer's chat template refuses a conversation ({error})") from None

    def completions(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each completion with the end token, [completions] lists."""
        return [ids + [self.end] for ids in self._ids(texts)]

    def rows_of_prompts(
        self, texts: Iterable[Sequence[str]], systems: Iterable[Sequence[str]] | None = None
    ) -> TokenRows:
        """Return the output of `prompts` for many texts, [texts]. They come in batches; the result is re-iterable."""
        if systems is None:
            return rows_in_memory(map(self.prompts, texts))
        return rows_in_memory(self.prompts(*batch) for batch in zip(texts, systems, strict=True))

    def rows_of_completions(self, texts: Iterable[Sequence[str]]) -> TokenRows:
        """Return the output of `completions` for many texts; see `rows_of_prompts`."""
        return rows_in_memory(map(self.completions, texts))

    def text(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each completion, without its end token and other special tokens, [completions].

        Tags that the tokenizer has as special tokens are kept (see `models.text.unwritten`); images are left out.
        """
        rows = [list(ids[:-1] if ids and ids[-1] in self.ends else ids) for ids in completions]
        if not rows:
            return []  # a tokenizer decodes an empty list to one empty text
        text_ids = [[token for token in ids if token >= 0 and token not in self._unwritten] for ids in rows]
        return list(self.tokenizer.batch_decode(text_ids, skip_special_tokens=False))

    def inside(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts within a sequence, without added special tokens, [texts] lists."""
        return self._ids(texts)

    def spelt_out(self, text: str) -> str:
        """Insert a space into each special token in a message, so that it is encoded as words.

        Foreign text within the message can then neither end its turn nor begin another.
        """
        for token in self.tokenizer.added_tokens_decoder.values():
            if token.special and len(token.content) > 1:
                text = text.replace(token.content, f"{token.content[0]} {token.content[1:]}")
        return text

    def ended_alike(self, completions: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Replace a last token that is one of `ends` by `end`, as in the training of the reward model."""
        return [[*ids[:-1], self.end] if ids and ids[-1] in self.ends else ids for ids in completions]

    def _end_of_answer(self) -> int | None:
        """Return the first of `ends` that the chat template writes after an answer; None if it writes none."""
        from jinja2 import TemplateError

        if not self.tokenizer.chat_template:
            return None
        answer = "7f3a9c"
        try:
            suffix = self.template.render([("user", "?"), ("assistant", answer)], asks=False).rpartition(answer)[2]
        except (TemplateError, UserError):  # a template that supports prompts only
            return None
        (ids,) = self._ids([suffix])
        return next((token for token in ids if token in self.ends), None)

    def _ids(self, texts: Sequence[str], *, as_it_begins: bool = False) -> list[list[int]]:
        """Return the ids of each text; `as_it_begins`: with the special tokens that the tokenizer adds by itself."""
        return encoded(self.tokenizer, texts, special_tokens=as_it_begins)
