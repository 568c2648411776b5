"""Weights that a prompt states for the sides of an idea: values by hand, and texts that are not weights."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import pytest
import torch

from models.answers.constraints import Constraints, met
from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.word_share import WordShare
from models.parts.rewards.shaping.prompt_weights import PromptWeights
from models.recipes.load import load_recipe
from models.task_sets.ideas import CHEAP, PARTS, SIDES, STRONG, IdeasSettings
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
ASKED = Problem("p", "known prune tune ; idea ?")


def test_listed_words_count_once_among_all() -> None:
    share = WordShare(words=("prune", "Distil"))
    texts = ["prune , distil", "prune , PRUNE , crop", "crop", "", "prune", ", ; ."]
    made = [rollout(text, ASKED) for text in texts]
    assert share(RESOURCES, made).tolist() == pytest.approx([1.0, 1 / 3, 0.0, 0.0, 1.0, 0.0])
    assert WordShare(words=("prune",), least=2)(RESOURCES, made[4:5]).tolist() == [0.5]


def test_new_words_are_those_that_the_prompt_does_not_hold() -> None:
    made = [rollout(text, ASKED) for text in ("prune , search", "search , search", "idea", "Search . survey")]
    assert WordShare(counts="new")(RESOURCES, made).tolist() == [0.5, 0.5, 0.0, 1.0]


def test_a_completion_that_was_cut_has_no_words() -> None:
    assert WordShare(words=("prune",))(RESOURCES, [rollout("prune", ASKED, finished=False)]).tolist() == [0.0]


OF = {"novelty": r"novelty (\S+)", "feasibility": r"feasibility (\S+)"}
VALUES = {"novelty": torch.tensor([1.0, 0.25]), "feasibility": torch.tensor([0.0, 1.0])}


def weighed(prompt: str, missing: float = 0.0) -> list[float]:
    made = [rollout("", Problem(prompt, prompt)) for _ in range(2)]
    return [float(value) for value in PromptWeights(of=OF, missing=missing).blend(RESOURCES, made, VALUES)]


def test_each_prompt_weighs_as_it_says() -> None:
    assert weighed("novelty 2 feasibility 0") == [1.0, 0.25]
    assert weighed("novelty 1 feasibility 3") == pytest.approx([0.25, (0.25 + 3) / 4])
    # only the ratio of the weights counts, not their size
    assert weighed("novelty 0.5 feasibility 1.5") == pytest.approx(weighed("novelty 1 feasibility 3"))


@pytest.mark.parametrize("said", ["", "none", "-1", "nan", "inf", "1e999", "9" * 100_000, "\x00"])
def test_what_is_no_weight_counts_as_missing(said: str) -> None:
    assert weighed(f"novelty {said} feasibility 1") == [0.0, 1.0]
    assert weighed(f"novelty {said} feasibility 1", missing=1.0) == pytest.approx([0.5, 0.625])


def test_without_any_weight_nothing_is_worth_anything() -> None:
    assert weighed("an idea ?") == [0.0, 0.0]


def test_prompts_of_a_round_keep_their_own_weights() -> None:
    made = [rollout("", Problem(prompt, prompt)) for prompt in ("novelty 1 feasibility 0", "novelty 0 feasibility 1")]
    assert PromptWeights(of=OF).blend(RESOURCES, made, VALUES).tolist() == [1.0, 1.0]
    assert PromptWeights(of=OF).blend(RESOURCES, [], {name: torch.zeros(0) for name in OF}).tolist() == []


def test_a_pattern_that_finds_no_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"rewards\.prompt_weights\.of\.a: .* is not a regular expression"):
        PromptWeights(of={"a": "("})
    with pytest.raises(UserError, match="has no group"):
        PromptWeights(of={"a": "novelty"})


def test_any_text_has_a_share() -> None:
    for reward in (WordShare(words=("a",)), WordShare(counts="new")):
        values = reward(RESOURCES, malformed(ASKED))
        assert torch.isfinite(values).all() and bool(((values >= 0) & (values <= 1)).all())


def test_the_recipe_measures_the_sides_that_its_data_are_about() -> None:
    recipe = load_recipe("dynamic_control")
    own = {reward.label: reward for reward in recipe.rewards}
    feasible, effective, weights = own["feasibility"], own["effectiveness"], own["prompt_weights"]
    assert isinstance(feasible, WordShare) and isinstance(effective, WordShare) and isinstance(weights, PromptWeights)
    assert (feasible.words, effective.words) == (CHEAP, STRONG)
    settings = checked(
        IdeasSettings, read_section(Path(__file__).resolve().parents[4] / "params.yaml", "ideas"), "params.yaml"
    )
    random = Random(0)
    for _ in range(50):
        task = settings.draw(random)
        said = weights._weights(task.prompt)
        assert SIDES[task.level - 1] == tuple(OF | {"effectiveness": ""})[said.index(max(said))]
        rules, known = Constraints.model_validate_json(task.answer), task.prompt.split(" ; ")[1].split()[1:]
        served = [part for part in PARTS if (part not in known, part in CHEAP, part in STRONG)[task.level - 1]]
        assert all(met(" , ".join(served[:3]), rules)) and not all(met(served[0], rules))
        assert not all(met(f"{served[0]} , {next(part for part in PARTS if part not in served)}", rules))
