"""The resources that a part receives in addition to its settings, for tests of one part alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from models.engines.engine import Engine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.judge import GenerativeJudge
from models.method.learner import Learner
from models.method.readings import Readings
from models.method.resources import RunResources
from models.method.tally import Tally
from models.method.truncation import WRONG, TruncationSettings
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy, word_tokenizer

CODEC = Codec(word_tokenizer())


def make_resources(
    engine: Engine | None = None,
    scorer: Callable[[Sequences], Tensor] | None = None,
    seed: int = 7,
    learner: Learner | None = None,
    token_budget: int = 16384,
    truncated: TruncationSettings = WRONG,
    codec: Codec = CODEC,
    readings: Readings | None = None,
    start: Path | None = None,
    judge: GenerativeJudge | None = None,
) -> RunResources:
    """Make complete resources from those that a test passes. Tests must not change the default policy."""
    learner = learner or replace(_learner(), memory=[], companions={}, tally=Tally())
    return RunResources(
        codec, engine, scorer, seed, learner, readings or Readings(learner, token_budget), truncated, start, judge
    )


@cache
def _learner() -> Learner:
    with torch.random.fork_rng(devices=[]):
        policy = tiny_policy().requires_grad_(False)
    return Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
