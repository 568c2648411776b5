"""The policy's judgement of its own turns, as a number in [0, 1].

    likelihood   exp of the mean log-prob of the turn's tokens: how sure the policy was when it wrote it
    verdict      p(yes) / (p(yes) + p(no)) after a question that follows the turn (self-critique, as in Agent Q,
                 paper 82, in which the model ranks its candidate actions)

A policy that was not trained on such questions answers them at chance level; the likelihood is always available.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.agents.play.tree import Node
from models.engines.engine import Engine
from models.method.problem import Problem
from models.text.encoding import Codec

Kind = Literal["none", "likelihood", "verdict"]
"""How a policy judges its turns."""


def by_likelihood(problems: Sequence[Problem], nodes: Sequence[Node]) -> list[float]:
    """Return the geometric mean of the token probabilities of each turn, [nodes], in [0, 1]."""
    likelihoods = []
    for node in nodes:
        assert node.log_probs is not None, "a search draws with log-probs"
        likelihoods.append(math.exp(float(node.log_probs.double().mean())))
    return likelihoods


@dataclass(frozen=True)
class VerdictCritique:
    """Critique by a yes-or-no question to the policy about each turn."""

    engine: Engine
    codec: Codec
    question: str
    """Text that follows the turn."""
    yes: str = " yes"
    no: str = " no"

    def __call__(self, problems: Sequence[Problem], nodes: Sequence[Node]) -> list[float]:
        """Return the policy's probability that each turn is right, [nodes]."""
        question_ids, yes, no = self.codec.inside([f"\n{self.question}", self.yes, self.no])
        prompts = []
        for problem, node in zip(problems, nodes, strict=True):
            history = node.parent.history if node.parent is not None else ()
            prompts += [(*problem.tokens, *history, *node.tokens, *question_ids)] * 2
        scores = [math.fsum(row) for row in self.engine.score(prompts, [yes, no] * len(nodes))]
        return [1.0 / (1.0 + math.exp(min(700.0, no - yes))) for yes, no in zip(scores[::2], scores[1::2], strict=True)]
