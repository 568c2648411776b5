"""Rollouts that begin in the middle of an answer: their cuts, guided prefixes, and prefixes without loss."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.problem import KnownAnswer
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.parts.objective.grpo import Grpo
from models.parts.rollouts.prefix import GuidedPrefix, PrefixSampling
from models.parts.rollouts.sample import Sample
from tests.support.device_here import DEVICE, placed
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents, each_token, plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

BETTER, WORSE = "4 + 7 = 11 #### 11", "1 #### 2"
SETTINGS: dict[str, Any] = {"prompts": 6, "group_size": 3, "max_tokens": 8}


def known() -> tuple[KnownAnswer, KnownAnswer]:
    ids = CODEC.completions([BETTER, WORSE])
    return (KnownAnswer("chosen", tuple(ids[0]), BETTER), KnownAnswer("rejected", tuple(ids[1]), WORSE))


ASKED = [replace(problem, known=known()) for problem in PROBLEMS]


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> RunResources:
    start = save_start(tmp_path_factory.mktemp("start") / "policy")
    return make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END))


def test_without_a_prefix_it_is_plain_sampling(resources: RunResources) -> None:
    plain = Sample(**SETTINGS)(resources, ASKED, 3)
    assert contents(PrefixSampling(share=0.0, **SETTINGS)(resources, ASKED, 3)) == contents(plain)


def test_the_same_seed_and_round_give_the_same_cuts_and_another_round_gives_others(resources: RunResources) -> None:
    source = PrefixSampling(share=1.0, **SETTINGS)
    first, again = (contents(source(resources, ASKED, 3)) for _ in range(2))
    assert first == again
    cuts = {tuple(map(len, source._prefixes(ASKED, seed))) for seed in range(4)}
    assert len(cuts) == 4


def test_every_prefix_begins_the_better_answer_and_every_cut_occurs_equally_often() -> None:
    better = known()[0].completion
    source = PrefixSampling(share=1.0, prompts=6, group_size=3, max_tokens=20)
    drawn = [prefix for seed in range(300) for prefix in source._prefixes(ASKED, seed)]
    assert all(prefix == better[: len(prefix)] for prefix in drawn)
    counts = torch.bincount(torch.tensor([len(prefix) for prefix in drawn]), minlength=len(better))
    assert len(counts) == len(better)  # a prefix never contains the end token
    expected = len(drawn) / len(better)
    assert ((counts - expected).abs() < 5 * expected**0.5).all()


def test_the_share_of_groups_with_a_prefix_is_the_one_that_is_set() -> None:
    source = PrefixSampling(share=0.25, prompts=6, group_size=3, max_tokens=20)
    begun = [bool(prefix) for seed in range(300) for prefix in source._prefixes(ASKED, seed)]
    reached = 0.25 * (1 - 1 / len(known()[0].completion))  # a cut at zero leaves no prefix
    assert sum(begun) / len(begun) == pytest.approx(reached, abs=0.04)


def test_rewards_see_the_whole_text_and_prefix_and_continuation_stay_within_the_longest_completion(
    resources: RunResources,
) -> None:
    source = PrefixSampling(share=1.0, **SETTINGS)
    prefixes = source._prefixes(ASKED, 7 * 1_000_003 + 3)
    assert len({len(prefix) for prefix in prefixes}) > 1
    for rollout in source(resources, ASKED, 3):
        prefix, asked = prefixes[rollout.group], ASKED[rollout.group]
        assert rollout.problem.tokens == (*asked.tokens, *prefix)
        assert rollout.text == CODEC.text([[*prefix, *rollout.completion]])[0]
        assert 1 <= len(rollout.completion) <= 8 - len(prefix)
        assert rollout.behaviour_log_probs is not None
        assert len(rollout.completion) == len(rollout.behaviour_log_probs)
        assert rollout.finished == (rollout.completion[-1] == END)
        assert rollout.source.origin == ("guide" if prefix else "policy") and rollout.source.begun == len(prefix)


def test_what_the_engine_says_of_a_continuation_is_its_log_prob_after_prompt_and_prefix(
    resources: RunResources,
) -> None:
    rollouts = PrefixSampling(share=1.0, **SETTINGS)(resources, ASKED, 3)
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    exact = plain_log_probs(tiny_policy(torch.float32, spread=3.0), sequences)
    for rollout, row in zip(rollouts, exact, strict=True):
        torch.testing.assert_close(rollout.behaviour_log_probs, row.detach().cpu(), rtol=1e-4, atol=1e-4)


def gradient(rollouts: Sequence[Rollout], advantage: Tensor) -> dict[str, Tensor]:
    """Return the gradient, measured by one plain gradient step of size one."""
    policy = tiny_policy()
    before = copy.deepcopy(policy.state_dict())
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
    step = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
    settings = ScheduleSettings(rounds=1, normalisation="constant", optimiser=step)
    chosen = Scored(rollouts, torch.zeros(len(rollouts)), {}, {})
    fit_round(learner, Grpo(kl=0.0), chosen, each_token(advantage, chosen), settings, 8)
    return {name: before[name] - value for name, value in policy.state_dict().items()}


def test_the_prefix_carries_no_loss(resources: RunResources) -> None:
    """The gradient is that of the continuations' log-probs, and that of whole answers with an untrained prefix."""
    rollouts = [
        replace(r, behaviour_log_probs=None) for r in PrefixSampling(share=1.0, **SETTINGS)(resources, ASKED, 3)
    ]
    advantage = torch.linspace(-1.0, 1.0, len(rollouts), dtype=torch.float64)
    gradients = gradient(rollouts, advantage)

    policy = tiny_policy()
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    sums = torch.stack([row.sum() for row in plain_log_probs(policy, sequences)])
    (-(placed(advantage) * sums).sum() / (8 * len(rollouts))).backward()
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-6, atol=1e-8)

    whole = []
    for rollout in rollouts:
        prompt = ASKED[rollout.group].tokens
        prefix = rollout.problem.tokens[len(prompt) :]
        trained = (False,) * len(prefix) + (True,) * len(rollout.completion)
        problem = ASKED[rollout.group]
        whole.append(replace(rollout, problem=problem, completion=(*prefix, *rollout.completion), trained=trained))
    for name, value in gradient(whole, advantage).items():
        torch.testing.assert_close(value, gradients[name], rtol=1e-6, atol=1e-8)


@pytest.fixture(scope="module")
def guided(resources: RunResources) -> RunResources:
    """Make resources whose reference differs from the policy that the engine runs."""
    policy, reference = tiny_policy(torch.float32, spread=3.0), tiny_policy(torch.float32, seed=5, spread=3.0)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION)
    return replace(resources, learner=learner)


def test_without_a_guide_it_is_plain_sampling(guided: RunResources) -> None:
    plain = Sample(**SETTINGS)(guided, PROBLEMS, 3)
    assert contents(GuidedPrefix(share=0.0, **SETTINGS)(guided, PROBLEMS, 3)) == contents(plain)


def test_the_same_seed_and_round_give_the_same_guidance(guided: RunResources) -> None:
    source = GuidedPrefix(share=1.0, **SETTINGS)
    first, again, next_round = (contents(source(guided, PROBLEMS, number)) for number in (3, 3, 4))
    assert first == again != next_round


def first_tokens(model: nn.Module) -> Tensor:
    """Return the probabilities of an answer's first token, without the end token, at the first prompt, [vocabulary]."""
    with torch.no_grad():
        chances = model(torch.tensor([PROBLEMS[0].tokens], device=DEVICE)).logits[0, -1].double().softmax(-1).cpu()
    chances[END] = 0.0
    whole: Tensor = chances / chances.sum()
    return whole


def test_the_prefixes_are_drawn_from_the_reference(guided: RunResources) -> None:
    """An answer of two tokens is cut before or after its first token with equal chance, whatever the token is."""
    source = GuidedPrefix(share=1.0, prompts=400, group_size=1, max_tokens=2)
    drawn = [prefix for seed in range(3) for prefix in source._prefixes(guided, [PROBLEMS[0]] * 400, seed) if prefix]
    counts = torch.bincount(torch.tensor([first for (first,) in drawn]), minlength=24).double()

    def far(model: nn.Module) -> float:
        expected = len(drawn) * first_tokens(model)
        return float(((counts - expected).abs() / (expected.sqrt() + 1)).max())

    assert guided.learner.reference is not None
    assert len(drawn) > 300 and far(guided.learner.reference) < 5 < far(guided.learner.policy)


def test_what_follows_the_guide_is_drawn_from_the_policy(guided: RunResources) -> None:
    rollouts = GuidedPrefix(share=1.0, **SETTINGS)(guided, PROBLEMS, 0)
    assert any(rollout.source.origin == "guide" for rollout in rollouts)
    sequences = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    for rollout, row in zip(rollouts, plain_log_probs(guided.learner.policy, sequences), strict=True):
        torch.testing.assert_close(rollout.behaviour_log_probs, row.detach().cpu(), rtol=1e-4, atol=1e-4)


def test_without_a_reference_nobody_can_guide(guided: RunResources) -> None:
    alone = replace(guided, learner=replace(guided.learner, reference=None))
    with pytest.raises(UserError, match="reference"):
        GuidedPrefix(share=1.0, **SETTINGS)(alone, PROBLEMS, 0)
