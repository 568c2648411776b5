"""Episodes of the data as rollouts: demonstrations of several turns, sound or flawed, from any source."""

from __future__ import annotations

from collections.abc import Sequence

from models.datasets.schema import TURNS
from models.method.episode import Turn
from models.method.problem import KnownAnswer, Problem
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.text.bridge import Role, bridge_of
from models.text.encoding import Codec


def logged_episodes(
    codec: Codec, role: Role, problems: Sequence[Problem], groups: Sequence[int], answers: Sequence[KnownAnswer]
) -> list[Rollout]:
    """Convert answers of the data to episodes, [episodes], with the tokens that they would have if they were played.

    Args:
        codec: the policy's tokenizer.
        role: role of the environment in a chat template.
        problems: problem of each answer, [episodes].
        groups: group of each answer, [episodes].
        answers: texts with a sign between turns (`TURNS`), alternately the policy's and the environment's.

    Raises:
        UserError: the chat template cannot be continued.
    """
    texts = [answer.text.split(TURNS) for answer in answers]
    policy_ids = iter(codec.completions([text for turn_texts in texts for text in turn_texts[::2]]))
    bridge = bridge_of(codec, role) if any(len(turn_texts) > 1 for turn_texts in texts) else None
    environment_texts = [text for turn_texts in texts for text in turn_texts[1::2]]
    environment_ids = iter(bridge.ids(environment_texts) if bridge is not None else [])
    rollouts = []
    for problem, group, answer, turn_texts in zip(problems, groups, answers, texts, strict=True):
        tokens: list[int] = []
        turns: list[Turn] = []
        for place, text in enumerate(turn_texts):
            ids = next(environment_ids if place % 2 else policy_ids)
            if place % 2 == 0:
                response = turn_texts[place + 1] if place + 1 < len(turn_texts) else ""
                turns.append(Turn(len(tokens), len(tokens) + len(ids), text=text, response=response))
            tokens += ids
        stop = turns[-1].stop  # the environment's last text is not answered and is left out
        rollout = Rollout(
            problem,
            group,
            tuple(tokens[:stop]),
            None,
            "\n".join(turn.text for turn in turns),
            finished=True,
            source=RolloutSource(origin=answer.origin, flaw=answer.flaw),
            episode=RolloutEpisode(turns=tuple(turns)),
        )
        rollouts.append(rollout)
    return rollouts
