"""Claims about learning with a verifier and without (paper 133): RL on its verdicts against imitation of search traces.

All arms begin with the same warm-started policy and draw as many completions. With a verifier, `grpo` or `raft` draw
them from the policy that learns. Without, a tree search draws them from frozen policies, and the right traces are
imitated afterwards, in as many updates of as many completions (`weighted_likelihood` of one policy: supervised steps).
The search reads outcomes, so the traces are right; the policy that learns sees no verdict.

    tokens           longest completion, of the search, the training and the evaluation
    heterogeneity    number of warm-started policies whose searches wrote the traces, each of its own seed

A cell is one training; cells that two claims share are trained once a process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from benchmarks.claims.toy import Arm, ArmResult, Toy, held_out, train
from models.agents.play.step_search import StepSearch
from models.agents.play.tree import Growth, Valuing
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.training.read_problems import PromptSections, read_problems

Learner = Literal["grpo", "raft", "imitation"]

ROUNDS, PROMPTS, GROUP = 40, 32, 8
COMPLETIONS = ROUNDS * PROMPTS * GROUP
"""Completions of every arm."""
TOKENS = (12, 18, 24)
"""Longest completions, rising."""
WRITERS = (1, 4)
"""Numbers of policies that wrote the traces."""
RATE = 0.0003
ALIKE = (
    f"rollouts.prompts={PROMPTS}", f"rollouts.group_size={GROUP}", "rewards=[{name: exact_answer}]",
    "reference={name: none}", f"schedule.optimiser.learning_rate={RATE}",
)  # fmt: skip
GRPO = Arm("grpo", (*ALIKE, "objective.kl=0.0"))
RAFT = Arm("raft", ALIKE)
STILL = Arm("raft", (*ALIKE, "schedule.optimiser.learning_rate=0.0000001"))
"""The policy as it was before the training: its steps are too small to change an answer."""
METRIC = "sampled_accuracy"
STEPS = (";", "\n")
"""Texts that end a step of a trace."""


def with_verifier(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much more accurate RL with a verifier is than imitation of one policy's traces, at most tokens."""
    cells = {name: cell(toy, seed, name, TOKENS[-1], WRITERS[0]) for name in ("grpo", "raft", "imitation")}
    return cells["grpo"] - cells["imitation"], cells


def lead_by_tokens(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much the lead of the verifier grows from the fewest tokens to the most."""
    cells: dict[str, float] = {}
    leads = []
    for tokens in TOKENS:
        verified, imitated = (cell(toy, seed, name, tokens, WRITERS[0]) for name in ("grpo", "imitation"))
        cells |= {f"grpo, {tokens} tokens": verified, f"imitation, {tokens} tokens": imitated}
        leads.append(verified - imitated)
    return leads[-1] - leads[0], cells


def lead_by_writers(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how much the lead of the verifier grows if four policies wrote the traces instead of one."""
    alone, mixed = (cell(toy, seed, "imitation", TOKENS[-1], writers) for writers in WRITERS)
    return alone - mixed, {"imitation of one": alone, "imitation of four": mixed}


def cell(toy: Toy, seed: int, learner: Learner, tokens: int, writers: int) -> float:
    """Return the held-out accuracy of one cell; `writers` matters for imitation alone."""
    return _cell(toy, seed, learner, tokens, writers if learner == "imitation" else 0)


@lru_cache(maxsize=256)
def _cell(toy: Toy, seed: int, learner: Learner, tokens: int, writers: int) -> float:
    room = f"rollouts.max_tokens={tokens}"
    if learner == "imitation":
        trained = train(toy, Arm(STILL.recipe, (*STILL.overrides, room)), seed, 1)
        imitate(trained, traces(toy, trained, seed, tokens, writers), seed)
    else:
        arm = {"grpo": GRPO, "raft": RAFT}[learner]
        trained = train(toy, Arm(arm.recipe, (*arm.overrides, room)), seed, ROUNDS)
    return held_out(toy, trained, [METRIC])[METRIC]


def traces(toy: Toy, trained: ArmResult, seed: int, tokens: int, writers: int) -> Sequences:
    """Return the right traces of searches over the training problems, each writer with its share of the problems.

    Args:
        toy: data and warm starts.
        trained: recipe and tokenizer.
        seed: seed of the searches, and of the first writer; the others have the seeds that follow.
        tokens: longest trace.
        writers: number of warm-started policies.
    """
    codec = trained.codec
    problems = read_problems(toy.data, codec, "train", PromptSections(trained.recipe))
    prompts, written = [], []
    for writer in range(writers):
        search = StepSearch(
            engine=TransformersEngine(toy.start(seed + writer), EngineSettings(), end=codec.end),
            codec=codec,
            sampling=Sampling(max_tokens=tokens),
            growth=Growth(
                order="puct",
                candidates=4,
                nodes=max(1, COMPLETIONS // len(problems)),
                goals=0,
                exploration=1.0,
                valuing=Valuing(),
            ),
            marks=STEPS,
        )
        own = problems[writer::writers]
        for problem, tree in zip(own, search.grow(own, seed), strict=True):
            for node in tree.root.below():
                if node.over and node.solved:
                    prompts += [problem.tokens] * node.times
                    written += [node.history] * node.times
    return Sequences(prompts, written)


def imitate(trained: ArmResult, shown: Sequences, seed: int) -> None:
    """Train the policy on traces, in as many updates of as many completions as a training with a verifier."""
    optimiser = OptimiserSettings(learning_rate=RATE, warmup_steps=5)
    settings = SupervisedSettings(steps=ROUNDS, batch=PROMPTS * GROUP, optimiser=optimiser)
    fit_supervised(trained.learner.policy, shown, settings, seed=seed)
