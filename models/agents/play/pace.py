"""Episodes at their own pace: each continues as soon as its own turn and its own answer are complete.

The engine writes the turns of some episodes while the environments of others answer, each in a thread of its own, so no
episode waits for the slowest of a wave. A request depends only on its own episode, so the tokens are those of the
waves, except for rounding: the turns that share a batch depend on timing, and batches may sum in another order. A run
that must be reproducible bit for bit plays in waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from models.agents.play.answers import AT_ONCE, EnvironmentCalls
from models.agents.play.playing import Playing
from models.base.device import device
from models.base.errors import UserError
from models.base.user_code.contain import file_of
from models.engines.engine import Engine, Sampling
from models.engines.pumps import BackgroundEngines
from models.method.environment import Environment
from models.text.bridge import Bridge
from models.text.encoding import Codec


def at_own_pace(
    engine: Engine,
    codec: Codec,
    bridge: Bridge | None,
    playing: Sequence[Playing],
    sampling: Sampling,
    environment: Environment,
) -> None:
    """Play open episodes to their ends, each at its own pace.

    Args:
        engine: writes the policy's turns concurrently, as far as it has room.
        codec: the policy's tokenizer.
        bridge: tokens between turns; None if an episode has one turn.
        playing: episodes that have begun.
        sampling: sampling settings of the turns.
        environment: environment of the episodes; states whether several episodes may be stepped concurrently.

    Raises:
        UserError: the engine cannot take further requests while others are running.
    """
    here = device()
    pumps = BackgroundEngines(engine, sampling, here)
    if pumps.room < 1:
        raise UserError(
            "rollouts.waves is false, but this engine cannot take up a turn while it writes others: leave it out "
            "(vLLM can where VLLM_ENABLE_V1_MULTIPROCESSING is 0)"
        )
    pumps.loaded(0)
    if here.type == "cuda":
        torch.cuda.synchronize(here)  # weights were copied on a stream that is not the engine's
    seconds, at_once = playing[0].limits.seconds if playing else 0.0, AT_ONCE if environment.at_once else 1
    answers = EnvironmentCalls(seconds, at_once, pumps.nudge, file_of(environment))
    open_numbers = {number for number, episode in enumerate(playing) if not episode.over}
    requests = {number: playing[number].request() for number in open_numbers}
    pumps.start()
    try:
        while open_numbers:
            if requests:
                pumps.request(requests)
            completions = pumps.ended(wait=True, seconds=answers.patience())
            texts = codec.text([completion.generated.tokens for completion in completions])
            for completion, text in zip(completions, texts, strict=True):
                episode = playing[completion.number]
                episode.record_turn(completion.generated, text)
                if not episode.over:
                    answers.request(completion.number, partial(episode.opened.step, text))
            calls = answers.over()
            for call in calls:
                playing[call.number].receive(call.result, call.error, call.seconds)
            continuing_numbers = [call.number for call in calls if not playing[call.number].over]
            if bridge is not None and continuing_numbers:
                for number, ids in zip(
                    continuing_numbers,
                    bridge.ids([playing[n].turns[-1].response for n in continuing_numbers]),
                    strict=True,
                ):
                    playing[number].read(ids)
            open_numbers = {number for number in open_numbers if not playing[number].over}
            requests = {number: playing[number].request() for number in continuing_numbers if number in open_numbers}
    finally:
        pumps.close()
