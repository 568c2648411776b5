"""Scenes that are played with a frozen partner, as pure rules: the partner's input, and the effect of its words.

A scene takes the words of the policy and the partner in turn and returns the input of the next speaker. The policy
reads this text after all that it has read before; the partner reads it without any history.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

from models.agents.play.clinic import FINDINGS, Patient, condition, drawn, shares, written

SceneSpeaker = Literal["policy", "partner"]


@dataclass
class TurnOutcome:
    """The effect of a turn: the next speaker, the text that it reads, and the policy's reward."""

    next: SceneSpeaker
    """The next speaker."""
    text: str
    """Text that the next speaker reads."""
    reward: float = 0.0
    """Reward of the policy's last turn."""
    over: bool = False
    solved: bool = False
    state: str = ""
    """State in which the policy takes its next turn."""


class Scene(Protocol):
    """Interface of a scene: the rules of an episode."""

    @abstractmethod
    def begin(self, random: Random) -> TurnOutcome:
        """Begin the episode. Returns its first outcome."""
        ...

    @abstractmethod
    def apply(self, speaker: SceneSpeaker, text: str) -> TurnOutcome:
        """Apply the rules to a speaker's words. Returns the outcome."""
        ...


@dataclass
class Consult:
    """The policy asks a patient, played by the partner, and gives a diagnosis.

        ask cough | no | ask fever | yes | malaria

    The reward of a question is `gain` times the finding's Shapley share, once per finding, if the patient's answer was
    true.
    """

    gain: float = 1.0
    patient: Patient = field(default_factory=dict)
    asked_findings: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    finding: str = ""

    def begin(self, random: Random) -> TurnOutcome:
        """Draw a patient, and give the policy its role."""
        self.patient = drawn(random)
        return TurnOutcome("policy", "doctor", state="doctor")

    def apply(self, speaker: SceneSpeaker, text: str) -> TurnOutcome:
        """Apply the rules to a question, an answer or a diagnosis."""
        words = text.split()
        if speaker == "policy":
            if len(words) == 2 and words[0] == "ask" and words[1] in FINDINGS:
                self.finding = words[1]
                return TurnOutcome("partner", f"patient {written(self.patient)} asked {self.finding}")
            return TurnOutcome("policy", "", over=True, solved=words == [condition(self.patient)])
        new = self.finding not in self.asked_findings
        truth = words == ["yes" if self.patient[self.finding] else "no"]
        worth = shares(self.patient)[self.finding] if new and truth else 0.0
        self.asked_findings.append(self.finding)
        self.answers.append(f"{self.finding} {text}")
        return TurnOutcome("policy", text, self.gain * worth, state=f"doctor {' '.join(sorted(set(self.answers)))}")


@dataclass
class Direct:
    """The policy gives orders; the partner carries them out, and concludes from its findings.

        check fever | yes | check rash | no | conclude | health

    The partner reads the record for a check, and the checked findings for the conclusion. A check has a cost. Its
    reward is `gain` times the finding's Shapley share, once per finding, if the partner read the record correctly.
    """

    cost: float = 0.05
    gain: float = 0.0
    patient: Patient = field(default_factory=dict)
    order: str = ""
    findings: list[str] = field(default_factory=list)

    def begin(self, random: Random) -> TurnOutcome:
        """Draw a patient, and give the policy its role."""
        self.patient = drawn(random)
        return TurnOutcome("policy", "planner", state="planner")

    def apply(self, speaker: SceneSpeaker, text: str) -> TurnOutcome:
        """Apply the rules to an order, or to its result."""
        words = text.split()
        if speaker == "policy":
            self.order = words[-1] if words else ""
            if len(words) == 2 and words[0] == "check" and self.order in FINDINGS:
                return TurnOutcome("partner", f"patient {written(self.patient)} asked {self.order}")
            if words == ["conclude"]:
                return TurnOutcome("partner", f"known {' '.join(sorted(self.findings))} conclude")
            return TurnOutcome("policy", "", over=True)
        if self.order == "conclude":
            right = words == [condition(self.patient)]
            return TurnOutcome("policy", text, float(right), over=True, solved=right)
        new = not any(pair.startswith(self.order) for pair in self.findings)
        truth = words == ["yes" if self.patient[self.order] else "no"]
        worth = self.gain * shares(self.patient)[self.order] if new and truth else 0.0
        self.findings = [pair for pair in self.findings if not pair.startswith(self.order)] + [f"{self.order} {text}"]
        return TurnOutcome("policy", text, worth - self.cost, state=f"planner {' '.join(sorted(self.findings))}")


@dataclass
class Brief:
    """The policy writes a brief for a partner that sees nothing else and concludes from it.

    record fever yes cough no rash yes ache no    cough no fever yes | malaria
    """

    patient: Patient = field(default_factory=dict)

    def begin(self, random: Random) -> TurnOutcome:
        """Draw a patient, and give the policy the whole record, in random order."""
        self.patient = drawn(random)
        order = tuple(random.sample(FINDINGS, len(FINDINGS)))
        return TurnOutcome("policy", f"record {written(self.patient, order)}")

    def apply(self, speaker: SceneSpeaker, text: str) -> TurnOutcome:
        """Apply the rules to the brief, or to the conclusion."""
        if speaker == "policy":
            return TurnOutcome("partner", f"known {text} conclude")
        right = text.split() == [condition(self.patient)]
        return TurnOutcome("policy", text, float(right), over=True, solved=right)


NEEDS = {"alone": "listen", "lost": "advise", "proud": "praise"}
"""The helpful answer to each feeling."""
INITIAL_MOOD = 40
"""Initial mood."""


@dataclass
class Comfort:
    """The policy answers a user played by the partner, whose mood follows a rule on the policy's answers.

        alone | listen | lost | advise | ...

    Mood begins at 40 of 100, rises by 20 if an answer helps and falls by 10 otherwise. At the end the reward is mood /
    100, and the goal is reached if the mood is above its initial value. The rule reads the need, not the partner's
    words, so the score cannot be raised by talking.
    """

    turns: int = 3
    mood: int = INITIAL_MOOD
    remaining_feelings: list[str] = field(default_factory=list)

    def begin(self, random: Random) -> TurnOutcome:
        """Let the partner speak first."""
        self.remaining_feelings = [random.choice(list(NEEDS)) for _ in range(self.turns)]
        return TurnOutcome("partner", f"user feels {self.remaining_feelings[0]} mood {self.mood}")

    def apply(self, speaker: SceneSpeaker, text: str) -> TurnOutcome:
        """Apply the rules to the user's feeling, or to the policy's answer to it."""
        if speaker == "partner":
            return TurnOutcome("policy", f"friend {text}", state=f"friend {text}")
        helped = text.split() == [NEEDS[self.remaining_feelings.pop(0)]]
        self.mood = min(100, max(0, self.mood + (20 if helped else -10)))
        if not self.remaining_feelings:
            return TurnOutcome("policy", "", self.mood / 100, over=True, solved=self.mood > INITIAL_MOOD)
        return TurnOutcome("partner", f"user feels {self.remaining_feelings[0]} mood {self.mood}")
