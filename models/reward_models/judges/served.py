"""A judge behind an OpenAI-compatible address: questions are sent as chats, several at a time.

Each vote is a request of its own with its own seed, for servers that use seeds. The model that a server has loaded and
its sampler are not known, so a run that learned from a server cannot be reproduced by others. The server's special
tokens are not known either: a space breaks any text in a question that has the form of one (`<|im_end|>`, `</s>`,
`[INST]`), so that a completion cannot end its own turn or begin the judge's. An image is sent as a data URL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from models.base.errors import UserError
from models.base.finite import finite_of_json
from models.base.http_client import NoAnswer, ask_json, names_of
from models.base.images import REFERENCE, content_of, data_url, shows_images, with_known_images
from models.method.judge import MISSING, Answer, GenerativeJudge, askable, encodable, vote_seed
from models.reward_models.judges.settings import JudgeSettings

_SPECIAL = re.compile(
    r"<(?=[|｜][^\s<>]{1,60}[|｜]>)"  # of Qwen, Llama 3, Phi, DeepSeek
    r"|<(?=/?(?:s|bos|eos|pad|unk|(?:start|end)_of_(?:turn|image))>)"  # of Llama 2, Mistral, Gemma
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|THINK)\])"  # of Mistral
)


class ServedJudge(GenerativeJudge):
    """A model behind an address."""

    def __init__(self, settings: JudgeSettings, seed: int) -> None:
        """Check that the server and its model are available.

        Raises:
            UserError: the server does not answer, or does not have the model.
        """
        assert settings.address is not None, "the settings name an address"
        self._settings, self._seed, self._address = settings, seed, settings.address.rstrip("/")
        self._model = settings.model or ""
        try:
            response = self._send("models", optional=True)
        except NoAnswer as error:
            raise UserError(f"judge.address: {error}") from None
        names = names_of(response)
        if (self._model and names and self._model not in names) or not (self._model or names):
            available = ", ".join(names) or "none"
            raise UserError(f"judge.model: {self._address} has no model {self._model or ''}; it has {available}")
        self._model = self._model or names[0]

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        """See `GenerativeJudge.ask`. A vote that got no answer after all tries is `MISSING`.

        Raises:
            NoAnswer: no vote got an answer.
        """
        # no `with`: a caller that timed out must not wait for requests that hang
        pool = ThreadPoolExecutor(self._settings.side_by_side, "judge")
        try:
            places = [(text, vote) for text in askable(questions) for vote in range(votes)]
            futures = {place: pool.submit(self._answer, *place, greedy) for place in places}
            results = {place: _result_of(future) for place, future in futures.items()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        errors = [answer for answer in results.values() if isinstance(answer, NoAnswer)]
        if errors and len(errors) == len(results):
            raise errors[0]
        answers = {place: MISSING if isinstance(result, NoAnswer) else result for place, result in results.items()}
        return [[answers.get((text, vote), MISSING) for vote in range(votes)] for text in questions]

    def _answer(self, question: str, vote: int, greedy: bool) -> Answer:
        """Request one vote.

        Raises:
            NoAnswer: the server gives no answer.
        """
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": content_of_message(question)}],
            "max_tokens": self._settings.max_tokens,
            "temperature": 0.0 if greedy else self._settings.temperature,
            "seed": vote_seed(self._seed, question, vote) >> 32,  # servers take 31 bits
            "logprobs": True,
        }
        return answer_of(self._send("chat/completions", body))

    def _send(self, path: str, body: Any = None, *, optional: bool = False) -> Any:
        settings = self._settings
        return ask_json(
            f"{self._address}/{path}",
            body,
            key_variable=settings.key_variable,
            seconds=settings.seconds,
            tries=settings.tries,
            optional=optional,
        )


def content_of_message(question: str) -> str | list[dict[str, Any]]:
    """Return what is sent for a question: its text, or its parts if it refers to images that this process knows."""
    if not shows_images(question):
        return spelt_out(question)
    parts: list[dict[str, Any]] = []
    for place, piece in enumerate(REFERENCE.split(with_known_images(question))):
        if place % 2:
            parts.append({"type": "image_url", "image_url": {"url": data_url(content_of(piece))}})
        elif piece.strip():
            parts.append({"type": "text", "text": spelt_out(piece.strip())})
    return parts


def spelt_out(question: str) -> str:
    """Return a question that every server accepts, with its special tokens broken up into plain text."""
    return _SPECIAL.sub(lambda match: f"{match[0]} ", encodable(question))


def answer_of(answer: Any) -> Answer:
    """Return the first choice of a server's response; `MISSING` if the response is malformed."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(choice, dict) or not isinstance(text, str):
        return MISSING
    return Answer(text, choice.get("finish_reason") == "stop", _log_probs(choice.get("logprobs")))


def _log_probs(log_probs: Any) -> tuple[float, ...] | None:
    content = log_probs.get("content") if isinstance(log_probs, dict) else None
    if not isinstance(content, list) or not content:
        return None
    values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in content]
    try:
        return tuple(map(finite_of_json, values))
    except ValueError:
        return None


def _result_of(future: Future[Answer]) -> Answer | NoAnswer:
    try:
        return future.result()
    except NoAnswer as error:
        return error
