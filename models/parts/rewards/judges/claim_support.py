"""Share of a completion's stated facts that a knowledge file supports (KnowRL, paper 271, arXiv 2506.19807).

    value = supported / stated;   `silent` if no fact is stated

The text before the final answer is split at semicolons, periods and line ends. Each piece that `pattern` matches whole
is a claim. It is supported if it equals a document up to case, white space and the punctuation at its ends. In the
paper, one language model extracts the claims from the thoughts and another checks them against Wikipedia. A claim that
is stated twice counts once, so that repeating a fact does not compensate for an invented one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from models.agents.play.documents import OfDocuments, texts_of
from models.answers.answers import before_answer
from models.answers.patterns import compiled
from models.base.bounds import Number
from models.base.errors import UserError
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

_ENDS = re.compile(r"[;\n]|\.(?=\s|$)")


@part("claim_support")
class ClaimSupport(OfDocuments, Reward):
    """Share of stated claims that are supported; a completion that was cut counts as one without claims."""

    documents: RecipePath = ""
    """A JSONL file of documents ({"text": ..., "title": optional}), a text, or a folder of both: one fact each. A
    relative path is relative to the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. If it is given in a recipe, other content is
    refused."""
    pattern: str = r".*\w\W+\w.*"
    """Regular expression of a whole claim; the default matches text of more than one word."""
    silent: Number = 0.0
    """Reward of a completion that states no fact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        files = self._know_documents(f"{where}.documents", where)
        object.__setattr__(self, "_claim", compiled(self.pattern, f"{where}.pattern"))
        texts = texts_of(files, f"{where}.documents") if files else ()
        object.__setattr__(self, "_known", frozenset(map(_plain, texts)))

    def try_out(self) -> None:
        """Raise a UserError if no documents are named."""
        if not self.given:
            raise UserError(f"rewards.{self.label}.documents: name the documents that claims are compared with")

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 1], or `silent`, [completions]."""
        return torch.tensor([self._worth(rollout) for rollout in rollouts])

    def _worth(self, rollout: Rollout) -> float:
        stated = self._claims(rollout.text) if rollout.finished else set()
        known: frozenset[str] = vars(self)["_known"]
        return len(stated & known) / len(stated) if stated else self.silent

    def _claims(self, text: str) -> set[str]:
        claim: re.Pattern[str] = vars(self)["_claim"]
        before = before_answer(text)
        pieces = map(_plain, _ENDS.split(text if before is None else before))
        return {piece for piece in pieces if claim.fullmatch(piece)}


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .,;:!?\"'").casefold()
