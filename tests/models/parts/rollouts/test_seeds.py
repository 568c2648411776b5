"""Seeds of a round: each decision has a seed that differs from the sampling's, and no two rounds share a seed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, cast

import pytest
import torch

from models.base.seeds import choice_seed, round_seed, second_sampling_seed
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, TokenSampling, requests_of
from models.engines.random_points import TOKENS, points_of
from models.learner.distribution import MODEL_DISTRIBUTION
from models.method.learner import Learner
from models.method.problem import KnownAnswer, Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts import prefix
from models.parts.rollouts.beside_data import BesideData
from models.parts.rollouts.prefix import GuidedPrefix, PrefixSampling
from models.parts.rollouts.replay import Replay
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import make_resources

KNOWN = tuple(KnownAnswer("demonstration", (token, token, token, token, 1), "") for token in (5, 6, 7))
ASKED = [replace(problem, known=KNOWN) for problem in PROBLEMS]
LEARNER = Learner(torch.nn.Linear(1, 1), cast(Any, None), torch.nn.Linear(1, 1), None, None, MODEL_DISTRIBUTION)


class Noting:
    """An engine that records the seeds of its completions and returns token 5 and the end token."""

    dtype = torch.float32
    generate = Engine.generate

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        self.seeds += [ask.seed for ask in requests]
        return [Generated((5, 1), torch.tensor([-0.5, -0.25]), True) for _ in requests]


@pytest.mark.parametrize(
    "source",
    [
        PrefixSampling(share=0.5, group_size=2, max_tokens=8),
        GuidedPrefix(share=0.0, group_size=2, max_tokens=8),
        BesideData(group_size=2, known=1),
        Replay(group_size=2, replayed=2),
    ],
    ids=lambda source: source.name,
)
def test_what_is_decided_beside_a_sampling_is_drawn_by_another_seed(
    source: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = []

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            decided.append(seed)
            return super().manual_seed(seed)

    engine = Noting()
    here = make_resources(cast(Any, engine), learner=replace(LEARNER, memory=[]))
    monkeypatch.setattr(torch, "Generator", Generator)
    for number in range(4):
        source(here, ASKED, number)
    assert len(engine.seeds) >= 4 * len(ASKED) and len(decided) == 4
    assert len({*engine.seeds, *decided}) == len(engine.seeds) + 4


def test_where_a_prefix_ends_hangs_in_no_way_together_with_the_points_that_the_continuation_is_drawn_by() -> None:
    cuts, points = [], []
    for number in range(400):
        seed = round_seed(7, number)
        cuts.append(len(PrefixSampling(share=1.0, max_tokens=8)._prefixes(ASKED[:1], seed)[0]))
        points.append(points_of(requests_of([ASKED[0].tokens], Sampling(max_tokens=3), seed), 3, TOKENS)[0])
    table = torch.cat([torch.tensor(cuts, dtype=torch.float64)[None], torch.stack(points).T])
    assert float(torch.corrcoef(table)[0, 1:].abs().max()) < 4 / 400**0.5


def test_the_guide_is_drawn_by_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    guides = []

    def guide(
        resources: RunResources, problems: Sequence[Problem], sampling: Sampling, share: float, seed: int, origin: str
    ) -> list[Rollout]:
        guides.append(seed)
        return [Rollout(problem, number, (5, 6, 1), None, "", True) for number, problem in enumerate(problems)]

    monkeypatch.setattr(prefix, "draw_from_mixture", guide)
    engine = Noting()
    here = make_resources(cast(Any, engine), learner=LEARNER)
    for number in range(3):
        GuidedPrefix(share=1.0, group_size=2, max_tokens=8)(here, ASKED, number)
    continued = {
        ask.seed for seed in guides for ask in requests_of([problem.tokens for problem in ASKED], Sampling(), seed)
    }
    assert len(set(guides)) == 3 and len(set(engine.seeds)) == 3 * 2 * len(ASKED)
    assert not continued & set(engine.seeds)


def test_no_two_rounds_of_a_run_share_a_seed_for_anything() -> None:
    seeds = [round_seed(seed, number) for seed, number in product((0, 1, 7), range(2000))]
    every = [*seeds, *map(choice_seed, seeds), *map(second_sampling_seed, seeds)]
    assert len(set(every)) == len(every)
