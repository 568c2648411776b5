"""Generation of episodes, in waves or each at its own pace (`models.agents.play.pace`).

In a wave, every open episode takes one turn, and then every environment answers.

    turn      engine     one completion each, until the token that ends a turn or the limit of tokens
    step      environment     text, reward, over or not
    bridge    ids of that text, appended to the sampled ids, which are never encoded again

The request of a turn depends only on run, round, problem and turn, so a run that was killed plays its round again and
draws the same episodes. An environment that hangs or fails ends its own episode only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from models.agents.play.answers import in_time
from models.agents.play.pace import at_own_pace
from models.agents.play.playing import Playing
from models.agents.play.seated import play_seated
from models.agents.play.speakers import voices_of
from models.base.errors import UserError, shortened
from models.base.seeds import turn_seed
from models.base.user_code.contain import file_of, restored
from models.engines.engine import Engine, Sampling, requests_of
from models.method.environment import EpisodeSettings
from models.method.episode import Episode
from models.method.problem import Problem
from models.text.bridge import Bridge, bridge_of
from models.text.encoding import Codec


def play(
    engine: Engine,
    codec: Codec,
    settings: EpisodeSettings,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
    policy_folder: Path | None = None,
) -> list[list[Episode]]:
    """Play `sampling.samples` episodes of each problem, [problems][G], reproducible by the seed.

    If several seats learn, there are as many episodes of each seat, except those in which it never came to move.

    Args:
        engine: generates the policy's turns.
        codec: the policy's tokenizer.
        settings: environment and limits.
        problems: problems with encoded prompts, with which the episodes begin.
        sampling: sampling settings of the turns; `max_tokens` limits the whole episode, including the environment's
            words.
        seed: seed of the completions, as in `Engine.generate`: an episode of one turn is that completion, bit for bit.
        policy_folder: model folder of the policy, or of its start, in which a frozen model is looked up.

    Raises:
        UserError: a problem does not belong to this environment, the chat template cannot be continued, or the engine
            cannot let episodes continue at their own pace.
    """
    driven_episodes = settings.environment.drive(engine, codec, settings.limits, problems, sampling, seed)
    if driven_episodes is not None:
        return driven_episodes
    if settings.environment.several:
        if not settings.waves:
            raise UserError(f"rollouts.waves is false, but environment {settings.environment.name} has several seats")
        voices = voices_of(settings.environment, engine, codec, settings.role, settings.limits.turns, policy_folder)
        return play_seated(voices, settings.environment, settings.limits, problems, sampling, seed)
    requests = requests_of([problem.tokens for problem in problems], sampling, seed)
    playing: list[Playing] = []
    try:
        for place, request in enumerate(requests):
            opened = settings.environment.open(problems[place // sampling.samples])
            playing.append(Playing(request.prompt, opened, request.seed, sampling.max_tokens, settings.limits))
        _begin(playing, codec, settings)
        to_their_ends(engine, codec, settings, playing, sampling)
    finally:
        for episode in playing:
            episode.opened.close()
    episodes = [episode.to_episode(sampling.log_probs) for episode in playing]
    return [episodes[at : at + sampling.samples] for at in range(0, len(episodes), sampling.samples)]


def to_their_ends(
    engine: Engine, codec: Codec, settings: EpisodeSettings, playing: Sequence[Playing], sampling: Sampling
) -> None:
    """Play episodes that have begun to their ends, in waves or each at its own pace; see `play`."""
    bridge = bridge_of(codec, settings.role) if settings.limits.turns > 1 else None
    if settings.waves:
        _in_waves(engine, codec, bridge, playing, sampling)
    else:
        with restored(file_of(settings.environment), engine_works=True):
            at_own_pace(engine, codec, bridge, playing, sampling, settings.environment)


def _begin(playing: Sequence[Playing], codec: Codec, settings: EpisodeSettings) -> None:
    """Reset all environments; their first texts follow the prompt, on lines of their own."""
    for episode in playing:
        seed = turn_seed(episode.seed, -1)
        try:
            text, info = in_time(settings.limits.seconds, lambda: episode.opened.reset(seed), episode.opened)  # noqa: B023
        except (UserError, MemoryError):
            raise
        except Exception as error:  # an environment may raise any exception
            raise UserError(
                f"environment {settings.environment.name}: an episode could not begin "
                f"({type(error).__name__}: {shortened(str(error), 200)})"
            ) from error
        episode.note(info)
        if text:
            (ids,) = codec.inside([f"\n{text}\n"])
            if len(ids) >= episode.longest:
                raise UserError(
                    f"rollouts.max_tokens is {episode.longest}, but environment {settings.environment.name} begins "
                    f"with {len(ids)} tokens; raise it"
                )
            episode.read(ids)


def _in_waves(
    engine: Engine, codec: Codec, bridge: Bridge | None, playing: Sequence[Playing], sampling: Sampling
) -> None:
    """Take one turn of each open episode, then the environments' answers, until all episodes are over."""
    while open_episodes := [episode for episode in playing if not episode.over]:
        completions = engine.complete([episode.request() for episode in open_episodes], sampling)
        texts = codec.text([generated.tokens for generated in completions])
        for episode, generated, text in zip(open_episodes, completions, texts, strict=True):
            episode.record_turn(generated, text)
            if not episode.over:
                _step(episode, text)
        continuing_episodes = [episode for episode in open_episodes if not episode.over]
        if bridge is None or not continuing_episodes:
            continue
        for episode, ids in zip(
            continuing_episodes,
            bridge.ids([episode.turns[-1].response for episode in continuing_episodes]),
            strict=True,
        ):
            episode.read(ids)


def _step(episode: Playing, text: str) -> None:
    """Pass a turn to the environment and take its answer."""
    answer, raised, began = None, None, time.perf_counter()
    try:
        answer = in_time(episode.limits.seconds, lambda: episode.opened.step(text), episode.opened)
    except Exception as error:  # an environment may raise any exception
        raised = error
    episode.receive(answer, raised, time.perf_counter() - began)
