"""Generation of episodes of several seats in waves: each seat to move takes a turn, then the environments answer.

Each seat is an episode of its own: it has its own view and its own tokens, and is spoken for by the policy or by a
frozen model. The request of a turn depends only on run, round, problem, seat and turn. If one seat's episode is cut,
those of the other seats end with it. A seat that learns gives an episode if it came to move.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from models.agents.play.answers import in_time
from models.agents.play.playing import Playing
from models.agents.play.speakers import SpeakerModel
from models.base.errors import UserError, shortened
from models.base.seeds import seat_seed, turn_seed
from models.engines.engine import Sampling, requests_of
from models.method.environment import Environment, EnvironmentAnswer, Seat, Speaker, View
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.text.encoding import Codec


@dataclass
class _EpisodeSeat:
    """A seat of an open episode."""

    seat: Seat
    playing: Playing
    game: int
    """Index of the episode that it belongs to."""
    problem: Problem
    """Subject of the episode."""
    waits: bool = False
    """Whether others move first."""
    unread: str | None = None
    """Text that it received and has not read, as more may follow."""


def play_seated(
    voices: Mapping[Speaker, SpeakerModel],
    environment: Environment,
    limits: EpisodeLimits,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
) -> list[list[Episode]]:
    """Play episodes of several seats, [problems][seats that learn * G] at most, those of one seat adjacent.

    See `models.agents.play.play.play`.

    Args:
        voices: models of the speakers.
        environment: environment of the seats.
        limits: limits of each seat.
        problems: problems with encoded prompts.
        sampling: sampling settings of the turns.
        seed: seed of the completions.
    """
    episode_seats: list[_EpisodeSeat] = []
    try:
        for game, request in enumerate(requests_of([problem.tokens for problem in problems], sampling, seed)):
            for number, seat in enumerate(environment.seats(problems[game // sampling.samples])):
                prompt = (
                    request.prompt if seat.prompt is None else voices[seat.speaker].codec.unwrapped([seat.prompt])[0]
                )
                playing = Playing(
                    prompt, seat.opened, seat_seed(request.seed, number), sampling.max_tokens, _limits_of(seat, limits)
                )
                episode_seats.append(_EpisodeSeat(seat, playing, game, problems[game // sampling.samples]))
            _begin(episode_seats[-1 - number :], environment, limits, turn_seed(request.seed, -1))
        _read(episode_seats, voices, sampling.max_tokens)
        while movers := [each for each in episode_seats if not each.playing.over and not each.waits]:
            _wave(movers, voices, sampling)
            for each in episode_seats:
                if each.waits and not each.playing.over:
                    _take_answer(each, _news_of(each))
            _end_together(episode_seats)
            _read([each for each in episode_seats if not each.playing.over], voices, sampling.max_tokens)
            _end_together(episode_seats)
        for each in episode_seats:
            if not each.playing.over:  # all seats wait, and none has reported the end
                each.playing.end("turns")
    finally:
        for each in episode_seats:
            each.playing.opened.close()
    return _by_problem(episode_seats, sampling, len(problems))


def _limits_of(seat: Seat, limits: EpisodeLimits) -> EpisodeLimits:
    """Return the limits of a seat: those that do not learn may take more turns, as the policy's end the episode."""
    if seat.learns:
        return limits
    return replace(limits, turns=limits.turns * 2 + 1, turn_tokens=None if seat.answers else limits.turn_tokens)


def _begin(episode_seats: Sequence[_EpisodeSeat], environment: Environment, limits: EpisodeLimits, seed: int) -> None:
    """Reset the environment for each seat of an episode."""
    for each in episode_seats:
        try:
            text, info = in_time(limits.seconds, lambda: each.playing.opened.reset(seed), each.playing.opened)  # noqa: B023
        except (UserError, MemoryError):
            raise
        except Exception as error:  # an environment may raise any exception
            raise UserError(
                f"environment {environment.name}: an episode could not begin "
                f"({type(error).__name__}: {shortened(str(error), 200)})"
            ) from error
        each.playing.note(info)
        each.unread, each.waits = text, bool(info.get("waits"))


def _wave(movers: Sequence[_EpisodeSeat], voices: Mapping[Speaker, SpeakerModel], sampling: Sampling) -> None:
    """Take one turn of each seat that is to move, and its immediate outcome."""
    for speaker, voice in voices.items():
        own = [each for each in movers if each.seat.speaker == speaker]
        own.sort(key=lambda each: each.playing.reads)  # neighbours with the same history share its computation
        completions = voice.engine.complete([each.playing.request() for each in own], sampling) if own else []
        texts = voice.codec.text([generated.tokens for generated in completions])
        for each, generated, text in zip(own, completions, texts, strict=True):
            # half a turn of a seat that does not learn counts like a whole one, except where the seat answers
            taken = text if generated.finished or not each.seat.answers else ""
            each.playing.record_turn(generated if each.seat.learns else replace(generated, finished=True), text)
            if not each.playing.over:
                _take_answer(each, lambda: each.playing.opened.step(taken))  # noqa: B023 - called here


def _news_of(episode_seat: _EpisodeSeat) -> Callable[[], EnvironmentAnswer | None]:
    return cast(View, episode_seat.playing.opened).news  # only a view lets a seat wait


def _take_answer(episode_seat: _EpisodeSeat, fetch: Callable[[], EnvironmentAnswer | None]) -> None:
    """Take the environment's answer to a seat, or note that others move first."""
    answer, raised, began = None, None, time.perf_counter()
    try:
        answer = in_time(episode_seat.playing.limits.seconds, fetch, episode_seat.playing.opened)
    except Exception as error:  # an environment may raise any exception
        raised = error
    episode_seat.waits = answer is None and raised is None
    if not episode_seat.waits:
        episode_seat.playing.receive(answer, raised, time.perf_counter() - began)
        if answer is not None:
            episode_seat.unread = "\n".join(text for text in (episode_seat.unread, answer[0]) if text)


def _end_together(episode_seats: Sequence[_EpisodeSeat]) -> None:
    """End the other seats' episodes if a seat's episode was cut."""
    cuts = {each.game: each.playing.cut for each in episode_seats if each.playing.cut}
    for each in episode_seats:
        if not each.playing.over and each.game in cuts:
            each.playing.end(cuts[each.game])


def _read(episode_seats: Sequence[_EpisodeSeat], voices: Mapping[Speaker, SpeakerModel], max_tokens: int) -> None:
    """Append the unread texts of the seats to move to their tokens; a seat that forgets drops its tokens first."""
    for each in episode_seats:
        if each.waits or each.unread is None:
            continue
        voice, playing = voices[each.seat.speaker], each.playing
        if each.seat.forgets or each.seat.prompted:
            playing.tokens, playing.log_probs = [], []
        if each.seat.prompted:
            _read_prompt(each, voice.codec, max_tokens)
        elif each.seat.forgets or not playing.turns:
            if each.unread:
                playing.read(voice.codec.inside([f"\n{each.unread}\n"])[0])
        elif voice.bridge is not None:
            playing.read(voice.bridge.ids([each.unread])[0])
        each.unread = None


def _read_prompt(each: _EpisodeSeat, codec: Codec, max_tokens: int) -> None:
    """Make the unread text the prompt of a seat; a seat that answers has the fewer tokens left the longer it is."""
    texts = [each.unread or "", each.problem.prompt]
    prompt, alone = codec.prompts(texts, [each.problem.system] * len(texts))
    each.playing.prompt = prompt
    if each.seat.answers:
        each.playing.longest = max_tokens - max(0, len(prompt) - len(alone))
        if each.playing.longest < 1:
            each.playing.end("tokens")


def _by_problem(episode_seats: Sequence[_EpisodeSeat], sampling: Sampling, count: int) -> list[list[Episode]]:
    problems: list[dict[int, list[Episode]]] = [{} for _ in range(count)]
    seats: dict[int, int] = {}
    for each in episode_seats:
        if each.seat.learns:
            seat = seats[each.game] = seats.get(each.game, -1) + 1
            if each.playing.turns:
                of_seats = problems[each.game // sampling.samples]
                of_seats.setdefault(seat, []).append(each.playing.to_episode(sampling.log_probs, seat))
    return [[episode for seat in sorted(seats) for episode in seats[seat]] for seats in problems]
