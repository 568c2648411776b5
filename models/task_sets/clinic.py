"""A small clinic (models/agents/play/clinic.py): the prompt names a patient, the environment draws the findings.

    ada bell is unwell    | doctor | ask fever | yes | ask cough | no | malaria

The demonstrations show every role, a policy's and its partner's, in the scenes of `models.agents.play.scenes`. Patients
and users answer truthfully. The other roles act at random: a doctor asks random questions and then guesses from the
known findings.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.agents.play.clinic import CONDITIONS, FINDINGS, Patient, chances, drawn, written
from models.agents.play.scenes import NEEDS
from models.datasets.schema import SOUND
from models.task_sets.drawing import Task, TaskSettings

_FIRST = tuple("ada bob cem dora eli fay gus hana ivo jun kai lea max nina olaf pia quin rosa sam tia".split())
_LAST = tuple("bell cook dale fox hill king lane moss nash oak park reed shaw tate vale west".split())
_ROLES = {"patient": 6, "known": 5, "user": 1, "doctor": 3, "planner": 2, "record": 2, "friend": 2}
"""Weight of each role in the demonstrations."""


class ClinicSettings(TaskSettings):
    """The section `clinic` of params.yaml."""

    states_answer: ClassVar[bool] = False

    def draw(self, random: Random) -> Task:
        """Draw the name of a patient."""
        return Task(f"{random.choice(_FIRST)} {random.choice(_LAST)} is unwell", "well", 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw an episode from the view of any role."""
        (role,) = random.choices(list(_ROLES), list(_ROLES.values()))
        patient = drawn(random)
        known = tuple(random.sample(FINDINGS, random.randint(0, 2)))
        if role == "patient":
            asked = random.choice(FINDINGS)
            said = "yes" if patient[asked] else "no"
            return SOUND, ("", f"patient {written(patient)} asked {asked}", said)
        if role == "known":
            known = tuple(sorted(random.sample(FINDINGS, random.randint(0, len(FINDINGS)))))
            return SOUND, ("", f"known {written(patient, known)} conclude", guess(random, patient, known))
        if role == "user":
            feels = random.choice(list(NEEDS))
            return SOUND, ("", f"user feels {feels} mood {random.randrange(10, 101, 10)}", feels)
        if role == "friend":
            return SOUND, ("", f"friend {random.choice(list(NEEDS))}", random.choice(list(NEEDS.values())))
        if role == "record":
            order = tuple(random.sample(FINDINGS, len(FINDINGS)))
            noted = tuple(sorted(known or order[:1]))
            return SOUND, ("", f"record {written(patient, order)}", written(patient, noted))
        verb = "ask" if role == "doctor" else "check"
        asks = [turn for name in known for turn in (f"{verb} {name}", "yes" if patient[name] else "no")]
        return SOUND, ("", role, *asks, guess(random, patient, known) if role == "doctor" else "conclude")


def guess(random: Random, patient: Patient, known: tuple[str, ...]) -> str:
    """Draw a condition with its probability given the known findings."""
    likely = chances(patient, frozenset(known))
    (name,) = random.choices(CONDITIONS, [likely[name] for name in CONDITIONS])
    return name


SETTINGS = ClinicSettings
