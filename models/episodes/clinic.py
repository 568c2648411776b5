"""A small clinic, pure rules: four findings that a patient has or has not, and the condition that they make.

    fever and cough   flu          fever, no cough    malaria
    rash, no fever    allergy      neither            health

The ache says nothing. What is known of a patient is worth the nats by which it raised the probability of the condition
that there is, all patients alike before; each finding's share of it is its Shapley value (Shapley 1953): its mean gain
over all orders in which the findings could have been learned. The shares of what is known sum to what it is worth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from random import Random

FINDINGS = ("fever", "cough", "rash", "ache")
CONDITIONS = ("flu", "malaria", "allergy", "health")
Patient = Mapping[str, bool]
"""Whether there is each finding."""
PATIENTS: tuple[Patient, ...] = tuple(
    dict(zip(FINDINGS, flags, strict=True)) for flags in itertools.product((True, False), repeat=len(FINDINGS))
)
"""All that there can be."""


def condition(patient: Patient) -> str:
    """What the patient has."""
    if patient["fever"]:
        return "flu" if patient["cough"] else "malaria"
    return "allergy" if patient["rash"] else "health"


def drawn(random: Random) -> Patient:
    """A patient, all alike."""
    return random.choice(PATIENTS)


def written(patient: Patient, findings: tuple[str, ...] = FINDINGS) -> str:
    """Findings as text: fever yes cough no."""
    return " ".join(f"{finding} {'yes' if patient[finding] else 'no'}" for finding in findings)


def chances(patient: Patient, known: frozenset[str]) -> dict[str, float]:
    """Probability of each condition for somebody who knows these findings of the patient."""
    alike = [other for other in PATIENTS if all(other[finding] == patient[finding] for finding in known)]
    return {name: sum(condition(other) == name for other in alike) / len(alike) for name in CONDITIONS}


def worth(patient: Patient, known: frozenset[str]) -> float:
    """Nats by which what is known raised the log-probability of the condition that there is."""
    mine = condition(patient)
    return math.log(chances(patient, known)[mine] / chances(patient, frozenset())[mine])


def shares(patient: Patient) -> dict[str, float]:
    """Shapley value of each finding, in nats; together they are what all findings are worth."""
    count, total = len(FINDINGS), dict.fromkeys(FINDINGS, 0.0)
    for finding in FINDINGS:
        others = [other for other in FINDINGS if other != finding]
        for size in range(count):
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            for some in itertools.combinations(others, size):
                before = frozenset(some)
                total[finding] += weight * (worth(patient, before | {finding}) - worth(patient, before))
    return total


def entropy(known: Mapping[str, bool]) -> float:
    """Nats of what is still unknown of the condition for somebody who knows these findings."""
    alike = [other for other in PATIENTS if all(other[finding] == flag for finding, flag in known.items())]
    shares_of = [sum(condition(other) == name for other in alike) / len(alike) for name in CONDITIONS]
    return -sum(share * math.log(share) for share in shares_of if share)
