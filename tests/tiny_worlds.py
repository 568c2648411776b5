"""What parts are given beside their settings, for tests of one part alone."""

from dataclasses import replace
from functools import cache

import torch
from tiny_models import tiny_policy, word_tokenizer

from models.learner.fused_log_probs import AS_IT_IS
from models.loop.learner import Learner
from models.loop.readings import Readings
from models.loop.tally import Tally
from models.loop.truncation import WRONG
from models.loop.world import World
from models.text.encoding import Codec

CODEC = Codec(word_tokenizer())


def make_world(
    engine=None, scorer=None, seed=7, learner=None, token_budget=16384, truncated=WRONG, codec=CODEC, readings=None
):
    """A whole world around what a test brings; a policy alone, which no test may change, where it brings no learner."""
    learner = learner or replace(_learner(), memory=[], companions={}, tally=Tally())
    return World(codec, engine, scorer, seed, learner, readings or Readings(learner, token_budget), truncated)


@cache
def _learner():
    with torch.random.fork_rng(devices=[]):
        policy = tiny_policy().requires_grad_(False)
    return Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, AS_IT_IS)
