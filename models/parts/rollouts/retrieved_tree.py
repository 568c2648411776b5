"""A search whose prior counts as much as the problem resembles those that the policy was trained on (ABC-RL).

    bound = Q(n) + k (S P(n) / sum of P over the siblings)^w sqrt(ln N(parent) / (1 + N(n)))      S: number of siblings
    w = sigmoid((similarity - near_from) / temperature)

P is the policy's probability of the turn. The similarity of a problem is the largest cosine between its prompt and one
of `known`, both as counts of three characters in a row. In a problem like a known one, w is near one, and the search
follows the policy. In a novel one, w is near zero, and it is the search of rollouts `tree`, because the policy's advice
may mislead there (Retrieval-Guided Reinforcement Learning for Boolean Circuit Minimization, paper 156, arXiv
2401.12205). The paper compares graphs of circuits by embeddings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from pydantic import PositiveFloat

from models.base.bounds import Share
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.base.strict_json import JsonError, parse_json
from models.method.own_file import OwnFile
from models.method.problem import Problem
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.parts.rollouts.tree import Searched

KEY = "rollouts.known"


@part("retrieved_tree")
class RetrievedTree(OwnFile, Searched):
    """A search with the policy's prior, weighted by the nearest known problem. Set under `rollouts:`."""

    known: RecipePath = ""
    """A JSONL file whose rows have a `prompt`: the problems that the policy was trained on before, such as the
    demonstrations of the warm start. A relative path starts at the recipe's folder."""
    sha256: str = ""
    """Hash of its content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    near_from: Share = 0.5
    """Similarity at which the prior has half of its weight."""
    temperature_of_weight: PositiveFloat = 0.05
    """Width of the passage from no weight to full weight, in units of similarity."""

    def __post_init__(self) -> None:
        self._know_file(self.known, self.sha256, KEY)
        if self.search != "uct":
            raise UserError(f"rollouts.search: {self.search} has no bound that a prior could weigh; set uct")

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """The file of the known problems, and the files of the environment."""
        return (*super().given, *self.environment.given)

    def try_out(self) -> None:
        """Read the known problems, and check that the environment can be used.

        Raises:
            UserError: no file is named, or a row has no prompt.
        """
        super().try_out()
        self._known()

    def _known(self) -> tuple[str, ...]:
        if not self.known:
            raise UserError(f"{KEY}: name the JSONL file of the problems that the policy was trained on before")
        return _prompts(super().given[0])

    def _prior_weights(self, problems: Sequence[Problem]) -> list[float]:
        known = self._known()
        return [self._weight(similarity(problem.prompt, known)) for problem in problems]

    def _weight(self, similar: float) -> float:
        return 0.5 + 0.5 * math.tanh((similar - self.near_from) / (2.0 * self.temperature_of_weight))


def similarity(prompt: str, known: Sequence[str]) -> float:
    """Return the largest cosine between the three-character counts of a text and of `known` texts, in [0, 1]."""
    own = _counts(prompt)
    return max((_cosine(own, _counts(other)) for other in known), default=0.0)


def _cosine(first: Counter[str], second: Counter[str]) -> float:
    product = sum(count * second[text] for text, count in first.items())
    return product / math.sqrt(_square(first) * _square(second)) if product else 0.0


def _square(counts: Counter[str]) -> int:
    return sum(count * count for count in counts.values())


@lru_cache(maxsize=65536)
def _counts(text: str) -> Counter[str]:
    return Counter(text[place : place + 3] for place in range(max(1, len(text) - 2)))


@lru_cache(maxsize=8)
def _prompts(file: GivenFile) -> tuple[str, ...]:
    """Return the different prompts of a JSONL file.

    Raises:
        UserError: a row is not JSON, or has no prompt; or the file has no rows.
    """
    prompts = []
    for where, line in file.lines(KEY):
        try:
            row = parse_json(line)
        except JsonError as error:
            raise UserError(f"{where}: {error}") from None
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, str) or not prompt:
            raise UserError(f'{where}: it has no prompt; a row is {{"prompt": ...}}')
        prompts.append(prompt)
    if not prompts:
        raise UserError(f"{KEY}: {file.file} has no rows; name a file with known problems")
    return tuple(dict.fromkeys(prompts))
