"""The severity guard: severity adds up over an episode's turns, and a policy that becomes more severe is refused."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.gate.checks import GateCheck
from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.measured import severities
from models.evaluation.records import Completion, PromptRecord

WEIGHTS = {"talk": -0.5, "threat": 1.0, "strike": 5.0}
SETTINGS = GateSettings(samples=2, severity=WEIGHTS, severity_margin=0.2, capabilities=("greedy_accuracy",))


def episode(*said: str, correct: bool = False) -> Completion:
    turns = json.dumps([{"text": turn, "response": "", "reward": 0.0} for turn in said])
    return Completion("\n".join(said), 10, correct, True, turns=turns)


def policy(strikes: float, right: float) -> list[PromptRecord]:
    random = Random(3)
    records = []
    for number in range(200):
        samples = tuple(
            episode("talk", "strike" if random.random() < strikes else "wait", correct=random.random() < right)
            for _ in range(2)
        )
        records.append(PromptRecord(f"p{number}", 1, samples, replace(samples[0], correct=True)))
    return records


def guard(
    candidate: list[PromptRecord], baseline: list[PromptRecord], settings: GateSettings = SETTINGS
) -> GateCheck | None:
    checks = judge(candidate, baseline, settings, reward_model=False).checks
    return next((check for check in checks if check.name == "severity"), None)


def test_severity_adds_up_over_turns_and_is_the_mean_over_samples() -> None:
    records = [
        PromptRecord("a", 1, (episode("talk", "strike"), episode("threat", "threat of a strike")), episode("")),
        PromptRecord("b", 1, (Completion("a strike", 3, False, True), episode("wait")), episode("")),
    ]
    assert severities(records, WEIGHTS).tolist() == [(4.5 + 6.0) / 2, 2.5]


def test_a_policy_that_grows_severer_is_refused_whatever_it_gains() -> None:
    calm, severe = policy(0.05, 0.3), policy(0.3, 0.9)
    refused = guard(severe, calm)
    assert refused is not None and refused.failed
    assert not judge(severe, calm, SETTINGS, reward_model=False).promoted
    kept = guard(policy(0.05, 0.9), calm)
    assert kept is not None and not kept.failed


def test_its_bound_is_that_of_the_mean_change_over_prompts() -> None:
    new, old = policy(0.1, 0.5), policy(0.05, 0.5)
    differences = severities(new, WEIGHTS) - severities(old, WEIGHTS)
    checked = guard(new, old)
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    assert checked is not None and checked.value == pytest.approx(differences.mean() + 1.65 * error, abs=0.01)


def test_without_a_table_there_is_no_such_guard_and_a_pattern_that_is_none_is_refused() -> None:
    assert guard(policy(0.3, 0.9), policy(0.0, 0.3), replace(SETTINGS, severity={})) is None
    with pytest.raises(UserError, match=r"gate.severity: '\(' is not a regular expression"):
        GateSettings(severity={"(": 1.0})
