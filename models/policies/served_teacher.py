"""A teacher on an OpenAI-compatible server, which only returns the log-probs of given tokens.

Prompts and completions are sent as token ids to `/completions` with `echo`, `logprobs` and no token to generate.
vLLM's server and the older servers of OpenAI's interface answer with the log-prob of each token, at temperature 1. The
loaded model of a server cannot be hashed, so a run that learned from one cannot be reproduced by others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.base.errors import UserError
from models.base.finite import finite_of_json
from models.base.http_client import NoAnswer, ask_json, names_of
from models.learner.packing import Sequences

KEY_VARIABLE = "REWARDFLOW_TEACHER_KEY"
"""Environment variable with the bearer token; the token is not written to recipes, logs or results."""
TOGETHER = 64
"""Sequences per request."""
TIMEOUT = 300.0
"""Timeout of one request, seconds."""
PROBE = "1 2 3 + = a the of . end"
"""Text whose ids must be the same for server and policy."""


@dataclass(frozen=True)
class ServedTeacher:
    """A teacher model on a server; calling it returns the log-probs of completions."""

    address: str
    """Base address, up to and including /v1."""
    model: str
    """Name of the model on the server."""

    def __call__(self, sequences: Sequences) -> list[Tensor]:
        """Return the log-probs of every completion's tokens, [completions] tensors of [tokens of it], nats, float32.

        Raises:
            UserError: the server does not answer, or not with one log-prob for each token.
        """
        rows = [[*prompt, *ids] for prompt, ids in zip(sequences.prompts, sequences.completions, strict=True)]
        values: list[Tensor] = []
        for start in range(0, len(rows), TOGETHER):
            part = rows[start : start + TOGETHER]
            request = {"model": self.model, "prompt": part, "max_tokens": 0, "echo": True, "logprobs": 0}
            answer = send(f"{self.address}/completions", request)
            values += [
                self._of_completion(choice, row, len(sequences.completions[start + place]))
                for place, (choice, row) in enumerate(zip(self._choices(answer, len(part)), part, strict=True))
            ]
        return values

    def _choices(self, answer: Any, count: int) -> list[Any]:
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or len(choices) != count or not all(map(_is_placed, choices)):
            raise UserError(f"teacher.address: {self.address} did not answer each of {count} sequences")
        return sorted(choices, key=lambda choice: int(choice.get("index", 0)))

    def _of_completion(self, choice: Any, row: Sequence[int], length: int) -> Tensor:
        log_probs = choice.get("logprobs")
        values = log_probs.get("token_logprobs") if isinstance(log_probs, dict) else None
        try:
            if not isinstance(values, list) or len(values) != len(row):
                raise ValueError("not one value for each token")
            return torch.tensor([finite_of_json(value) for value in values[-length:]], dtype=torch.float32)
        except ValueError as error:
            raise UserError(
                f"teacher.address: {self.address} does not return a log-prob for each token of a given text, by echo "
                f"with logprobs ({error})"
            ) from None


def _is_placed(choice: Any) -> bool:
    """Return whether a choice can be assigned to its sequence; choices without a number are in order."""
    return isinstance(choice, dict) and isinstance(choice.get("index", 0), int)


def open_served(address: str, model: str | None, ids_of: Callable[[str], Sequence[int]]) -> ServedTeacher:
    """Connect to a server's model, after a check that it exists and has the policy's token ids.

    Args:
        address: base address, with or without a slash at its end.
        model: name of the model on the server; None: the first that it lists.
        ids_of: text -> token ids by the policy's tokenizer, nothing added.

    Raises:
        UserError: the server does not answer, has no such model, or has another tokenizer.
    """
    base = address.rstrip("/")
    response = send(f"{base}/models")
    names = names_of(response)
    if not names or (model is not None and model not in names):
        available = ", ".join(names) or "none"
        raise UserError(f"teacher.model: {base} has no model {model or ''}; it has {available}")
    served = ServedTeacher(base, model or names[0])
    request = {"model": served.model, "prompt": PROBE, "add_special_tokens": False}
    answer = send(f"{base.removesuffix('/v1')}/tokenize", request, optional=True)
    if isinstance(answer, dict) and answer.get("tokens") != list(ids_of(PROBE)):
        raise UserError(
            f"teacher.address: {base} has another tokenizer than the policy; log-probs are of the same tokens alone"
        )
    return served


def send(url: str, body: Any = None, *, optional: bool = False) -> Any:
    """Send a request to the teacher's server and return its JSON; see `models.base.http_client.ask_json`.

    Raises:
        UserError: it does not answer after some tries, refuses, or answers with something else.
    """
    try:
        return ask_json(url, body, key_variable=KEY_VARIABLE, seconds=TIMEOUT, optional=optional)
    except NoAnswer as error:
        raise UserError(f"teacher.address: {error}") from None
