"""Results of a search engine for an expanded query: relevance and coverage by hand, rules, and malformed texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.search_results import SearchResults, _wants
from models.task_sets.drawing import make_rows
from models.task_sets.expansions import ExpansionsSettings
from tests.support.malformed_texts import malformed, rollout

ROOT = Path(__file__).resolve().parents[5]
RESOURCES = cast(RunResources, None)
GOODS = ["norda red umbrella", "norda blue boots", "velm red umbrella", "velm grey pan", "norda grey pan"]
RAIN = Problem("p", "norda rain", json.dumps({"wants": ["norda umbrella", "norda boots"]}))


@pytest.fixture
def search(tmp_path: Path) -> Any:
    file = tmp_path / "goods.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in GOODS))

    def made(**settings: Any) -> SearchResults:
        return SearchResults(documents=str(file), **{"results": 2, **settings})

    return made


def test_relevance_and_coverage_by_hand(search: Any) -> None:
    part, (wants,) = search(), _wants([Attempt(RAIN, "", True)])
    said = {
        text: part._shares(Attempt(RAIN, text, True), wants) for text in ("umbrella boots", "umbrella", "pan", "sun")
    }
    assert said["umbrella boots"] == (1.0, 1.0)
    assert said["umbrella"] == (0.5, 0.5)  # norda's umbrella and velm's umbrella, but no boots
    assert said["pan"] == (0.0, 0.0)  # the results are both pans
    assert part(RESOURCES, [rollout("umbrella boots", RAIN)]).tolist() == [1.0]
    assert search(relevance=2.0, coverage=1.0)(RESOURCES, [rollout("umbrella boots", RAIN)]).tolist() == [3.0]


def test_results_that_nobody_wants_cost_relevance_alone(search: Any) -> None:
    (wants,) = _wants([Attempt(RAIN, "", True)])
    relevance, coverage = search(results=5)._shares(Attempt(RAIN, "umbrella boots", True), wants)
    assert coverage == 1.0 and relevance == 2 / 4  # of four results, norda's pan and velm's umbrella are not wanted


def test_a_query_that_finds_nothing_is_worth_nothing(search: Any) -> None:
    nowhere = Problem("q", "zz", RAIN.answer)
    assert search()(RESOURCES, [rollout("qq", nowhere)]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "finished"),
    [("", True), ("umbrella umbrella", True), ("Cheapest umbrella", True), ("a b c d", True), ("umbrella", False)],
)
def test_rules_are_kept_or_nothing_counts(search: Any, text: str, finished: bool) -> None:
    part = search(forbidden=("cheapest",), most_words=3, broken=-0.5)
    assert part(RESOURCES, [rollout(text, RAIN, finished=finished)]).tolist() == [-0.5]
    assert part.right([Attempt(RAIN, text, finished)]) == [False]


def test_any_text_has_a_worth(search: Any) -> None:
    values = search()(RESOURCES, malformed(RAIN))
    assert torch.isfinite(values).all() and bool(((values >= -1) & (values <= 1)).all())


def test_a_problem_that_says_no_wants_is_one_line(search: Any) -> None:
    for answer in ("", "7", '{"wants": []}', '{"wants": ["  "]}', '{"wants": 3}'):
        with pytest.raises(UserError, match="the answer is none of"):
            search()(RESOURCES, [rollout("umbrella", Problem(f"p{answer}", "norda", answer))])


def test_a_broken_row_of_the_data_costs_its_own_completions_alone(search: Any) -> None:
    broken = Problem("b", "norda", '{"wants": 3}')
    values = search()(RESOURCES, [rollout("umbrella boots", broken), rollout("umbrella boots", RAIN)])
    assert values[0].isnan() and values[1] == 1.0
    assert search().right([Attempt(broken, "umbrella boots", True), Attempt(RAIN, "umbrella boots", True)]) == [
        False, True,
    ]  # fmt: skip


def test_documents_are_named_and_known_by_their_content(search: Any) -> None:
    with pytest.raises(UserError, match=r"rewards\.search_results\.documents: name the documents"):
        SearchResults().try_out()
    assert len(search().sha256) == 64
    with pytest.raises(UserError, match="has other content than sha256 says"):
        search(sha256="0" * 64)


def test_the_demonstrations_that_are_sound_are_right_and_the_flawed_ones_are_not() -> None:
    settings = checked(ExpansionsSettings, read_section(ROOT / "params.yaml", "expansions"), "params.yaml")
    few = settings.model_copy(update={"problems": {"train": 60}, "demonstrations": {"train": 60}})
    rows = make_rows(few)
    answers = {row["prompt"]: str(row["answer"]) for row in rows["problems"]["train"]}
    part = SearchResults(
        documents=str(ROOT / "recipes" / "documents" / "expansions.jsonl"), forbidden=("cheapest", "free", "best"),
        most_words=6,
    )  # fmt: skip
    right: dict[str, list[bool]] = {}
    for row in rows["demonstrations"]["train"]:
        prompt = str(row["prompt"])
        attempt = Attempt(Problem(prompt, prompt, answers[prompt]), str(row["completion"]), True)
        right.setdefault(str(row["flaw"]), []).extend(part.right([attempt]))
    assert set(right) == {"none", "vague", "narrow", "forbidden"}
    assert all(right.pop("none")) and not any(any(some) for some in right.values())
