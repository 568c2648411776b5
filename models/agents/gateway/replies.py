"""The reply to a program, made from the tokens that were drawn for it.

The record keeps the drawn tokens, up to and including the one that completes a stop text; what was drawn after it is
dropped. The program receives their text without the stop text, and calls of functions as OpenAI's protocol has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from models.agents.gateway.answers import AnswerChoice, SentCall, TokenLogProb
from models.agents.gateway.program_request import ProgramRequest
from models.agents.gateway.token_texts import between, cut_at_stop, token_texts
from models.agents.gateway.tool_calls import ParsedCall, parse_reply
from models.engines.engine import Generated
from models.text.encoding import Codec
from models.text.rendering import ChatMessage, FunctionCall


@dataclass(frozen=True, eq=False)
class Reply:
    """A completion as it is recorded and as it is sent."""

    tokens: tuple[int, ...]
    """Token ids that were drawn, [tokens]."""
    log_probs: Tensor | None
    """Log-prob of each, [tokens], nats; None if not requested."""
    finished: bool
    """Whether it ended by itself or at a stop text."""
    text: str
    """Text of the tokens."""
    message: ChatMessage
    """The message that the program receives in a conversation."""
    choice: AnswerChoice


def reply_of(codec: Codec, generated: Generated, request: ProgramRequest, begun: str, seed: int) -> Reply:
    """Make the reply.

    Args:
        codec: the policy's tokenizer.
        generated: the engine's completion.
        request: the request of the program.
        begun: text before the completion that belongs to the reply (`Prompt.begun`).
        seed: seed of the completion, from which the ids of calls are made.
    """
    tokens, log_probs, finished = generated.tokens, generated.log_probs, generated.finished
    by_token = request.stream or request.stops or request.log_probs
    texts = token_texts(codec, tokens) if by_token else codec.text([tokens])
    length = sum(map(len, texts))
    stopped = cut_at_stop(texts, request.stops)
    if stopped is not None:
        count, length = stopped
        tokens, texts, finished = tokens[:count], texts[:count], True
        log_probs = None if log_probs is None else log_probs[:count].clone()
    text = "".join(texts)
    written = [begun + texts[0], *texts[1:]]
    whole = f"{begun}{text[:length]}"
    parsed = parse_reply(whole, request.names, finished=finished)
    calls = parsed.calls if request.several_calls else parsed.calls[:1]
    sent = tuple(
        SentCall(FunctionCall(_call_id(seed, number), call.name, call.arguments), _pieces(call, written))
        for number, call in enumerate(calls)
    )
    reported = None
    if request.log_probs and log_probs is not None:
        pairs = list(zip(texts, log_probs.tolist(), strict=True))
        if tokens[-1] in codec.ends:
            del pairs[-1]
        reported = tuple(TokenLogProb(*pair) for pair in pairs)
    choice = AnswerChoice(
        parsed.content,
        tuple(between(written, 0, len(parsed.content))),
        sent,
        ("tool_calls" if calls else "stop") if finished else "length",
        reported,
    )
    message = ChatMessage("assistant", parsed.content, tuple(entry.call for entry in sent))
    return Reply(tokens, log_probs, finished, text, message, choice)


def _pieces(call: ParsedCall, written: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a call by token."""
    if call.start is None:
        return (call.arguments,)
    return tuple(part for part in between(written, call.start, call.start + len(call.arguments)) if part)


def _call_id(seed: int, number: int) -> str:
    """Return the id of a call: nine letters and digits, as the strictest chat templates want it."""
    return hashlib.sha256(f"{seed} function call {number}".encode()).hexdigest()[:9]
