"""Token rewards from textual feedback: the phrases that it praises or criticises (Text2Grad, paper 3).

    r_t = 1 if token t is in a praised phrase, -1 if it is in a criticised one, 0 elsewhere

The feedback names phrases of the answer, which are mapped to tokens. With a critic that estimates the value of each
token (advantage gae) the policy gradient acts on the faulty part. A token that overlaps a phrase belongs to it; if it
overlaps two, it belongs to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark
from models.method.registry import default_part, part, slot_type
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.text.token_places import token_places

if TYPE_CHECKING:
    Chosen = Feedback
else:
    Chosen = slot_type("feedback")


@part("span_feedback")
class SpanFeedback(TokenReward):
    """Signs of the phrases in the feedback, token by token; for a single turn."""

    one_sequence = True
    feedback: Chosen = field(default_factory=lambda: default_part("feedback")())
    """Source of the feedback on a completion."""

    @property
    def needs_answers(self) -> bool:
        """Whether the feedback needs answers."""
        return self.feedback.needs_answers

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return 1, -1 or 0 at each token, [completions] tensors of [tokens of it]."""
        remarks = self.feedback([Attempt.of(each) for each in rollouts])
        places = token_places(resources.codec, [each.completion for each in rollouts], [each.text for each in rollouts])
        return [signs(remark, row) for remark, row in zip(remarks, places, strict=True)]


def signs(remark: Remark, places: Sequence[range]) -> Tensor:
    """Return the sign of each token in a remark, [tokens]: 1, -1 or 0.

    `places` are the character ranges of the tokens, [tokens].
    """
    row = torch.zeros(len(places))
    spans = sorted(remark.spans, key=lambda span: span.start)
    at = 0
    for token, place in enumerate(places):
        while at < len(spans) and spans[at].stop <= place.start:
            at += 1
        if at < len(spans) and len(place) and spans[at].start < place.stop:
            row[token] = spans[at].sign
    return row
