"""Values of findings, checked by enumeration: Shapley shares, and the entropy that questions remove."""

import itertools
import math

import pytest

from models.agents.play.clinic import CONDITIONS, FINDINGS, PATIENTS, chances, condition, entropy, shares, worth


def test_the_shapley_shares_of_a_patient_are_mean_gains_over_all_orders_and_sum_to_what_all_is_worth() -> None:
    for patient in PATIENTS:
        gains = dict.fromkeys(FINDINGS, 0.0)
        orders = list(itertools.permutations(FINDINGS))
        for order in orders:
            for place, finding in enumerate(order):
                before, after = frozenset(order[:place]), frozenset(order[: place + 1])
                gains[finding] += (worth(patient, after) - worth(patient, before)) / len(orders)
        assert shares(patient) == pytest.approx(gains, abs=1e-12)
        assert sum(shares(patient).values()) == pytest.approx(worth(patient, frozenset(FINDINGS)), abs=1e-12)


def test_the_ache_is_worth_nothing_and_of_a_flu_fever_and_cough_share_the_log_of_four() -> None:
    patient = {"fever": True, "cough": True, "rash": False, "ache": True}
    mine = shares(patient)
    assert condition(patient) == "flu" and mine["ache"] == pytest.approx(0.0, abs=1e-12)
    assert sum(mine.values()) == pytest.approx(math.log(4))
    assert mine["fever"] == pytest.approx(math.log(2)) == mine["cough"] + mine["rash"]


@pytest.mark.parametrize("known", [(), ("fever",), ("fever", "cough"), ("ache",), ("cough", "rash"), FINDINGS])
def test_what_questions_gain_on_average_is_the_entropy_that_they_take_away(known: tuple[str, ...]) -> None:
    gained = sum(worth(patient, frozenset(known)) for patient in PATIENTS) / len(PATIENTS)
    left = sum(entropy({finding: patient[finding] for finding in known}) for patient in PATIENTS) / len(PATIENTS)
    assert gained == pytest.approx(entropy({}) - left, abs=1e-12)
    assert entropy({}) == pytest.approx(math.log(4))


def test_who_knows_all_findings_knows_the_condition() -> None:
    for patient in PATIENTS:
        likely = chances(patient, frozenset(FINDINGS))
        assert likely == {name: float(name == condition(patient)) for name in CONDITIONS}
