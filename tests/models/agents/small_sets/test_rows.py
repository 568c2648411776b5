"""Small data sets: the committed rows are those that their programs write, and demonstrations are real episodes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from models.agents.small_sets.layers import SET
from models.agents.small_sets.rows import SmallTask, played, rows_of, small_set, small_sets
from models.base.errors import UserError
from models.datasets.schema import TURNS
from models.datasets.splits import split_by_hash
from models.recipes.find import FOLDER

COMMITTED = {
    "layers": "agents/layers",
    "graph_prompts": "agents/graph_prompts",
    "layer_bits": "agents/layer_bits",
    "larger_layers": "agents/larger_layers",
    "rank_attack": "agents/rank_attack",
    "experiments": "agents/experiments",
    "synthesis": "agents/synthesis",
    "task_sequence": "agents/task_sequence",
}
"""Folder of each set, in the folder of the recipes."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMITTED)
def test_the_first_committed_rows_of_each_split_are_those_of_the_program(name: str) -> None:
    small = small_set(name)
    fewer = {split: min(count, 20 if split == "train" else 3) for split, count in small.problems.items()}
    made = rows_of(replace(small, problems=fewer, demonstrations=min(small.demonstrations, 8)))
    for kind, rows in made.items():
        file = FOLDER / COMMITTED[name] / f"{kind}.jsonl"
        committed = [json.loads(line) for line in file.read_text().splitlines()] if rows else []
        for split in small.problems:
            own = [row for row in rows if row["split"] == split]
            assert [row for row in committed if row["split"] == split][: len(own)] == own
        count = small.demonstrations if kind == "demonstrations" else sum(small.problems.values())
        assert len(committed) == count


@pytest.mark.parametrize("name", COMMITTED)
def test_the_committed_documents_are_those_of_the_program(name: str) -> None:
    file, texts = small_set(name).documents()
    if file:
        lines = (FOLDER / "documents" / file).read_text().splitlines()
        assert [json.loads(line)["text"] for line in lines] == list(texts)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_first_committed_problems_are_distinct_and_in_the_split_of_their_hash(name: str) -> None:
    rows = [json.loads(line) for line in (FOLDER / COMMITTED[name] / "problems.jsonl").read_text().splitlines()]
    assert len({row["prompt"] for row in rows}) == len(rows)
    assert all(split_by_hash(row["prompt"]) == row["split"] for row in rows)


def test_a_demonstration_is_an_episode_with_the_answers_of_the_environment() -> None:
    task = SmallTask("teacher", '{"seed": 17, "blocks": 2}')
    assert TURNS.join(played(SET.environment(), task, ["keep", "drop"])) == TURNS.join(["keep", "2", "drop"])


def test_an_unknown_set_is_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"chairs: no such small set; use one of .*layers"):
        small_set("chairs")


def test_every_small_set_has_a_folder() -> None:
    assert set(small_sets()) == set(COMMITTED)
