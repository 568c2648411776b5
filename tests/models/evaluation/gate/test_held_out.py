"""Held-out sets as guards of the gate: each alone can refuse, none can promote, and a set without answers refuses."""

import math
from dataclasses import replace
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from models.base.errors import UserError
from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.gate.held_out import HeldOutAnswers, HeldOutSettings, held_out_checks
from models.evaluation.records import Completion, PromptRecord
from models.recipes.held_out import held_out_recipes
from models.recipes.load import load_recipe

HISTORY = HeldOutSettings(path="history.jsonl", format="problems", samples=2, margin=0.05)  # type: ignore[arg-type]
CODE = HeldOutSettings(
    path="code.jsonl",  # type: ignore[arg-type]
    format="problems",
    samples=2,
    margin=0.2,
    metric="greedy_accuracy",
)
GATE = GateSettings(samples=2, capability_margin=None, divergence_margin=None, reward_gap_margin=None)


def answers(shares: list[float], greedy: bool = True) -> list[PromptRecord]:
    """Make a prompt with two samples for each share of correct ones: 0, 0.5 or 1."""
    return [
        PromptRecord(
            f"p{number}",
            0,
            tuple(Completion(f"{i}", 5, i < 2 * share, True) for i in range(2)),
            Completion("g", 5, greedy, True),
        )
        for number, share in enumerate(shares)
    ]


GOOD = answers([1.0, 0.5] * 100)
WORSE = answers([0.5, 0.5] * 100)
HALF = answers([0.5] * 200)
ALL = answers([1.0] * 200)


def checks(
    given: HeldOutAnswers | None, settings: HeldOutSettings = HISTORY, anchored: bool = False
) -> dict[str, tuple[str, float]]:
    sets = {} if given is None else {"history": given}
    of_sets = held_out_checks({"history": settings}, sets, 0.95, anchored)
    return {check.name: (check.state, check.value) for part in of_sets for check in part}


def test_the_bound_is_the_paired_one_worked_out_by_hand() -> None:
    rng = np.random.default_rng(0)
    new, old = (list(rng.choice([0.0, 0.5, 1.0], 150)) for _ in range(2))
    differences = [a - b for a, b in zip(new, old, strict=True)]
    z = NormalDist().inv_cdf(0.95)
    quantile = z + (z**3 + z) / (4 * 149)  # Student's t with 149 degrees of freedom, by its expansion
    more = [*differences, -1.0]  # one more problem, with the largest possible fall
    by_hand = mean(more) - quantile * stdev(more) / math.sqrt(151)
    state, bound = checks(HeldOutAnswers(answers(new), answers(old)))["held_out_history"]
    assert bound == pytest.approx(by_hand, abs=1e-12)
    assert state == ("passed" if by_hand >= -0.05 else "failed")
    just = replace_margin(HISTORY, -by_hand)
    assert checks(HeldOutAnswers(answers(new), answers(old)), just)["held_out_history"][0] == "passed"
    tighter = replace_margin(HISTORY, -by_hand - 1e-6)
    assert checks(HeldOutAnswers(answers(new), answers(old)), tighter)["held_out_history"][0] == "failed"


def replace_margin(settings: HeldOutSettings, margin: float) -> HeldOutSettings:
    return settings.model_copy(update={"margin": margin})


@pytest.mark.rotating(of=6)
def test_a_candidate_at_the_margin_passes_in_a_twentieth_of_all_cases_at_most() -> None:
    """The true loss equals the margin. The answers of the two policies to the 400 prompts are paired."""
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(400):
        old = (rng.random(400) < 0.8).astype(float)
        new = np.where(rng.random(400) < 0.05 / 0.8, 0.0, old)  # loses 0.05 on average
        given = HeldOutAnswers(answers(list(new)), answers(list(old)))
        passed += checks(given)["held_out_history"][0] == "passed"
    assert passed <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_no_loss_at_all_passes_and_so_does_a_rise() -> None:
    same = {"held_out_history": "passed"}
    assert {name: state for name, (state, _) in checks(HeldOutAnswers(GOOD, GOOD)).items()} == same
    assert {name: state for name, (state, _) in checks(HeldOutAnswers(ALL, HALF)).items()} == same


def test_where_nothing_differs_too_few_problems_cannot_show_it() -> None:
    """If no answer of n prompts changes, the rule of three bounds the share of falls that may be missed by 3 / n."""
    few, enough = ALL[:50], ALL[:70]  # the margin of 0.05 is between 3 / 50 = 0.06 and 3 / 70 = 0.043
    assert checks(HeldOutAnswers(few, few))["held_out_history"][0] == "failed"
    assert checks(HeldOutAnswers(enough, enough))["held_out_history"][0] == "passed"


def test_the_order_of_the_prompts_is_no_matter() -> None:
    first = checks(HeldOutAnswers(WORSE, GOOD), anchored=False)
    assert first == checks(HeldOutAnswers(WORSE, GOOD[::-1]))


def test_each_set_shuts_the_gate_alone_and_none_opens_it() -> None:
    settings = replace(GATE, held_out={"history": HISTORY, "code": CODE})
    kept = {name: HeldOutAnswers(GOOD, GOOD) for name in settings.held_out}
    assert judge(ALL, HALF, settings, held_out=kept, reward_model=False).promoted
    for name in settings.held_out:
        worse = HeldOutAnswers(answers([0.0] * 200, greedy=False), GOOD)
        verdict = judge(ALL, HALF, settings, held_out=kept | {name: worse}, reward_model=False)
        assert [check.name for check in verdict.checks if check.failed] == [f"held_out_{name}"]
    rise = {name: HeldOutAnswers(ALL, HALF) for name in settings.held_out}
    assert not judge(HALF, HALF, settings, held_out=rise, reward_model=False).promoted


def test_a_small_loss_night_after_night_is_held_against_the_anchor() -> None:
    settings = replace(GATE, held_out={"history": HISTORY})
    slow = {"history": HeldOutAnswers(WORSE, WORSE, anchor=ALL)}
    verdict = judge(ALL, HALF, settings, anchor=HALF, held_out=slow, reward_model=False)
    assert [check.name for check in verdict.checks if check.failed] == ["held_out_history_anchor"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (None, "the candidate was not measured on history"),
        (HeldOutAnswers([], GOOD, GOOD), "the candidate was not measured on history"),
        (HeldOutAnswers(GOOD, [], GOOD), "the baseline was not measured on history"),
    ],
)
def test_a_set_without_answers_fails(given: HeldOutAnswers | None, missing: str) -> None:
    settings = replace(GATE, held_out={"history": HISTORY})
    sets = {} if given is None else {"history": given}
    verdict = judge(ALL, HALF, settings, held_out=sets, reward_model=False)
    assert [check.detail for check in verdict.checks if check.failed] == [missing]


def test_an_anchor_that_was_not_measured_fails() -> None:
    settings = replace(GATE, held_out={"history": HISTORY})
    sets = {"history": HeldOutAnswers(GOOD, GOOD)}
    verdict = judge(ALL, HALF, settings, anchor=HALF, held_out=sets, reward_model=False)
    assert [check.detail for check in verdict.checks if check.failed] == ["the anchor was not measured on history"]


def test_other_problems_are_no_comparison() -> None:
    with pytest.raises(UserError, match="not measured on the same prompts"):
        checks(HeldOutAnswers(GOOD, GOOD[:-1]))
    with pytest.raises(UserError, match=r"gate.held_out.history.metric: level_3_accuracy is defined on none of the"):
        level = HISTORY.model_copy(update={"metric": "level_3_accuracy"})
        checks(HeldOutAnswers(GOOD, GOOD), level)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"metric": "charm"}, "unknown metric 'charm'"),
        ({"metric": "tokens"}, "tokens is not a share"),
        ({"metric": "pass_at_8"}, "samples is 4, but pass_at_8 needs 8"),
        ({"margin": -0.1}, "greater than or equal to 0"),
        ({"margin": math.nan}, "finite"),
        ({"format": "hh"}, "'problems' or 'gsm8k'"),
        ({"columns": {"split": "fold"}}, "no split"),
        ({"path": "s3://bucket/a.jsonl"}, "is not a path on this machine"),
        ({"problems": 0}, "greater than or equal to 1"),
        ({"shuffle": True}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(changed: dict[str, object], said: str) -> None:
    given = {"path": "a.jsonl", "format": "problems"} | changed
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(GateSettings).validate_python({"held_out": {"history": given}})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"path": "a.jsonl"}, "a held-out set with a path needs a format"),
        ({"format": "problems"}, "only with a path"),
        ({"limit": 3}, "only with a path"),
        ({"columns": {"prompt": "question"}}, "only with a path"),
    ],
)
def test_files_need_a_format_and_a_built_in_set_takes_none(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        HeldOutSettings.model_validate(settings)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("unseen_pair", "{}", "no path, and no built-in data set has this name"),
        ("unseen_pairs", "{path: a.jsonl, format: problems}", "a data set has this name already"),
        ("arithmetic", "{}", "a data set has this name already"),
    ],
)
def test_a_held_out_set_is_files_or_another_built_in_data_set(name: str, settings: str, says: str) -> None:
    with pytest.raises(UserError, match=f"gate.held_out.{name}: {says}"):
        load_recipe("arithmetic", [f"gate.held_out={{{name}: {settings}}}"])


def test_a_built_in_held_out_set_is_read_by_its_own_stage() -> None:
    recipe = load_recipe("arithmetic", ["gate.held_out={unseen_pairs: {problems: 50}}"])
    held_out = held_out_recipes(recipe)["unseen_pairs"]
    assert held_out.data.built_in and held_out.data.name == "unseen_pairs" and held_out.gate.problems == 50


CONTROL = HeldOutSettings(images="another")


def control(new: list[float], old: list[float], new_blind: list[float], old_blind: list[float]) -> tuple[str, float]:
    own = HeldOutAnswers(answers(new), answers(old))
    shown = HeldOutAnswers(answers(new_blind), answers(old_blind))
    ((check,), _) = held_out_checks({"control": CONTROL}, {"control": shown}, 0.95, False, own)
    return check.state, check.value


def test_a_blind_control_passes_a_gain_with_the_own_pictures_and_refuses_one_without_looking() -> None:
    low, high = [0.5, 0.0] * 100, [1.0, 0.5] * 100
    state, bound = control(high, low, low, low)
    assert state == "passed" and bound == pytest.approx(0.5)
    assert control(high, low, high, low)[0] == "passed"  # equal gains: no difference at all, which `better` decides
    guessing = [1.0, 0.5] * 80 + [0.5, 0.0] * 20
    assert control(guessing, low, high, low)[0] == "failed"


def test_the_bound_of_a_blind_control_is_that_of_the_paired_difference_of_gains() -> None:
    rng = np.random.default_rng(1)
    sides = [list(rng.choice([0.0, 0.5, 1.0], 150)) for _ in range(4)]
    new, old, new_blind, old_blind = map(np.array, sides)
    differences = (new - old) - (new_blind - old_blind)
    z = NormalDist().inv_cdf(0.95)
    expected = mean(differences) - z * stdev(differences) / math.sqrt(150)
    assert control(*sides)[1] == pytest.approx(expected, abs=2e-3)


def test_a_blind_control_has_the_data_of_the_recipe_and_the_problems_of_the_gate() -> None:
    with pytest.raises(ValidationError, match="another is a control on the gate's problems; leave path and built_in"):
        HeldOutSettings(images="another", built_in="scenes")
    with pytest.raises(UserError, match="problem p0 is not among those of the gate"):
        held_out_checks({"c": CONTROL}, {"c": HeldOutAnswers(GOOD, GOOD)}, 0.95, False)
    recipe = load_recipe("images/scenes")
    control_recipe = held_out_recipes(recipe)["another_picture"]
    assert control_recipe.data == recipe.data and control_recipe.evaluation.images == "another"
    assert control_recipe.gate.problems == recipe.gate.problems
