"""A policy whose tokenizer has other ids for the same tokens: it gets the same problems, scores and lengths."""

import json
from pathlib import Path

import pytest
import torch

from models.datasets.schema import arrow_schema, file_name, write_rows
from models.evaluation.records import Completion, PromptRecord
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.training.read_problems import LengthSections, read_problems
from tasks.compute.run_tokens import RunTokens
from tests.support.tiny_models import tiny_policy, word_tokenizer

RECIPE = LengthSections(
    load_recipe(
        Path(__file__).resolve().parents[2] / "recipes" / "arithmetic.yaml",
        ["rollouts.max_tokens=8", "policy.size.positions=16"],
    )
)
PROMPTS = ["1 + 2 =", "16 + 5 =", "3 =", "7 + 7 + 7 + 7 + 7 + 7 ="]


@pytest.fixture
def folders(tmp_path):
    """Return a champion and the run's policy. The champion's tokenizer has the ids of the numbers in reverse order."""
    run, champion = tmp_path / "run", tmp_path / "champion"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), run)
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), champion)
    words = json.loads((champion / "tokenizer.json").read_text())
    numbers = {word: at for word, at in words["model"]["vocab"].items() if word.isdigit()}
    words["model"]["vocab"] |= dict(zip(numbers, reversed(numbers.values()), strict=True))
    (champion / "tokenizer.json").write_text(json.dumps(words))
    return champion, run


@pytest.fixture
def tokens(folders):
    return RunTokens.read(*folders, RECIPE)


@pytest.fixture
def data(tmp_path):
    rows = [{"id": text, "prompt": text, "answer": "3", "level": 1, "tests": "", "entry_point": ""} for text in PROMPTS]
    write_rows(tmp_path / file_name("problems", "gate"), rows, arrow_schema("problems"))
    return tmp_path


def test_all_policies_of_a_run_answer_the_same_problems_in_tokens_of_their_own(tokens, data, folders):
    chosen = tokens.problems(data, "gate", RECIPE, 2)
    of_the_run = read_problems(data, tokens.run, "gate", RECIPE, 2)
    assert [problem.id for problem in chosen] == [problem.id for problem in of_the_run] == ["1 + 2 =", "16 + 5 ="]
    assert [list(problem.tokens) for problem in chosen] == tokens.own.prompts(["1 + 2 =", "16 + 5 ="])
    assert chosen[0].tokens != of_the_run[0].tokens


def test_the_reward_model_reads_what_a_policy_wrote_and_not_the_ids_of_another_tokenizer(tokens, data):
    seen = []
    problems = tokens.problems(data, "gate", RECIPE, 2)
    texts = ["3 ; #### 3", "1 + 2"]
    whole, cut = tokens.own.completions(texts)
    score = tokens.scorer(lambda sequences: seen.append(sequences) or torch.zeros(2), problems)
    score(Sequences([problem.tokens for problem in problems], [whole, cut[:-1]]))
    assert [list(ids) for ids in seen[0].prompts] == tokens.run.prompts(["1 + 2 =", "16 + 5 ="])
    assert [list(ids) for ids in seen[0].completions] == [
        tokens.run.completions(texts)[0], tokens.run.completions(texts)[1][:-1],
    ]  # fmt: skip


def test_lengths_are_counted_in_the_runs_tokens(tokens):
    ended, cut = Completion("3 ; #### 3", 99, True, True, 0.5), Completion("1 + 2", 99, False, False)
    (record,) = tokens.counted([PromptRecord("p", 1, samples=(ended, cut), greedy=ended)])
    assert [completion.tokens for completion in (*record.samples, record.greedy)] == [5, 3, 5]
    assert record.greedy.reward_score == 0.5 and record.greedy.correct


def test_one_tokenizer_changes_nothing(folders):
    _, run = folders
    tokens = RunTokens.read(run, run, RECIPE)
    record = PromptRecord("p", 1, samples=(), greedy=Completion("3", 99, True, True))
    assert tokens.alike and tokens.counted([record]) == [record] and RunTokens.read(run, None, RECIPE).alike
    assert tokens.scorer(len, []) is len and tokens.scorer(None, []) is None


def test_an_end_of_its_own_is_read_as_that_of_the_run(folders, data):
    _, run = folders
    codec = RunTokens.read(run, run, RECIPE).run
    tokens = RunTokens(Codec(codec.tokenizer, also_end=(7,)), codec)
    problems, seen = tokens.problems(data, "gate", RECIPE, 1), []
    score = tokens.scorer(lambda sequences: seen.append(sequences) or torch.zeros(1), problems)
    score(Sequences([problems[0].tokens], [(4, 7)]))
    assert seen[0].completions == [[4, codec.end]]
