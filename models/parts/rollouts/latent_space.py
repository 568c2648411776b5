"""A game in free text, solved over clusters of messages, and turned into pairs of texts (LSPO, arXiv 2502.04686).

Source: paper 77.

    self-play    ->  messages at the same set of legal actions, in clusters  ->  the game of the clusters
    regret matching on it (CFR)  ->  value of each cluster at each information set  ->  value of each turn in it

A turn is a rollout whose prompt is all that its seat had read and written. Its group holds the turns with the same
history: pairs of them (select best_worst) prefer what the solved game prefers, for DPO. The next round plays with the
policy that was trained on them. A text that is not an action is worth the worst value of the game, whatever cluster it
is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import NamedTuple

from models.agents.environments.table import Table
from models.agents.play.games import GAMES
from models.agents.play.games.clusters import LatentGame, clustered
from models.agents.play.games.game import Game, Knows, information_sets, read_action
from models.agents.play.games.solving import action_values, regret_matching
from models.base.bounds import Positive
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rollouts.episodes import Chosen, Episodes

Actions = tuple[str, ...]
SOLVABLE = "kuhn_poker", "mole"
"""Games that are small enough to be solved."""


@part("latent_space")
class LatentSpace(Episodes):
    """Turns of self-play, each worth the value of its cluster in the solved game. Set under `rollouts:`."""

    gives = ("values",)
    environment: Chosen = field(default_factory=lambda: Table(free=True))
    """A `table` with a game that is small enough to be enumerated quickly."""
    clusters: Positive = 4
    """Most clusters of the messages at the same set of legal actions."""
    solving: Positive = 500
    """Rounds of regret matching."""

    @property
    def misfit(self) -> str:
        """Reason to refuse an environment that is not a game small enough to be solved every round; empty if it is."""
        if isinstance(self.environment, Table) and self.environment.game in SOLVABLE:
            return ""
        return f"rollouts latent_space needs environment: {{name: table}} with {' or '.join(SOLVABLE)}"

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return turns after their histories, those with the same one next to each other, [turns]."""
        assert isinstance(self.environment, Table)
        game = GAMES[self.environment.game]
        places = {
            " ".join(known): (seat, known, actions)
            for seat, of_seat in enumerate(information_sets(game))
            for known, actions in of_seat.items()
        }
        turns = [
            _PlayedTurn(
                rollout, turn, *places[turn.state], read_action(turn.text, places[turn.state][2], self.environment.free)
            )
            for rollout in super().__call__(resources, problems, round_number)
            for turn in rollout.episode.turns[: len(rollout.episode.turns) - (rollout.episode.cut == "tokens")]
            if rollout.trained_tokens
        ]
        meanings = self._cluster_meanings(turns)
        remaining: dict[Actions, set[str]] = {}
        for each, meaning in zip(turns, meanings, strict=True):
            if meaning:
                remaining.setdefault(each.actions, set()).add(meaning)
        values = _solved(
            game.name, frozenset((kind, frozenset(some)) for kind, some in remaining.items()), self.solving
        )
        groups: dict[tuple[int, ...], list[Rollout]] = {}
        for each, meaning in zip(turns, meanings, strict=True):
            completion = each.as_rollout(
                game.least if not each.action else values[each.seat].get(each.known, {}).get(meaning)
            )
            groups.setdefault(tuple(completion.problem.tokens), []).append(completion)
        return [replace(completion, group=number) for number, some in enumerate(groups.values()) for completion in some]

    def _cluster_meanings(self, turns: Sequence[_PlayedTurn]) -> list[str]:
        """Return the most frequent action in each turn's cluster, [turns]; empty: most of its texts are not actions."""
        meanings = [""] * len(turns)
        for kind in dict.fromkeys(each.actions for each in turns):
            indices = [place for place, each in enumerate(turns) if each.actions == kind]
            labels = clustered([turns[place].turn.text for place in indices], self.clusters)
            for label in set(labels):
                members = [place for place, other in zip(indices, labels, strict=True) if other == label]
                ((most, _),) = Counter(turns[place].action for place in members).most_common(1)
                for place in members:
                    meanings[place] = most
        return meanings


class _PlayedTurn(NamedTuple):
    """A turn, its information set and its action."""

    rollout: Rollout
    turn: Turn
    seat: int
    known: Knows
    actions: Actions
    action: str
    """Action of the turn; empty: the text is not an action."""

    def as_rollout(self, value: float | None) -> Rollout:
        """Convert the turn to a completion of its history."""
        rollout, (start, stop) = self.rollout, self.turn[:2]
        tokens = (*rollout.problem.tokens, *rollout.completion[:start])
        log_probs = rollout.behaviour_log_probs
        return Rollout(
            replace(rollout.problem, tokens=tokens),
            0,
            rollout.completion[start:stop],
            None if log_probs is None else log_probs[start:stop],
            self.turn.text,
            finished=True,
            episode=RolloutEpisode(history=start),
            source=RolloutSource(value=value),
        )


@lru_cache(maxsize=16)
def _solved(
    name: str, remaining: frozenset[tuple[Actions, frozenset[str]]], rounds: int
) -> Sequence[Mapping[Knows, Mapping[str, float]]]:
    """Return the value of each remaining action at every information set of the game of the clusters, for each seat."""
    game: Game = LatentGame(GAMES[name], dict(remaining))
    values = action_values(game, regret_matching(game, rounds))
    return [
        {known: dict(zip(actions, of_seat[known], strict=True)) for known, actions in sets.items()}
        for of_seat, sets in zip(values, information_sets(game), strict=True)
    ]
