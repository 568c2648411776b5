"""The benefit of a tool: a policy calls the calculator and copies its answer, with the calculator and without it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import torch
from torch import Tensor

from models.agents.environments.tools import Tools
from models.agents.tools.search import DocumentSearch
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rollouts.episodes import Episodes
from models.recipes.load import load_recipe
from models.task_sets.calculator import CalculatorSettings
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_resources import make_resources

SETTINGS = CalculatorSettings(problems={}, factor=(12, 99), summand=(10, 999), guessed=0.0, miscopied=0.0)
CODEC = Codec(train_tokenizer(["0123456789"], TokenizerSettings(kind="bytes", vocabulary=259)))


class Copier(Engine):
    """An engine that calls the calculator with the text before the equals sign, then states the last line it reads."""

    dtype, vocabulary = torch.float32, 259

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        made = []
        for ask in requests:
            lines = CODEC.text([ask.prompt])[0].strip().splitlines()
            asked = lines[0].removesuffix(" = ?")
            text = f"calculator: {asked}" if len(lines) == 1 else f"#### {lines[-1]}"
            (ids,) = CODEC.completions([text.partition("calculator: calculator")[0]])
            made.append(Generated(tuple(ids), torch.zeros(len(ids)), True))
        return made

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[0.0] * len(ids) for ids in completions]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        return None

    def close(self) -> None:
        return None


def played(source: Episodes) -> tuple[list[Rollout], list[float]]:
    random = Random(5)
    tasks = [SETTINGS.draw(random) for _ in range(20)]
    problems = [
        Problem(f"p{number}", task.prompt, task.answer, task.level, tuple(ids))
        for number, (task, ids) in enumerate(
            zip(tasks, CODEC.prompts([f"{task.prompt}\n" for task in tasks]), strict=True)
        )
    ]
    resources = make_resources(Copier(), codec=CODEC)
    made = source(resources, problems, 0)
    return made, ExactAnswer()(resources, made).tolist()


def test_products_are_solved_with_the_calculator_and_not_without_and_no_token_of_it_is_trained_on() -> None:
    source = load_recipe("retool").rollouts
    assert isinstance(source, Episodes) and source.environment.name == "tools"
    made, right = played(replace(source, group_size=1, prompts=20))
    assert right == [1.0] * 20
    for rollout in made:
        assert rollout.trained is not None and len(rollout.episode.turns) == 2
        said = CODEC.text([[token for token, mine in zip(rollout.completion, rollout.trained, strict=True) if mine]])
        assert rollout.episode.turns[0].response == rollout.problem.answer
        assert said[0].startswith("calculator: ") and said[0].endswith(f"#### {rollout.problem.answer}")
        assert sum(rollout.trained) == sum(turn.stop - turn.start for turn in rollout.episode.turns)
    without = Episodes(prompts=20, group_size=1, max_tokens=72, environment=Tools(tool=[DocumentSearch()]))
    assert played(without)[1] == [0.0] * 20
