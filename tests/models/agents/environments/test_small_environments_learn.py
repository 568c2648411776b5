"""A table of action probabilities, trained by REINFORCE, nearly reaches the known optimum of each small environment."""

import json
from collections import defaultdict
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from models.agents.environments.experiments import Experiments
from models.agents.environments.graph_prompts import GraphPrompts, least_loss
from models.agents.environments.layers import LayerChoices, compared
from models.agents.environments.rank_attack import RankAttack
from models.agents.environments.synthesis import Synthesis
from models.agents.play.documents import as_line
from models.agents.play.graph_network import KindGraph, graph_network
from models.agents.small_sets.experiments import SET as EXPERIMENTS
from models.agents.small_sets.graph_prompts import SET as GRAPH_PROMPTS
from models.agents.small_sets.layers import SET as LAYERS
from models.agents.small_sets.rank_attack import SET as RANK_ATTACK
from models.agents.small_sets.rank_attack import SYNONYMS
from models.agents.small_sets.rows import SmallSet
from models.agents.small_sets.synthesis import SET as SYNTHESIS
from models.method.environment import Environment
from models.method.problem import Problem

Table = defaultdict[str, NDArray[np.float64]]
ROUNDS, GROUP, RATE = 60, 16, 3.0
OFFERED: dict[str, Callable[[str], list[str]]] = {
    "experiments": lambda answer: [
        *(f"1: {line}" for line in ("k = 1", "k = 5", "k = 25")),
        *(f"2: {line}" for line in ("scale = 9", "scale = 0")),
        "done",
    ],
    "rank_attack": lambda answer: [
        f"{old} {new}"
        for group in SYNONYMS
        for old in group
        if old in json.loads(answer)["document"].split()
        for new in group
        if new != old
    ],
}
"""Turns that the table chooses from, if the environment lists none."""


def episode(
    environment: Environment, problem: Problem, table: Table, random: Random, offered: list[str]
) -> tuple[float, list[tuple[str, int, int]]]:
    """Play an episode. Returns its reward, and state, choice and number of actions of each turn."""
    opened = environment.open(problem)
    _, info = opened.reset(0)
    taken: list[tuple[str, int, int]] = []
    total, over = 0.0, False
    while not over:
        actions = list(info.get("actions", offered))
        state = f"{len(taken)} {info['state']}"
        scores = table[state] if state in table else np.zeros(len(actions))
        shares = np.exp(scores - scores.max())
        choice = random.choices(range(len(actions)), weights=shares.tolist())[0]
        taken.append((state, choice, len(actions)))
        _, reward, terminated, truncated, info = opened.step(actions[choice])
        total, over = total + reward, terminated or truncated
    return total, taken


def learned(environment: Environment, problem: Problem) -> tuple[float, float]:
    """Return the mean reward of the first and of the last five rounds."""
    table: Table = defaultdict(lambda: np.zeros(0))
    random, means = Random(1), list[float]()
    offered = OFFERED[environment.name](problem.answer) if environment.name in OFFERED else []
    for _ in range(ROUNDS):
        group = [episode(environment, problem, table, random, offered) for _ in range(GROUP)]
        rewards = np.array([reward for reward, _ in group])
        means.append(float(rewards.mean()))
        for advantage, (_, taken) in zip((rewards - rewards.mean()) / (rewards.std() + 1e-6), group, strict=True):
            for state, choice, count in taken:
                scores = table[state] if len(table[state]) else np.zeros(count)
                shares = np.exp(scores - scores.max())
                step = -shares / shares.sum()
                step[choice] += 1.0
                table[state] = scores + RATE * advantage * step / GROUP
    return float(np.mean(means[:5])), float(np.mean(means[-5:]))


def first_problem(small: SmallSet, level: int | None = None) -> Problem:
    random = Random(6)
    while True:
        task = small.draw(random)
        if level in (None, task.level):
            return Problem("p", task.prompt, task.answer)


def test_layers_and_synthesis_are_learned_up_to_their_optimum() -> None:
    teacher = first_problem(LAYERS)
    first, last = learned(LayerChoices(near=1.0), teacher)
    known = json.loads(teacher.answer)
    assert last > 0.95 * compared(known["seed"], known["blocks"], ("drop",)).best > 1.1 * first
    first, last = learned(Synthesis(), first_problem(SYNTHESIS))
    assert last > first + 0.2


def test_graph_prompts_are_learned_up_to_their_optimum() -> None:
    problem = first_problem(GRAPH_PROMPTS)
    known = json.loads(problem.answer)
    graph = KindGraph(known["kinds"], tuple(map(tuple, known["edges"])))
    most = graph_network().loss(graph, known["label"]) - least_loss(graph, known["label"], 2)
    first, last = learned(GraphPrompts(prompts=2), problem)
    assert last > 0.8 * most > 2.0 * first


def test_experiments_are_learned() -> None:
    first, last = learned(Experiments(edits=2), first_problem(EXPERIMENTS, level=4))
    assert last > first + 0.02


def test_the_ranking_attack_is_learned_by_its_surrogate(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("rank_attack") / "documents.jsonl"
    file.write_text("".join(as_line(text) + "\n" for text in RANK_ATTACK.documents()[1]))
    environment = RankAttack(documents=str(file), synonyms=SYNONYMS, edits=3)
    first, last = learned(environment, first_problem(RANK_ATTACK))
    assert last > 0.9 > first
