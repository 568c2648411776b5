"""The hallucination index: claims and their severity by rule, the weighted index by hand, and the gate's guard."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.gate.checks import GateCheck
from models.evaluation.gate.gate import GateSettings, judge
from models.evaluation.hallucination import (
    Claim,
    HallucinationSettings,
    checked_claims,
    hallucinated_shares,
    hallucination_index,
    with_claims,
)
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.report import summarise
from models.evaluation.table import read_records, write_records
from models.method.problem import Problem

DOCUMENT = (
    "The bridge was opened in 1932 near Sydney. It was designed by John Bradfield and is 1,149 metres long. "
    'He called it "the greatest work of my life". The National Roads Board (NRB) pays 12.5 % of it. It opens at 6:30 '
    "on 19 March."
)


def severities(answer: str, document: str = DOCUMENT) -> list[tuple[str, str]]:
    return [(claim.category, claim.severity) for claim in checked_claims(answer, document)]


def test_a_document_supports_all_of_its_own_claims() -> None:
    claims = checked_claims(DOCUMENT, DOCUMENT)
    assert {claim.severity for claim in claims} == {"supported"}
    assert [claim.category for claim in claims] == [
        "time", "place", "name", "number", "quote", "acronym", "number", "time", "time",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It is 1149 metres long.", ("number", "supported")),
        ("It is 1150 metres long.", ("number", "mild")),
        ("It is 1,500 metres long.", ("number", "moderate")),
        ("It is 9,999,999 metres long.", ("number", "alarming")),
        ("It was opened in 1932.", ("time", "supported")),
        ("It was opened in 1933.", ("time", "mild")),
        ("It was opened in 1940.", ("time", "moderate")),
        ("It was opened in 1832.", ("time", "alarming")),
        ("It opens at 06:30.", ("time", "supported")),
        ("It opens at 7:30.", ("time", "moderate")),
        ("It opens on March 19.", ("time", "supported")),
        ("It opens on March 20.", ("time", "moderate")),
        ("It was designed by Bradfield.", ("name", "supported")),
        ("It was designed by Ralph Bradfield.", ("name", "mild")),
        ("It was designed by Ralph de Vere Bradfield.", ("name", "moderate")),
        ("It was designed by Ada Lovelace.", ("name", "alarming")),
        ("It is near Sydney.", ("place", "supported")),
        ("It is in New York.", ("place", "alarming")),
        ('He called it "the greatest work of my life".', ("quote", "supported")),
        ('He called it "the greatest work of my youth".', ("quote", "mild")),
        ('He called it "one of the best roads in this country".', ("quote", "alarming")),
        ("A National Roads Board (NRB) pays.", ("acronym", "supported")),
        ("A National Roads Office (NRB) pays.", ("acronym", "mild")),
    ],
)
def test_the_severity_of_a_claim_follows_its_distance_from_documents(answer: str, expected: tuple[str, str]) -> None:
    assert severities(answer) == [expected]


def test_words_without_a_claim_are_no_claims_and_a_claim_without_documents_is_alarming() -> None:
    assert severities("The bridge is long. Many people walk across it.") == []
    assert severities("It is 5 metres long, by Ada Lovelace, since 1900.", "") == [
        ("number", "alarming"), ("name", "alarming"), ("time", "alarming"),
    ]  # fmt: skip


def test_the_index_is_the_weighted_share_by_hand() -> None:
    claims = [Claim("number", "1", "alarming"), Claim("name", "A", "mild"), Claim("name", "B", "supported")]
    assert HallucinationSettings().index(claims) == pytest.approx((1 + 1 / 3) / 3)
    weighted = HallucinationSettings(categories={"number": 3.0, "name": 0.5}, mild=0.2)
    assert weighted.index(claims) == pytest.approx((3 * 1 + 0.5 * 0.2) / 4)
    assert HallucinationSettings(categories={"number": 0.0}).index(claims[:1]) == 0.0
    assert HallucinationSettings().index([]) == 0.0


def test_with_equal_weights_the_index_is_the_share_of_claims_without_support() -> None:
    flat = HallucinationSettings(mild=1.0, moderate=1.0)
    claims = checked_claims("It is 1150 metres long, near Sydney, since 1800, by Ada Lovelace.", DOCUMENT)
    assert len(claims) == 4 and flat.index(claims) == pytest.approx(3 / 4)


def records(answers: list[str], right: bool = False) -> tuple[list[PromptRecord], list[Problem]]:
    made = [
        PromptRecord(f"p{place}", 1, (Completion(text, 9, right, True),) * 2, Completion(text, 9, True, True))
        for place, text in enumerate(answers)
    ]
    return made, [Problem(record.id, DOCUMENT) for record in made]


def test_in_an_episode_the_responses_of_the_environment_are_documents_and_the_own_turns_are_not() -> None:
    turns = [
        {"text": "Search for 4711.", "response": "The bridge has 4711 rivets.", "reward": 0.0},
        {"text": "It has 4711 rivets and 82 lamps.", "response": "", "reward": 0.0},
    ]
    episode = Completion("", 9, True, True, turns=json.dumps(turns))
    (record,) = with_claims([PromptRecord("p", 1, (episode,), episode)], [Problem("p", "How many?")])
    assert hallucination_index([record], HallucinationSettings()) == pytest.approx([1 / 3])


TRUE, FALSE = "It was opened in 1932.", "It was opened in 1800."
SETTINGS = GateSettings(samples=2, hallucination=HallucinationSettings(), capabilities=("greedy_accuracy",))


def guard(candidate: list[PromptRecord], baseline: list[PromptRecord]) -> GateCheck:
    checks = judge(candidate, baseline, SETTINGS, reward_model=False).checks
    return next(check for check in checks if check.name == "hallucination")


def test_the_gate_refuses_a_policy_that_hallucinates_more_whatever_it_gains() -> None:
    plain = with_claims(*records([TRUE, "It is long."] * 100))
    worse = with_claims(*records([FALSE, TRUE] * 20 + [TRUE] * 160, right=True))
    same = with_claims(*records([TRUE] * 200, right=True))
    assert guard(worse, plain).failed and not judge(worse, plain, SETTINGS, reward_model=False).promoted
    assert not guard(same, plain).failed and judge(same, plain, SETTINGS, reward_model=False).promoted
    unchecked, _ = records([TRUE] * 200, right=True)
    assert guard(unchecked, plain).failed
    off = replace(SETTINGS, hallucination=None)
    assert not any(check.name == "hallucination" for check in judge(worse, plain, off, reward_model=False).checks)


def test_the_summary_has_the_index_and_the_shares_by_category_and_severity(tmp_path: Path) -> None:
    checked = with_claims(*records([TRUE, FALSE, "It is by John Bradfield.", "It is by Ralph Bradfield."]))
    assert hallucinated_shares(checked) == {
        "time": 0.5, "name": 0.5, "mild": 0.25, "moderate": 0.0, "alarming": 0.25,
    }  # fmt: skip
    values = summarise(checked, hallucination=HallucinationSettings())
    assert values["eval/hallucination"] == pytest.approx((1 + 1 / 3) / 4)
    assert values["eval/hallucinated_time"] == 0.5 and "eval/hallucinated_number" not in values
    assert "eval/hallucination" not in summarise(checked)
    write_records(checked, tmp_path / "records.parquet")
    again = read_records(tmp_path / "records.parquet")
    np.testing.assert_array_equal(
        hallucination_index(again, HallucinationSettings()), hallucination_index(checked, HallucinationSettings())
    )


def test_weights_that_fall_with_the_severity_are_refused() -> None:
    with pytest.raises(UserError, match=r"gate.hallucination: mild 0.9, moderate 0.66\d*, alarming 1"):
        HallucinationSettings(mild=0.9)
