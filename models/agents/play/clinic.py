"""A small clinic as pure rules: four findings that a patient has or does not have, and the condition that they imply.

    fever and cough   flu          fever, no cough    malaria
    rash, no fever    allergy      neither            health

The ache carries no information. The value of a set of known findings is the increase of the log-probability of the
patient's condition, in nats, starting from equally likely patients. The share of each finding is its Shapley value
(Shapley 1953): its mean gain over all orders in which the findings could have been learned. The shares of all findings
sum to the value of the full set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from random import Random

FINDINGS = ("fever", "cough", "rash", "ache")
CONDITIONS = ("flu", "malaria", "allergy", "health")
Patient = Mapping[str, bool]
"""Whether each finding is present."""
PATIENTS: tuple[Patient, ...] = tuple(
    dict(zip(FINDINGS, flags, strict=True)) for flags in itertools.product((True, False), repeat=len(FINDINGS))
)
"""All possible patients."""


def condition(patient: Patient) -> str:
    """Return the patient's condition."""
    if patient["fever"]:
        return "flu" if patient["cough"] else "malaria"
    return "allergy" if patient["rash"] else "health"


def drawn(random: Random) -> Patient:
    """Draw a patient; all are equally likely."""
    return random.choice(PATIENTS)


def written(patient: Patient, findings: tuple[str, ...] = FINDINGS) -> str:
    """Format a patient's findings as text, such as `fever yes cough no`."""
    return " ".join(f"{finding} {'yes' if patient[finding] else 'no'}" for finding in findings)


def chances(patient: Patient, known: frozenset[str]) -> dict[str, float]:
    """Return the probability of each condition, given these findings of the patient."""
    alike = [other for other in PATIENTS if all(other[finding] == patient[finding] for finding in known)]
    return {name: sum(condition(other) == name for other in alike) / len(alike) for name in CONDITIONS}


def worth(patient: Patient, known: frozenset[str]) -> float:
    """Return the increase of the log-probability of the patient's condition due to the known findings, in nats."""
    mine = condition(patient)
    return math.log(chances(patient, known)[mine] / chances(patient, frozenset())[mine])


def shares(patient: Patient) -> dict[str, float]:
    """Return the Shapley value of each finding, in nats; they sum to the value of all findings."""
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
    """Return the entropy of the condition given the known findings, in nats."""
    alike = [other for other in PATIENTS if all(other[finding] == flag for finding, flag in known.items())]
    shares_of = [sum(condition(other) == name for other in alike) / len(alike) for name in CONDITIONS]
    return -sum(share * math.log(share) for share in shares_of if share)
