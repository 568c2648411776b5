"""Answers in the form of OpenAI's protocol: one JSON object, or the events of a stream.

The engine returns whole completions, so a stream begins when the completion is drawn. Its events are what a server
would send while it draws: one for each token's text, and the same for the arguments of calls.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from models.text.rendering import FunctionCall

MODEL = "policy"
Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class SentCall:
    """A call of a function in an answer."""

    call: FunctionCall
    pieces: tuple[str, ...]
    """Its arguments in parts."""


@dataclass(frozen=True)
class TokenLogProb:
    """A drawn token, as `logprobs` reports it."""

    text: str
    log_prob: float
    """Natural logarithm of its probability."""


@dataclass(frozen=True)
class AnswerChoice:
    """A completion of an answer."""

    text: str
    """Content of the message, or text of a plain completion."""
    pieces: tuple[str, ...]
    """The text by token, from the first one."""
    calls: tuple[SentCall, ...]
    finish: Finish
    tokens: tuple[TokenLogProb, ...] | None = None
    """All drawn tokens but the end token; None if log-probs were not requested."""

    def message(self) -> dict[str, Any]:
        """Return the message of a conversation."""
        content = self.text or None if self.calls else self.text
        calls = [{**_head(entry.call), "function": _function(entry.call)} for entry in self.calls]
        return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


@dataclass(frozen=True)
class ProgramAnswer:
    """The answer to a request."""

    chat: bool
    """Whether it answers a conversation, else a plain completion."""
    choices: tuple[AnswerChoice, ...]
    prompt_tokens: int
    drawn_tokens: int
    """Tokens of all choices."""
    id: str = field(default_factory=lambda: f"call-{secrets.token_hex(8)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self) -> dict[str, Any]:
        """Return the answer as one object."""
        choices = [
            {
                "index": number,
                **({"message": choice.message()} if self.chat else {"text": choice.text}),
                "finish_reason": choice.finish,
                "logprobs": self._log_probs(choice.tokens),
            }
            for number, choice in enumerate(self.choices)
        ]
        return {**self._envelope("chat.completion"), "choices": choices, "usage": self._usage()}

    def events(self, *, usage: bool) -> Iterator[dict[str, Any]]:
        """Yield the events of a stream, without the text `[DONE]` at its end.

        Args:
            usage: whether the last event reports the number of tokens.
        """
        envelope = {**self._envelope("chat.completion.chunk"), **({"usage": None} if usage else {})}
        for number, choice in enumerate(self.choices):
            for part, finish, tokens in self._parts(choice):
                fields = {"delta": part} if self.chat else part
                log_probs = self._log_probs(tokens) if tokens else None
                event = {"index": number, **fields, "finish_reason": finish, "logprobs": log_probs}
                yield {**envelope, "choices": [event]}
        if usage:
            yield {**envelope, "choices": [], "usage": self._usage()}

    def _parts(self, choice: AnswerChoice) -> Iterator[tuple[dict[str, Any], Finish | None, Sequence[TokenLogProb]]]:
        """Yield the parts of a choice: fields, reason of the end, and the tokens whose log-probs they report."""
        if self.chat:
            yield {"role": "assistant", "content": "" if choice.text or not choice.calls else None}, None, ()
        tokens = choice.tokens or ()
        for number, piece in enumerate(choice.pieces):
            reported = tokens[number : number + 1]
            if piece or reported:
                yield {"content" if self.chat else "text": piece}, None, reported
        for number, entry in enumerate(choice.calls):
            function = {"name": entry.call.name, "arguments": ""}
            yield {"tool_calls": [{"index": number, **_head(entry.call), "function": function}]}, None, ()
            for piece in entry.pieces:
                yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}, None, ()
        yield {} if self.chat else {"text": ""}, choice.finish, tokens[len(choice.pieces) :]

    def _envelope(self, kind: str) -> dict[str, Any]:
        named = kind if self.chat else "text_completion"
        return {"id": self.id, "object": named, "created": self.created, "model": MODEL}

    def _usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.drawn_tokens
        return {
            "prompt_tokens": self.prompt_tokens, "completion_tokens": self.drawn_tokens, "total_tokens": total,
        }  # fmt: skip

    def _log_probs(self, tokens: Sequence[TokenLogProb] | None) -> dict[str, Any] | None:
        if tokens is None:
            return None
        if self.chat:
            content = [
                {
                    "token": token.text,
                    "logprob": token.log_prob,
                    "bytes": list(token.text.encode()),
                    "top_logprobs": [],
                }
                for token in tokens
            ]
            return {"content": content, "refusal": None}
        offsets = accumulate((len(token.text) for token in tokens), initial=0)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.log_prob for token in tokens],
            "top_logprobs": None,
            "text_offset": [offset for offset, _ in zip(offsets, tokens, strict=False)],
        }


def _head(call: FunctionCall) -> dict[str, str]:
    return {"id": call.id, "type": "function"}


def _function(call: FunctionCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}
