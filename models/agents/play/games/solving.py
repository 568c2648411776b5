"""Exploitability of a strategy, and regret matching, which finds equilibria.

    exploitability = (best response to the second seat + best response to the first) / 2        two seats, zero sum

in the game's units, computed by enumerating every way the game can be played. It is zero only in an equilibrium.
Counterfactual regret minimisation (Zinkevich et al. 2007): at every information set the next strategy is proportional
to the positive part of the regrets so far, weighted by the probability with which the others and chance lead there; the
average strategy converges to an equilibrium.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.agents.play.games.game import Game, Knows, Profile, State, information_sets, knows


def value(game: Game, profile: Profile) -> tuple[float, ...]:
    """Return the expected outcome for each seat if all play the profile, [seats]."""

    def of(state: State) -> tuple[float, ...]:
        mover = game.mover(state)
        if mover is None:
            return game.worth(state)
        chances = profile[mover][knows(game, state, mover)]
        rows = [of((*state, action)) for action in game.actions(state)]
        return tuple(sum(p * row[seat] for p, row in zip(chances, rows, strict=True)) for seat in range(game.seats))

    rows = [(chance, of((deal,))) for chance, deal in game.deals()]
    return tuple(sum(chance * row[seat] for chance, row in rows) for seat in range(game.seats))


def best_response(game: Game, profile: Profile, seat: int) -> float:
    """Return the maximum expected outcome of a seat against the strategies of the others."""

    def of(weighted: Sequence[tuple[float, State]]) -> float:
        """Return the weighted outcome of indistinguishable states if the seat plays its best actions from there on."""
        total = 0.0
        waiting = list(weighted)
        sets: dict[Knows, list[tuple[float, State]]] = {}
        while waiting:
            weight, state = waiting.pop()
            mover = game.mover(state)
            if mover is None:
                total += weight * game.worth(state)[seat]
            elif mover == seat:
                sets.setdefault(knows(game, state, seat), []).append((weight, state))
            else:
                chances = profile[mover][knows(game, state, mover)]
                waiting += [
                    (weight * chance, (*state, action))
                    for chance, action in zip(chances, game.actions(state), strict=True)
                ]
        for alike in sets.values():
            actions = game.actions(alike[0][1])
            total += max(of([(weight, (*state, action)) for weight, state in alike]) for action in actions)
        return total

    return of([(chance, (deal,)) for chance, deal in game.deals()])


def exploitability(game: Game, profile: Profile) -> float:
    """Return the mean over both seats of the outcome of a best response to the profile, in the game's units.

    Raises:
        ValueError: the game does not have two seats.
    """
    if game.seats != 2:
        raise ValueError(f"exploitability is that of games of two seats, not of {game.seats}")
    return (best_response(game, profile, 0) + best_response(game, profile, 1)) / 2


def action_values(game: Game, profile: Profile) -> list[dict[Knows, tuple[float, ...]]]:
    """Return the expected outcome of each action at every information set, for each seat.

    It is the counterfactual value divided by the probability with which the others and chance lead there; zero if they
    never do.
    """
    sets = information_sets(game)
    totals = [{known: [0.0] * len(actions) for known, actions in of_seat.items()} for of_seat in sets]
    reached = [dict.fromkeys(of_seat, 0.0) for of_seat in sets]

    def add(seat: int, known: Knows, others: float, own: float, won: Sequence[float], mean: float) -> None:
        reached[seat][known] += others
        totals[seat][known] = [total + others * each for total, each in zip(totals[seat][known], won, strict=True)]

    _go_through(game, profile, add)
    return [
        {known: tuple(each / reach[known] if reach[known] else 0.0 for each in row) for known, row in of_seat.items()}
        for of_seat, reach in zip(totals, reached, strict=True)
    ]


def regret_matching(game: Game, rounds: int) -> list[dict[Knows, tuple[float, ...]]]:
    """Return the average strategy of each seat after `rounds` rounds of counterfactual regret minimisation."""
    sets = information_sets(game)
    regrets = [{known: [0.0] * len(actions) for known, actions in of_seat.items()} for of_seat in sets]
    played = [{known: [0.0] * len(actions) for known, actions in of_seat.items()} for of_seat in sets]

    def add(seat: int, known: Knows, others: float, own: float, won: Sequence[float], mean: float) -> None:
        for number, each in enumerate(won):
            regrets[seat][known][number] += others * (each - mean)
            played[seat][known][number] += own * strategies[seat][known][number]

    for _ in range(rounds):
        strategies = [{known: matched(row) for known, row in of_seat.items()} for of_seat in regrets]
        _go_through(game, strategies, add)
    return [{known: normalised(row) for known, row in of_seat.items()} for of_seat in played]


Visit = Callable[[int, Knows, float, float, Sequence[float], float], None]
"""Callback for a state: the seat to move, its information set, the probability with which the others and chance lead
there, the probability of its own choices, the outcome of each action for it, and their mean."""


def _go_through(game: Game, profile: Profile, visit: Visit) -> None:
    """Visit every state in which a seat is to move, later ones first."""

    def of(state: State, reach: tuple[float, ...], chance: float) -> tuple[float, ...]:
        mover = game.mover(state)
        if mover is None:
            return game.worth(state)
        known = knows(game, state, mover)
        now = profile[mover][known]
        rows = [
            of((*state, action), (*reach[:mover], reach[mover] * p, *reach[mover + 1 :]), chance)
            for p, action in zip(now, game.actions(state), strict=True)
        ]
        mean = tuple(sum(p * row[seat] for p, row in zip(now, rows, strict=True)) for seat in range(game.seats))
        others = chance
        for seat, share in enumerate(reach):
            others *= share if seat != mover else 1.0
        visit(mover, known, others, reach[mover], [row[mover] for row in rows], mean[mover])
        return mean

    for chance, deal in game.deals():
        of((deal,), (1.0,) * game.seats, chance)


def matched(regrets: Sequence[float]) -> tuple[float, ...]:
    """Return probabilities proportional to the positive part of the regrets; uniform if no regret is positive."""
    return normalised([max(0.0, regret) for regret in regrets])


def normalised(weights: Sequence[float]) -> tuple[float, ...]:
    """Return weights divided by their sum; uniform if it is zero."""
    total = sum(weights)
    return tuple(weight / total if total > 0 else 1 / len(weights) for weight in weights)
