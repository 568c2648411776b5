"""What is played with a frozen partner, as pure rules: what the partner reads, and what its words change.

A scene hears the policy and the partner by turns. Whoever is to speak next has it said by `to_read`: what the policy
reads behind all that it read before, what the partner reads as if nothing had been before.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

from models.episodes.clinic import FINDINGS, Patient, condition, drawn, shares, written

Who = Literal["policy", "partner"]


@dataclass
class Told:
    """What a turn has changed."""

    next: Who
    """Who is to speak."""
    text: str
    """What it reads."""
    reward: float = 0.0
    """What the policy's last turn was worth."""
    over: bool = False
    solved: bool = False
    state: str = ""
    """What the policy's next turn is taken in."""


class Scene(Protocol):
    """An episode's rules."""

    @abstractmethod
    def begin(self, random: Random) -> Told:
        """What the policy reads first."""
        ...

    @abstractmethod
    def hear(self, who: Who, said: str) -> Told:
        """Take what somebody said."""
        ...


@dataclass
class Consult:
    """The policy asks a patient, whom the partner speaks for, and says what the patient has.

        ask cough | no | ask fever | yes | malaria

    A question is worth the finding's Shapley share, once, where the patient said the truth; `gain` times that.
    """

    gain: float = 1.0
    patient: Patient = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    asked: str = ""

    def begin(self, random: Random) -> Told:
        """The policy reads its role."""
        self.patient = drawn(random)
        return Told("policy", "doctor", state="doctor")

    def hear(self, who: Who, said: str) -> Told:
        """A question, an answer or a verdict."""
        words = said.split()
        if who == "policy":
            if len(words) == 2 and words[0] == "ask" and words[1] in FINDINGS:
                self.asked = words[1]
                return Told("partner", f"patient {written(self.patient)} asked {self.asked}")
            return Told("policy", "", over=True, solved=words == [condition(self.patient)])
        new = self.asked not in self.known
        truth = words == ["yes" if self.patient[self.asked] else "no"]
        worth = shares(self.patient)[self.asked] if new and truth else 0.0
        self.known.append(self.asked)
        self.seen.append(f"{self.asked} {said}")
        return Told("policy", said, self.gain * worth, state=f"doctor {' '.join(sorted(set(self.seen)))}")


@dataclass
class Direct:
    """The policy says what is to be done; the partner does it, and concludes from what it has seen.

        check fever | yes | check rash | no | conclude | health

    The partner reads the record where it is to check, and what was checked where it is to conclude. A check costs, and
    is worth the finding's Shapley share, once, where the partner read the record right; `gain` times that.
    """

    cost: float = 0.05
    gain: float = 0.0
    patient: Patient = field(default_factory=dict)
    asked: str = ""
    seen: list[str] = field(default_factory=list)

    def begin(self, random: Random) -> Told:
        """The policy reads its role."""
        self.patient = drawn(random)
        return Told("policy", "planner", state="planner")

    def hear(self, who: Who, said: str) -> Told:
        """An order, or what came of it."""
        words = said.split()
        if who == "policy":
            self.asked = words[-1] if words else ""
            if len(words) == 2 and words[0] == "check" and self.asked in FINDINGS:
                return Told("partner", f"patient {written(self.patient)} asked {self.asked}")
            if words == ["conclude"]:
                return Told("partner", f"known {' '.join(sorted(self.seen))} conclude")
            return Told("policy", "", over=True)
        if self.asked == "conclude":
            right = words == [condition(self.patient)]
            return Told("policy", said, float(right), over=True, solved=right)
        new = not any(pair.startswith(self.asked) for pair in self.seen)
        truth = words == ["yes" if self.patient[self.asked] else "no"]
        worth = self.gain * shares(self.patient)[self.asked] if new and truth else 0.0
        self.seen = [pair for pair in self.seen if not pair.startswith(self.asked)] + [f"{self.asked} {said}"]
        return Told("policy", said, worth - self.cost, state=f"planner {' '.join(sorted(self.seen))}")


@dataclass
class Brief:
    """The policy writes what a partner is to know, who sees nothing else and concludes from it.

    record fever yes cough no rash yes ache no    cough no fever yes | malaria
    """

    patient: Patient = field(default_factory=dict)

    def begin(self, random: Random) -> Told:
        """The policy reads the whole record, in any order."""
        self.patient = drawn(random)
        order = tuple(random.sample(FINDINGS, len(FINDINGS)))
        return Told("policy", f"record {written(self.patient, order)}")

    def hear(self, who: Who, said: str) -> Told:
        """What is to be known, or what was concluded."""
        if who == "policy":
            return Told("partner", f"known {said} conclude")
        right = said.split() == [condition(self.patient)]
        return Told("policy", said, float(right), over=True, solved=right)


NEEDS = {"alone": "listen", "lost": "advise", "proud": "praise"}
"""What helps somebody who says so."""
BEGUN = 40
"""Mood at first."""


@dataclass
class Comfort:
    """The policy answers somebody whom the partner speaks for, and whose mood follows by rule what the policy does.

        alone | listen | lost | advise | ...

    Mood begins at 40 of 100, rises by 20 where an answer helps and falls by 10 where not; at the end it is the reward,
    and whoever feels better than at first is comforted. The rule reads the need, not the partner's words, so the score
    cannot be talked up.
    """

    turns: int = 3
    mood: int = BEGUN
    left: list[str] = field(default_factory=list)

    def begin(self, random: Random) -> Told:
        """The partner speaks first."""
        self.left = [random.choice(list(NEEDS)) for _ in range(self.turns)]
        return Told("partner", f"user feels {self.left[0]} mood {self.mood}")

    def hear(self, who: Who, said: str) -> Told:
        """How somebody feels, or what is said to it."""
        if who == "partner":
            return Told("policy", f"friend {said}", state=f"friend {said}")
        helped = said.split() == [NEEDS[self.left.pop(0)]]
        self.mood = min(100, max(0, self.mood + (20 if helped else -10)))
        if not self.left:
            return Told("policy", "", self.mood / 100, over=True, solved=self.mood > BEGUN)
        return Told("partner", f"user feels {self.left[0]} mood {self.mood}")
