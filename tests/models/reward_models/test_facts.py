"""Reward models that read facts: pairs and scores have the answer of the prompt's problem, and nothing else scores."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from models.base.errors import UserError
from models.datasets.schema import Kind, arrow_schema, file_name, write_rows
from models.learner.packing import Sequences
from models.method.problem import Problem
from models.parts.rewards.models.learned import LearnedReward
from models.reward_models.facts import FactScorer, FactSettings, answers_by_prompt, read_facts, write_facts
from models.reward_models.read_pairs import read_pairs
from tests.support.malformed_texts import rollout
from tests.support.tiny_resources import CODEC, make_resources

FACTS = FactSettings(template="{prompt} = {answer} ;")


def write_data(folder: Path, *preferred: str) -> None:
    """Write two problems, and a preference for each of some prompts."""
    common: dict[str, str | int] = {"id": "a", "prompt_id": "a", "level": 1, "flaw": "", "tests": "", "entry_point": ""}
    problems = [{"prompt": "1 + 2", "answer": "3"}, {"prompt": "3 + 4", "answer": "7"}]
    preferences = [{"prompt": prompt, "chosen": "#### 3", "rejected": "#### 4"} for prompt in preferred]
    rows: dict[Kind, list[dict[str, str]]] = {"problems": problems, "preferences": preferences}
    for kind, some in rows.items():
        write_rows(folder / file_name(kind, "train"), [common | row for row in some], arrow_schema(kind))


def test_a_template_is_filled_once() -> None:
    assert FACTS.filled("1 + 2", "3") == "1 + 2 = 3 ;"
    assert FACTS.filled("{answer} x", "{prompt} y") == "{answer} x = {prompt} y ;"
    with pytest.raises(ValueError, match="should match pattern"):
        TypeAdapter(FactSettings).validate_python({"template": "{answer} of {prompt}"})


def test_pairs_are_read_with_the_answer_of_their_problem(tmp_path: Path) -> None:
    write_data(tmp_path, "3 + 4", "8 + 1", "1 + 2")
    assert answers_by_prompt(tmp_path, "train") == {"1 + 2": "3", "3 + 4": "7"}
    pairs, flaws = read_pairs(tmp_path, CODEC, "train", 64, facts=FACTS)
    assert [list(pair.prompt) for pair in pairs] == CODEC.prompts(["3 + 4 = 7 ;", "1 + 2 = 3 ;"])
    assert len(flaws) == 2
    assert len(read_pairs(tmp_path, CODEC, "train", 64)[0]) == 3


def test_pairs_without_any_facts_are_refused(tmp_path: Path) -> None:
    write_data(tmp_path, "8 + 1")
    with pytest.raises(
        UserError, match=r"reward_model\.facts: no preference of the train split has a problem with its"
    ):
        read_pairs(tmp_path, CODEC, "train", 64, facts=FACTS)


def test_the_reward_reads_the_facts_of_each_problem() -> None:
    seen: list[Sequences] = []

    def read(sequences: Sequences) -> Tensor:
        seen.append(sequences)
        return torch.tensor([0.0, 1.0])

    here = replace(make_resources(), score_with_reward_model=FactScorer(read, FACTS, CODEC))
    made = [rollout("3", Problem("p", "1 + 2", "3")), rollout("4", Problem("q", "3 + 4", "7"))]
    values = LearnedReward()(here, made)
    assert values.tolist() == pytest.approx([0.5, 1 / (1 + torch.e**-1)])
    assert [list(prompt) for prompt in seen[0].prompts] == CODEC.prompts(["1 + 2 = 3 ;", "3 + 4 = 7 ;"])
    plain = [CODEC.prompts([each.problem.prompt])[0] for each in made]
    scorer = FactScorer(read, FACTS, CODEC)
    scorer.of_problems([each.problem for each in made], plain)(Sequences(plain[::-1], [[5], [6]]))
    assert [list(prompt) for prompt in seen[1].prompts] == CODEC.prompts(["3 + 4 = 7 ;", "1 + 2 = 3 ;"])
    with pytest.raises(UserError, match="reads facts with each prompt"):
        scorer(seen[0])


def test_the_template_is_stored_with_the_model(tmp_path: Path) -> None:
    assert read_facts(tmp_path) is None
    write_facts(tmp_path, FACTS)
    assert read_facts(tmp_path) == FACTS
