"""Answers of two versions to the same training prompts, sampled for people to compare.

Training prompts are used because a reward model is to learn from the answers: pairs on held-out prompts would have to
be removed from its training again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from models.base.errors import UserError
from models.datasets.row_diff import Place
from models.engines.engine import Sampling
from models.evaluation.evaluate import evaluate
from models.evaluation.records import PromptRecord
from models.method.problem import Problem
from models.policies.folder import check_model_folder
from models.policies.use import read_use
from tasks.compute.measuring import EvaluationSections, measuring_engine
from tasks.compute.run_tokens import RunTokens
from tasks.compute.shared_engine import engine_place
from tasks.data.data_difference import PreparedFiles, prepared_hashes
from tasks.pages.completion_traces import drawn
from tasks.people.blind_pairs import AnswerPair, answer_pairs
from tasks.registered.policy import PolicyFiles, registered_policy
from tasks.registered.recorded_recipe import read_recorded_recipe
from tasks.tracking.recorded import of_version
from tasks.tracking.registry import VersionInfo

TRAINING: Place = ("problems", "train")
SAMPLES = 4
"""Completions of each prompt; the first two that differ are compared."""
_CHOSEN_FROM = 64
"""Number of prompts, evenly spaced in the data, that are read for each wanted pair, before some of them are drawn."""


def sampled_pairs(candidate: VersionInfo, champion: VersionInfo, most: int, root: Path) -> list[AnswerPair]:
    """Sample from both versions with the candidate's recipe, and pair answers that differ.

    Args:
        candidate: determines the prompts, by the data that it learned from.
        champion: the version that it is compared with.
        most: maximum number of pairs.
        root: the repository, whose DVC finds the prompts.

    Raises:
        UserError: recipe, prompts or weights are not available, or the two answer everything alike.
    """
    candidate_record = of_version(candidate)
    recipe, _ = read_recorded_recipe(candidate_record)
    sections = EvaluationSections(recipe)
    policies = [registered_policy(version) for version in (champion, candidate)]
    with tempfile.TemporaryDirectory() as scratch:
        data = PreparedFiles(root, Path(scratch), prepared_hashes(candidate_record.data))
        if not data.has(TRAINING):
            raise UserError(
                f"the training prompts of {candidate_record.label} are neither in DVC's cache nor in the remote"
            )
        run = policies[-1].folder
        chosen_ids: set[str] = set()
        answers: list[list[PromptRecord]] = []
        for policy in policies:
            tokens = RunTokens.read(policy.folder, run, sections)
            problems = tokens.problems(Path(scratch), "train", sections, most * _CHOSEN_FROM)
            if not chosen_ids:
                problems.sort(key=lambda problem: drawn(f"{candidate.name}/{candidate.version}", problem.id))
                chosen_ids = {problem.id for problem in problems[: 2 * most]}
            selected = [problem for problem in problems if problem.id in chosen_ids]
            answers.append(_answers(policy, tokens, selected, sections))
        rows = data.rows(TRAINING, chosen_ids)
    by_id = {record.id: record for record in answers[0]}
    pairs = answer_pairs([(by_id[record.id], record) for record in answers[1]], rows, most)
    if not pairs:
        raise UserError(f"versions {candidate.version} and {champion.version} answer every prompt alike")
    return pairs


def _answers(
    policy: PolicyFiles, tokens: RunTokens, problems: Sequence[Problem], recipe: EvaluationSections
) -> list[PromptRecord]:
    check_model_folder(policy.folder)
    sampling = Sampling(
        max_tokens=recipe.longest_drawn, temperature=recipe.temperature, top_p=recipe.top_p, samples=SAMPLES
    )
    after, seed = read_use(policy.folder).after_prompt, recipe.evaluation_seed
    with engine_place(), measuring_engine(policy, recipe, tokens.own) as engine:
        return evaluate(
            engine,
            tokens.own,
            problems,
            sampling,
            seed,
            None,
            lambda stage: None,
            after,
            recipe.episodes,
            policy.folder,
            recipe.verify,
        )
