"""A frozen model plays the other side: a simulated user, a speaker, a worker or an actor.

    consult    the policy asks, the partner answers for a patient           (ProMed, paper 239)
    direct     the policy gives orders, the partner carries them out        (RLAP 14, OWL 185, EPO 301, PPDPP 349)
    brief      the policy writes what the partner is to know                (RLAdapter, paper 46)
    comfort    the partner plays a user with a mood that follows a rule     (RLVER, paper 267)

The partner is the policy that the run began with, or a model folder. Its weights are frozen and its words are not
trained on: they are not tokens of the policy, or only appear there as the environment's answers. It reads the problem's
prompt, followed by the text of the scene, without any earlier history. The turns of both are drawn in waves. The
patient, or the user's feelings, are drawn with the problem's prompt as seed: the episodes of a group share them, and
held-out problems have others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import NonNegativeFloat

from models.agents.play.frozen_partner import FrozenPartner
from models.agents.play.scenes import Brief, Comfort, Consult, Direct, Scene, SceneSpeaker
from models.method.environment import EnvironmentAnswer, Info, Seat
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath
from models.method.registry import part


@part("partner")
class Partner(FrozenPartner):
    """A scene that the policy plays with a frozen model."""

    scene: Literal["consult", "direct", "brief", "comfort"] = "consult"
    """The scene that is played."""
    model: ContentPath = ""
    """Model folder of the partner; empty: the policy that the run began with."""
    gain: NonNegativeFloat = 1.0
    """Reward per nat that a question, or a check, gained (consult, direct)."""
    cost: NonNegativeFloat = 0.05
    """Cost of a check (direct)."""

    def seats(self, problem: Problem) -> Sequence[Seat]:
        """Return the seats of the policy and the partner."""
        shared = _SharedScene(self._scene(), Random(problem.prompt))
        partner = Seat(_Side(shared, "partner"), "frozen", learns=False, prompt=problem.prompt, forgets=True)
        return Seat(_Side(shared, "policy")), partner

    def _scene(self) -> Scene:
        if self.scene == "consult":
            return Consult(gain=self.gain)
        if self.scene == "direct":
            return Direct(cost=self.cost, gain=self.gain)
        return Brief() if self.scene == "brief" else Comfort()


class _SharedScene:
    """The current state of a scene, shared by both sides."""

    def __init__(self, scene: Scene, chance: Random) -> None:
        self.scene = scene
        self.outcome = scene.begin(chance)


class _Side:
    """The view of a scene from one side."""

    def __init__(self, shared: _SharedScene, speaker: SceneSpeaker) -> None:
        self._shared, self._speaker = shared, speaker

    def reset(self, seed: int) -> tuple[str, Info]:
        outcome = self._shared.outcome
        if outcome.next != self._speaker:
            return "", {"waits": True}
        return outcome.text, {"state": outcome.state}

    def step(self, turn: str) -> EnvironmentAnswer | None:
        self._shared.outcome = self._shared.scene.apply(self._speaker, turn)
        return self.news()

    def news(self) -> EnvironmentAnswer | None:
        outcome = self._shared.outcome
        if not outcome.over and outcome.next != self._speaker:
            return None
        info = {"state": outcome.state} | ({"solved": outcome.solved} if outcome.over else {})
        return outcome.text, outcome.reward, outcome.over, False, info

    def close(self) -> None:
        return None
