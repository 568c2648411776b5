"""Measure a policy on held-out problems: one greedy and many sampled completions of each, verified and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from models.engine.engine import Engine, Generated, Sampling
from models.evaluation.records import Completion, PromptRecord
from models.learner.packing import Sequences
from models.loop.rollout import Problem
from models.rewards.exact_answer import is_right
from models.text.encoding import Codec

ScoreAll = Callable[[Sequences], Tensor]

STAGES = ("samples", "greedy", "scores")
"""What is done one after the other. The samples, most of the work, are one call: engines like all of it at once."""


def evaluate(
    engine: Engine,
    codec: Codec,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
    score: ScoreAll | None,
    begin: Callable[[str], None] = lambda stage: None,
    after_prompt: Sequence[int] = (),
) -> list[PromptRecord]:
    """What a policy answers to each problem, [problems].

    Args:
        engine: runs the policy.
        codec: the policy's tokenizer.
        problems: with encoded prompts; the same for every policy that is compared.
        sampling: of the sampled completions; `samples` of each problem. The greedy one has the same limit of tokens.
        seed: of the sampled completions.
        score: reward model's scores of prompts with their completions, [completions]; None leaves them NaN.
        begin: called with each of STAGES as it begins.
        after_prompt: ids that the policy wants between prompt and completion; the reward model does not see them.
    """
    prompts = [(*problem.tokens, *after_prompt) for problem in problems]
    begin("samples")
    sampled = engine.generate(prompts, replace(sampling, log_probs=False), seed)
    begin("greedy")
    likeliest = Sampling(max_tokens=sampling.max_tokens, temperature=0.0, log_probs=False)
    greedy = engine.generate(prompts, likeliest, seed)
    flat = [
        (problem, generated)
        for problem, first, rest in zip(problems, greedy, sampled, strict=True)
        for generated in [*first, *rest]
    ]
    begin("scores")
    completions = iter(_completions(codec, flat, score))
    return [
        PromptRecord(
            problem.id,
            problem.level,
            greedy=next(completions),
            samples=tuple(next(completions) for _ in range(sampling.samples)),
        )
        for problem in problems
    ]


def _completions(codec: Codec, flat: Sequence[tuple[Problem, Generated]], score: ScoreAll | None) -> list[Completion]:
    texts = codec.text([generated.tokens for _, generated in flat])
    sequences = Sequences([problem.tokens for problem, _ in flat], [generated.tokens for _, generated in flat])
    scores = score(sequences).tolist() if score else [float("nan")] * len(flat)
    return [
        Completion(
            text,
            len(generated.tokens),
            is_right(text, problem.answer, finished=generated.finished),
            generated.finished,
            value,
        )
        for (problem, generated), text, value in zip(flat, texts, scores, strict=True)
    ]
