"""Choice of the candidate turn with the highest value under a model of step values.

After step-level Q (arXiv 2409.09345; paper 355):

    Q(h, a) = log pi_values(a | h) - log pi_reference(a | h)        turn = candidate of highest Q, first of equals

The log-ratio of a policy fitted to siblings of a search by step-level DPO (recipe step_q) equals Q, up to beta and a
term that depends on the history alone; neither changes which candidate is best. The agent that acts is not changed. The
setting `values` names the model; its reference is the agent, unless it was trained from another. The log-probs are
those of whole turns, at temperature 1. A candidate that was cut is taken only if all were. Candidates with the same
text are scored once; scores of the model of values are not calls of the policy and are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.base.bounds import Temperature
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, Engine, EngineSettings, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.method.recipe_paths import ContentPath
from models.method.registry import part
from models.policies.folder import check_model_folder
from models.text.end_ids import ends_of_folder


@part("best_of_steps")
class BestOfSteps(Strategy):
    """The turn of highest value among several."""

    source = SourcePaper(
        355, "Enhancing Decision-Making for LLM Agents via Step-Level Q-Value Models (arXiv 2409.09345)"
    )
    values: ContentPath = ""
    """Model folder of the policy whose log-ratio is the value of a step."""
    reference: ContentPath = ""
    """Model folder of the model that it was trained from; empty: the policy that is measured."""
    candidates: Annotated[int, Field(ge=1, le=64)] = 5
    """Candidates per turn. The paper uses five."""
    temperature: Temperature = 1.0
    """Temperature of the candidates if the turn would be greedy, because greedy candidates are all the same."""

    @property
    def most_calls(self) -> int:
        """One draft and, if the policy is the reference, one score per candidate."""
        return self.candidates * (1 if self.reference else 2)

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests].

        Raises:
            UserError: no model of values is named, or it has other tokens than the policy.
        """
        values = _open_model(self.values, "values", policy.vocabulary)
        sampling = drawing if drawing.temperature else replace(drawing, temperature=self.temperature)
        drafts = policy.draft(
            [request_of_call(request, call) for request in requests for call in range(self.candidates)], sampling
        )
        rows = [drafts[at : at + self.candidates] for at in range(0, len(drafts), self.candidates)]
        distinct_turns = [
            (tuple(request.prompt), ids)
            for request, row in zip(requests, rows, strict=True)
            for ids in dict.fromkeys(tuple(turn.tokens) for turn in row)
        ]
        prompts, turns = [prompt for prompt, _ in distinct_turns], [ids for _, ids in distinct_turns]
        if self.reference:
            reference = _sums(_open_model(self.reference, "reference", policy.vocabulary), prompts, turns)
        else:
            reference = policy.score(prompts, turns)
        scored = zip(distinct_turns, _sums(values, prompts, turns), reference, strict=True)
        worth = {key: mine - other for key, mine, other in scored}
        return [
            max(row, key=lambda turn: (turn.finished, worth[tuple(request.prompt), tuple(turn.tokens)]))
            for request, row in zip(requests, rows, strict=True)
        ]


def _sums(model: Engine, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
    return [sum(row) for row in model.score(prompts, turns)]


def _open_model(folder_name: str, setting: str, vocabulary: int) -> Engine:
    if not folder_name:
        raise UserError(f"strategy.{setting}: name the model folder of a policy that step_q has trained")
    folder = Path(folder_name).expanduser()
    check_model_folder(folder)
    return _open_folder(folder.absolute(), (folder / "config.json").stat().st_mtime_ns, vocabulary)


@lru_cache(maxsize=2)
def _open_folder(folder: Path, changed: int, vocabulary: int) -> Engine:
    """Open a frozen model and keep it open from wave to wave; `changed` is the time at which its folder was written."""
    engine = TransformersEngine(
        folder, EngineSettings(name="transformers", precision="float32"), end=ends_of_folder(folder)
    )
    if engine.vocabulary != vocabulary:
        raise UserError(f"strategy: {folder} has {engine.vocabulary} tokens, and the policy {vocabulary}")
    return engine
