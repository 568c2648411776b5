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
    said = iter(codec.completions([text for of_episode in texts for text in of_episode[::2]]))
    bridge = bridge_of(codec, role) if any(len(of_episode) > 1 for of_episode in texts) else None
    words = [text for of_episode in texts for text in of_episode[1::2]]
    heard = iter(bridge.ids(words) if bridge is not None else [])
    made = []
    for problem, group, answer, of_episode in zip(problems, groups, answers, texts, strict=True):
        tokens: list[int] = []
        turns: list[Turn] = []
        for place, text in enumerate(of_episode):
            ids = next(heard if place % 2 else said)
            if place % 2 == 0:
                following = of_episode[place + 1] if place + 1 < len(of_episode) else ""
                turns.append(Turn(len(tokens), len(tokens) + len(ids), text=text, response=following))
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
        made.append(rollout)
    return made
