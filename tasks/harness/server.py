"""The policy as a server of OpenAI's protocol on loopback, for a harness in another process.

    POST /v1/completions         prompts as token ids -> texts, or with `echo` the log-probs of the prompts' tokens
    POST /v1/chat/completions    messages -> a text

Requests are answered by the thread that calls `Policy.answer`, which owns the engine. With `echo`, the field
`context_lengths` states for each prompt where its continuation begins. Only tokens of the continuation are scored, and
`top_logprobs` has a second, likelier entry at its first token unless greedy decoding would write the continuation: that
is all that lm-eval reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.agents.gateway.answers import AnswerChoice, ProgramAnswer
from models.agents.gateway.program_request import BadRequest, read_request
from models.agents.gateway.server import PendingRequest, Refused
from models.agents.gateway.token_texts import cut_at_stop
from models.base.errors import UserError, shortened
from models.base.seeds import completion_seed
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, TokenSampling
from models.text.encoding import Codec

NOT_GREEDY = 1.0
"""Amount by which the entry of another token exceeds that of a token that greedy decoding would not write, nats."""
KNOWN = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "echo", "logprobs"),
    *("context_lengths", "do_sample", "until"),
}
"""Fields of a request for completions that are understood."""


@dataclass(frozen=True)
class ScoredPrompts(ProgramAnswer):
    """The answer to a request with `echo`: log-probs of the continuations."""

    scored: tuple[tuple[int, tuple[float, ...], bool], ...] = ()
    """For each prompt: tokens of its context, log-probs of its continuation, and whether greedy decoding writes it."""

    def body(self) -> dict[str, Any]:
        """Return the answer as one object."""
        choices = []
        for number, (length, log_probs, greedy) in enumerate(self.scored):
            # A last token follows the prompt, as if one had been drawn: clients leave it out.
            values = [None] * length + list(log_probs) + [0.0]
            top = [None] * length + [{"": value} for value in log_probs] + [{"": 0.0}]
            if not greedy and log_probs:
                top[length] = {"": log_probs[0], "other": log_probs[0] + NOT_GREEDY}
            entry = {"tokens": [""] * len(values), "token_logprobs": values, "top_logprobs": top, "text_offset": []}
            choices.append({"index": number, "text": "", "finish_reason": "length", "logprobs": entry})
        return super().body() | {"choices": choices}


@dataclass(frozen=True)
class _PromptRequest:
    """A prompt of a request, and the completions that it needs."""

    ids: Sequence[int]
    most: int
    """Longest completion, in tokens."""
    stops: tuple[str, ...]
    number: int = 0
    """Place of the request in its batch."""
    count: int = 1
    """Completions of the same prompt."""


class Policy:
    """Answers requests of a harness with an engine.

    Args:
        engine: the engine of the policy.
        codec: its tokenizer.
        after_prompt: token ids between every prompt and its completion.
        longest: tokens that a prompt and its completion may have together.
        system: system message of conversations that have none; None: none.
        seed: seed of sampled completions.
    """

    def __init__(
        self,
        engine: Engine,
        codec: Codec,
        *,
        after_prompt: Sequence[int] = (),
        longest: int,
        system: str | None = None,
        seed: int = 0,
    ) -> None:
        self._engine, self._codec, self._after = engine, codec, tuple(after_prompt)
        self._longest, self._system, self._seed = longest, system, seed
        self._drawn = 0
        self.refused = ""
        """Why a request was refused; empty if none was."""
        self.tokens = 0
        """Tokens drawn so far."""

    def answer(self, waiting: Sequence[PendingRequest]) -> None:
        """Answer requests, conversations together in one batch."""
        chats = [request for request in waiting if request.chat]
        for request in waiting:
            if not request.chat:
                self._reply([request], self._completions)
        if chats:
            self._reply(chats, self._chats)

    def _reply(self, requests: Sequence[PendingRequest], respond: Any) -> None:
        try:
            answers: Sequence[ProgramAnswer | Refused] = respond(requests)
        except (BadRequest, UserError) as error:
            self.refused = self.refused or str(error)
            answers = [Refused(400, str(error))] * len(requests)
        for request, answer in zip(requests, answers, strict=True):
            request.answer(answer)

    def _completions(self, requests: Sequence[PendingRequest]) -> list[ProgramAnswer]:
        body = requests[0].body
        if unknown := sorted(body.keys() - KNOWN):
            raise BadRequest(f"the argument {shortened(unknown[0])} of a generation is not supported; leave it out")
        prompts = _rows(body.get("prompt"))
        if body.get("echo"):
            return [self._scored(prompts, _lengths(body.get("context_lengths"), prompts))]
        temperature, top_p = _number(body, "temperature", 0.0), _number(body, "top_p", 1.0)
        drawing = TokenSampling(temperature=temperature, top_p=top_p, top_k=int(_number(body, "top_k", 0)))
        most, stops = int(_number(body, "max_tokens", 16)), tuple(_stops(body.get("stop")))
        choices = self._drawn_texts([_PromptRequest(ids, most, stops) for ids in prompts], drawing)
        lengths = sum(map(len, prompts))
        return [ProgramAnswer(False, tuple(choice for choice, _ in choices), lengths, sum(n for _, n in choices))]

    def _chats(self, requests: Sequence[PendingRequest]) -> list[ProgramAnswer | Refused]:
        answers: dict[int, ProgramAnswer | Refused] = {}
        together: dict[tuple[float, float], list[_PromptRequest]] = {}
        for number, request in enumerate(requests):
            try:
                prompt = self._read_chat(number, request)
            except (BadRequest, UserError) as error:
                self.refused = self.refused or str(error)
                answers[number] = Refused(400, str(error))
                continue
            sampled = (_number(request.body, "temperature", 0.0), _number(request.body, "top_p", 1.0))
            together.setdefault(sampled, []).append(prompt)
        for (temperature, top_p), group in together.items():
            drawing = TokenSampling(temperature=temperature, top_p=top_p)
            texts = iter(self._drawn_texts([each for each in group for _ in range(each.count)], drawing))
            for each in group:
                made = [next(texts) for _ in range(each.count)]
                choices = tuple(choice for choice, _ in made)
                answers[each.number] = ProgramAnswer(True, choices, len(each.ids), sum(n for _, n in made))
        return [answers[number] for number in range(len(requests))]

    def _read_chat(self, number: int, request: PendingRequest) -> _PromptRequest:
        """Read a conversation."""
        chat = read_request(request.body, chat=True)
        if chat.tools:
            raise BadRequest("tools are not supported by the server of an evaluation suite")
        turns = [(message.role, message.text) for message in chat.messages]
        if self._system is not None and turns[0][0] != "system":
            turns = [("system", self._system), *turns]
        ids = self._codec.conversations([turns])[0]
        room = self._longest - len(ids) - len(self._after)
        if room < 1:
            raise BadRequest(f"a conversation has {len(ids)} tokens, but there is room for {self._longest} (longest)")
        return _PromptRequest(ids, min(room, chat.most_tokens or room), chat.stops, number, chat.count)

    def _drawn_texts(self, prompts: Sequence[_PromptRequest], drawing: TokenSampling) -> list[tuple[AnswerChoice, int]]:
        """Draw completions, [prompts]. Returns the text of each up to its first stop, and its number of tokens."""
        requests = []
        for each in prompts:
            if each.most < 1:
                raise BadRequest(f"max_tokens is {each.most}, not 1 or more")
            if len(each.ids) + len(self._after) + each.most > self._longest:
                raise BadRequest(
                    f"a prompt of {len(each.ids)} tokens and an answer of {each.most} exceed the room of "
                    f"{self._longest}; raise longest, or shorten the answers (generation: {{max_gen_toks: ...}})"
                )
            seed = completion_seed(self._seed, self._drawn, 0)
            requests.append(CompletionRequest([*each.ids, *self._after], seed, each.most))
            self._drawn += 1
        made = self._engine.complete(requests, drawing)
        self.tokens += sum(len(each.tokens) for each in made)
        texts = self._codec.text([each.tokens for each in made])
        return [
            (_choice(text, completion, prompt.stops), len(completion.tokens))
            for text, completion, prompt in zip(texts, made, prompts, strict=True)
        ]

    def _scored(self, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> ProgramAnswer:
        contexts = [(*ids[:length], *self._after) for ids, length in zip(prompts, lengths, strict=True)]
        rows = [tuple(ids[length:]) for ids, length in zip(prompts, lengths, strict=True)]
        for context, row in zip(contexts, rows, strict=True):
            if len(context) + len(row) > self._longest:
                raise BadRequest(
                    f"a prompt has {len(context) + len(row)} tokens, but there is room for {self._longest} (longest)"
                )
        scores = self._engine.score(contexts, rows)
        greedy = self._greedy(contexts, rows)
        scored = tuple(
            (length, tuple(of_row), is_greedy)
            for length, of_row, is_greedy in zip(lengths, scores, greedy, strict=True)
        )
        return ScoredPrompts(False, (), sum(map(len, prompts)), 0, scored=scored)

    def _greedy(self, contexts: Sequence[tuple[int, ...]], rows: Sequence[tuple[int, ...]]) -> list[bool]:
        """Return whether greedy decoding of each context writes its row, [rows]. A context is decoded once."""
        longest: dict[tuple[int, ...], int] = {}
        for context, row in zip(contexts, rows, strict=True):
            longest[context] = max(longest.get(context, 1), len(row))
        requests = [CompletionRequest(context, 0, most) for context, most in longest.items()]
        made = self._engine.complete(requests, Sampling(temperature=0.0, log_probs=False))
        written = {context: tuple(each.tokens) for context, each in zip(longest, made, strict=True)}
        return [written[context][: len(row)] == row for context, row in zip(contexts, rows, strict=True)]


def _choice(text: str, made: Generated, stops: Sequence[str]) -> AnswerChoice:
    cut = cut_at_stop([text], [stop for stop in stops if stop])
    kept = text if cut is None else text[: cut[1]]
    return AnswerChoice(kept, (kept,), (), "length" if cut is None and not made.finished else "stop")


def _rows(prompt: Any) -> list[list[int]]:
    rows = [prompt] if isinstance(prompt, list) and prompt and isinstance(prompt[0], int) else prompt
    fits = isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)
    if not fits or not all(isinstance(token, int) and token >= 0 for row in rows for token in row):
        raise BadRequest("prompt: token ids are wanted, a list for each prompt; lm-eval sends them with a tokenizer")
    return list(rows)


def _lengths(value: Any, prompts: Sequence[Sequence[int]]) -> list[int]:
    if not isinstance(value, list) or len(value) != len(prompts):
        raise BadRequest("context_lengths: echo needs the number of tokens before the continuation, for each prompt")
    if not all(isinstance(n, int) and 0 < n < len(row) for n, row in zip(value, prompts, strict=True)):
        raise BadRequest("context_lengths: a context and a continuation have one token each or more")
    return list(value)


def _stops(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise BadRequest("stop: a text or a list of texts is wanted")
    return stops


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadRequest(f"{name} is {shortened(value, 40)}, not a number of 0 or more")
    return float(value)
