"""An engine that samples from a policy with the recipe's evaluation settings: evaluations and reviews by people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from models.engine.engine import Engine, EngineSettings
from models.episodes.play import EpisodeSettings
from models.policy.build import PolicySettings
from models.policy.use import read_use
from models.text.encoding import Codec
from tasks.open_learner import ScorerSections
from tasks.prompts import LengthSections, longest_sequence
from tasks.registered_policy import PolicyFiles
from tasks.sections import of
from tasks.shared_engine import lent_engine


class EvaluationSections(LengthSections, ScorerSections):
    """What every evaluation depends on, beside rows, policy and reward model."""

    policy: PolicySettings
    engine: EngineSettings
    temperature: float = of("evaluation.temperature")
    top_p: float = of("evaluation.top_p")
    evaluation_seed: int = of("evaluation.seed")
    episodes: EpisodeSettings | None = of("rollouts.episodes")


@contextmanager
def measuring_engine(policy: PolicyFiles, recipe: EvaluationSections, codec: Codec) -> Iterator[Engine]:
    """An engine on a policy, wide enough for the recipe's longest prompt and completion.

    Args:
        policy: what is sampled from.
        recipe: says how.
        codec: the policy's own tokenizer.
    """
    use = read_use(policy.folder)
    longest = longest_sequence(recipe) + (0 if recipe.policy.base is None else len(use.after_prompt))
    with lent_engine(
        policy.folder,
        recipe.engine,
        longest=longest,
        end=codec.ends,
        trust_remote_code=recipe.policy.trust_remote_code,
    ) as engine:
        yield engine
