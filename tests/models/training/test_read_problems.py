"""Prompts that the source of a recipe reads: known answers, limits of length, and log-probs of the reference."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.datasets.schema import Kind, arrow_schema, file_name, write_rows
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.packing import Sequences
from models.method.learner import Learner
from models.parts.reference.frozen import Frozen
from models.parts.reference.reset import PreviousRound
from models.policies.build import LoraSettings, with_adapter
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.training.known_log_probs import with_reference
from models.training.read_problems import (
    PromptSections,
    longest_in_training,
    read_problems,
    read_prompts,
)
from tests.support.tiny_models import contents, tiny_policy, word_tokenizer

ROOT = Path(__file__).resolve().parents[3]
CODEC = Codec(word_tokenizer())


def problem(number: int, prompt: str, answer: str) -> Any:
    return {"id": f"p{number}", "prompt": prompt, "answer": answer, "level": 1, "tests": "", "entry_point": ""}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write three problems, three demonstrations for two of them, one flawed, and two preferences of one prompt."""
    problems = [problem(1, "1 + 2 =", "3"), problem(2, "4 + 5 =", "9"), problem(3, "7 =", "7")]
    shown = [("p1", "1 + 2 =", "3", "none"), ("p1", "1 + 2 =", "4", "slip"), ("p2", "4 + 5 =", "9 " * 30, "none")]
    demonstrations = [
        {"id": f"d{n}", "prompt_id": p, "prompt": text, "completion": done, "answer": "", "level": 1, "flaw": flaw}
        for n, (p, text, done, flaw) in enumerate(shown)
    ]
    preferences = [
        {"id": f"q{n}", "prompt_id": "p1", "prompt": "1 + 2 =", "level": 1, "flaw": "slip"}
        | {"chosen": "3", "rejected": worse}
        for n, worse in enumerate(("4", "5 6"))
    ]
    tables: dict[Kind, Any] = {"problems": problems, "demonstrations": demonstrations, "preferences": preferences}
    for kind, rows in tables.items():
        write_rows(tmp_path / file_name(kind, "train"), rows, arrow_schema(kind))
    return tmp_path


def recipe(*overrides: str) -> Any:
    given = ["rollouts.max_tokens=8", "policy.size.positions=64", *overrides]
    return PromptSections(load_recipe("dpo", given))


def test_demonstrations_of_one_prompt_are_one_problem_with_its_true_answer_and_sound_ones_have_no_flaw(
    data: Path,
) -> None:
    (problem,) = read_prompts(
        data, CODEC, recipe("rollouts.reads=demonstrations", "objective.name=weighted_likelihood")
    )
    assert (problem.id, problem.answer) == ("p1", "3")
    assert [(answer.text, answer.flaw, answer.origin) for answer in problem.known] == [
        ("3", "", "demonstration"), ("4", "slip", "demonstration"),
    ]  # fmt: skip


def test_an_answer_longer_than_a_completion_may_be_is_left_out(data: Path) -> None:
    problems = read_prompts(data, CODEC, recipe("rollouts.reads=demonstrations", "objective.name=weighted_likelihood"))
    assert [problem.id for problem in problems] == ["p1"]  # the demonstration of p2 has thirty words


def test_every_preference_is_a_prompt_of_its_own_and_the_flaw_is_the_worse_answers(data: Path) -> None:
    problems = read_prompts(data, CODEC, recipe())
    assert [problem.id for problem in problems] == ["q0", "q1"] and {problem.answer for problem in problems} == {"3"}
    chosen, rejected = problems[1].known
    assert (chosen.origin, chosen.flaw, rejected.origin, rejected.flaw) == ("chosen", "", "rejected", "slip")
    assert rejected.completion == tuple(CODEC.completions(["5 6"])[0]) and rejected.completion[-1] == CODEC.end


def test_data_without_such_rows_is_one_clear_line(data: Path) -> None:
    (data / "preferences_train.parquet").unlink()
    with pytest.raises(UserError, match="no training preferences, which rollouts reads"):
        read_prompts(data, CODEC, recipe())
    with pytest.raises(UserError, match=r"has an answer within rollouts\.max_tokens \(1\)"):
        read_prompts(
            data, CODEC,
            recipe("rollouts.reads=demonstrations", "objective.name=weighted_likelihood", "rollouts.max_tokens=1"),
        )  # fmt: skip


@pytest.mark.parametrize("adapter", [False, True], ids=["copy", "adapter off"])
def test_known_answers_carry_the_log_probs_of_a_reference_that_never_moves(
    data: Path, tmp_path: Path, adapter: bool
) -> None:
    policy: Any = tiny_policy(torch.float32)
    plain = copy.deepcopy(policy)
    off = None
    if adapter:
        policy = with_adapter(policy, LoraSettings(rank=2), seed=0)
        off = policy.disable_adapter
        torch.nn.init.normal_(next(p for name, p in policy.named_parameters() if "lora_B" in name))
    reference = None if adapter else plain
    learner = Learner(policy, torch.optim.SGD(plain.parameters()), reference, off, None, MODEL_DISTRIBUTION)
    problems = with_reference(
        read_prompts(data, CODEC, recipe()), learner, recipe().rollouts, Frozen(), 16384, tmp_path
    )
    for problem in problems:
        for known in problem.known:
            (expected,) = all_log_probs(plain, Sequences([problem.tokens], [known.completion]))
            torch.testing.assert_close(known.reference_log_probs, expected.float().cpu(), rtol=1e-4, atol=1e-5)


def test_a_reference_that_moves_is_read_again_every_round(data: Path, tmp_path: Path) -> None:
    moving = recipe("reference={name: previous_round}")
    policy = tiny_policy(torch.float32)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), policy, None, None, MODEL_DISTRIBUTION)
    problems = with_reference(
        read_prompts(data, CODEC, moving), learner, moving.rollouts, PreviousRound(), 16384, tmp_path
    )
    assert all(known.reference_log_probs is None for problem in problems for known in problem.known)


@pytest.mark.parametrize(
    ("overrides", "added"),
    [
        (["rollouts.name=hindsight", "rollouts.bad='; ; ;'", "rollouts.good='= = ='", "rollouts.max_tokens=2"], 7),
        (["rollouts={name: conditioned, reads: preferences, flawed_prompt: '; ; ; {prompt}', max_tokens: 2}"], 3),
        (["rollouts={name: explained, hint: '{prompt} #### {answer} ;', max_tokens: 2}"], 3),
    ],
    ids=["hindsight", "conditioned", "explained"],
)
def test_a_prompt_is_taken_only_if_the_policy_has_room_for_what_the_source_adds(
    data: Path, overrides: Any, added: int
) -> None:
    """Prompts have 4 tokens, completions 2: the longest prompts need 6 + `added` positions."""
    overrides = ["select=[{name: all}]", "objective={name: weighted_likelihood}", *overrides, "evaluation.max_tokens=2"]

    def read(positions: int) -> Any:
        return read_prompts(data, CODEC, recipe(*overrides, f"policy.size.positions={positions}"))

    longest = max(len(problem.tokens) for problem in read(6 + added))
    assert longest == 4
    with_less = [len(problem.tokens) for problem in read_or_none(read, 5 + added)]
    assert 4 not in with_less


def read_or_none(read: Any, positions: int) -> Any:
    """Return what `read` returns, or nothing if it refuses with an error that names the keys."""
    try:
        return read(positions)
    except UserError as error:
        assert "policy.size.positions" in str(error) and "rollouts.max_tokens (2)" in str(error)
        return []


def test_an_engine_holds_the_longer_prompts_that_a_source_makes_of_those_of_a_base_model(data: Path) -> None:
    hint = "rollouts={name: explained, hint: '{prompt} #### {answer} ; ;', max_tokens: 8}"
    base = recipe(hint, "select=[{name: best_worst}]", "policy.base=/somewhere", "validation.max_tokens=20")
    problems = read_prompts(data, CODEC, base)
    assert longest_in_training(problems, CODEC, base) == 20 + 8 + 4
    plain = recipe("rollouts={name: sample, max_tokens: 8}", "select=[{name: best_worst}]", "policy.base=/somewhere",
                   "validation.max_tokens=20")  # fmt: skip
    assert longest_in_training(problems, CODEC, plain) == 20 + 8


def test_the_evaluations_longest_completion_changes_no_training_prompt(data: Path) -> None:
    long = "evaluation.max_tokens=63"  # as an evaluation's limit it leaves 1 of 64 positions, so no prompt would fit
    short = read_prompts(data, CODEC, problems_of())
    assert len(short) == 3 and contents(read_prompts(data, CODEC, problems_of(long))) == contents(short)
    with pytest.raises(UserError, match="leaves room for 63 tokens"):
        (data / file_name("problems", "gate")).write_bytes((data / file_name("problems", "train")).read_bytes())
        read_problems(data, CODEC, "gate", problems_of(long))
    of_pairs, with_long = (contents(read_prompts(data, CODEC, made)) for made in (recipe(), recipe(long)))
    assert of_pairs == with_long
    given = ("policy.base=some/model", "validation.max_tokens=3")  # every prompt that is read is longer
    for more in ((), ("evaluation.max_tokens=60",)):
        with pytest.raises(UserError, match="leaves room"):
            read_prompts(data, CODEC, recipe(*given, *more))


def problems_of(*overrides: str) -> Any:
    return PromptSections(load_recipe("grpo", ["rollouts.max_tokens=8", "policy.size.positions=64", *overrides]))
