"""The strategy that a policy plays: its probability of each action at every information set.

Probabilities are normalised over the actions. The tokens are those that the policy reads and writes when it plays at a
table (`models.agents.environments.table`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from models.agents.play.games.game import Game, Knows, State, knows, states
from models.learner.packing import PerToken
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec


class ActionCompletion(NamedTuple):
    """An action at an information set, as a completion."""

    seat: int
    known: Knows
    rollout: Rollout


def choices(game: Game, codec: Codec, problem: Problem, role: Role = "user") -> list[ActionCompletion]:
    """Return every action at every information set, each as the last turn of a completion after the problem's prompt.

    Raises:
        UserError: the chat template cannot be continued.
    """
    completions: list[ActionCompletion] = []
    information_sets: set[tuple[int, Knows]] = set()
    for state in states(game):
        seat = game.mover(state)
        assert seat is not None
        known = knows(game, state, seat)
        if (seat, known) in information_sets:
            continue
        information_sets.add((seat, known))
        history = view(game, codec, state, seat, role)
        for ids in codec.completions(game.actions(state)):
            turn = Turn(len(history), len(history) + len(ids))
            completions.append(
                ActionCompletion(
                    seat,
                    known,
                    Rollout(problem, 0, (*history, *ids), None, "", True, episode=RolloutEpisode(turns=(turn,))),
                )
            )
    return completions


def strategies(
    game: Game, completions: Sequence[ActionCompletion], log_probs: Callable[[Sequence[Rollout]], PerToken]
) -> list[dict[Knows, tuple[float, ...]]]:
    """Return the policy's strategy for each seat.

    Args:
        game: game that the `choices` belong to.
        completions: all choices, with the actions of an information set in their order.
        log_probs: function that returns the log-probs of the tokens of completions, zero for tokens that the policy did
            not write, [completions] tensors, nats.
    """
    weights: list[dict[Knows, list[float]]] = [{} for _ in range(game.seats)]
    for choice, row in zip(completions, log_probs([choice.rollout for choice in completions]), strict=True):
        (turn,) = choice.rollout.episode.turns
        chance = float(row[turn.start :].double().sum().exp())
        weights[choice.seat].setdefault(choice.known, []).append(chance)
    return [{known: tuple(value / sum(row) for value in row) for known, row in of_seat.items()} for of_seat in weights]


def view(game: Game, codec: Codec, state: State, seat: int, role: Role = "user") -> tuple[int, ...]:
    """Return the tokens after the prompt that a seat has read and written before its move, [tokens].

    If it is not to move, they are the tokens that it would have read and written.

    Raises:
        UserError: the chat template cannot be continued.
    """
    ids: tuple[int, ...] = ()
    opening, others_actions, has_moved = game.dealt(state[0], seat), list[str](), False
    bridge = bridge_of(codec, role)
    for number, action in enumerate((*state[1:], "")):
        if action and game.mover(state[: number + 1]) != seat:
            others_actions.append(action)
            continue
        text = "\n".join(words for words in (opening, " ".join(others_actions)) if words)
        if has_moved:
            ids += tuple(bridge.ids([text])[0])
        elif text:
            ids += tuple(codec.inside([f"\n{text}\n"])[0])
        if action:
            ids += tuple(codec.completions([action])[0])
        opening, others_actions, has_moved = "", [], True
    return ids
