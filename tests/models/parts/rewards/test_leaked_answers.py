"""An answer that only a tool or an environment states earns the policy nothing, with any reward.

The reward of an episode must not change if the environment's text, which gives the answer away, is replaced by
another text of as many tokens. A reward that reads a model's probabilities is tested only with the leak after the
policy's last token. An earlier leak changes the context of the policy's later tokens, and thus their probabilities.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from models.base.images import reference_to
from models.base.pictures import png_of
from models.learner.packing import Sequences
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.registry import parts
from models.method.resources import RunResources
from models.method.reward import Blend, Reward
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rewards.episodes.policy_rules import PolicyRules, Rule
from models.parts.rewards.episodes.severity import Severity
from models.parts.rewards.models.attention_on import AttentionOn
from models.parts.rewards.rules.python_file import PythonReward
from models.reward_models.judges.pairs import WORDS
from models.reward_models.process import ProcessReading
from models.reward_models.scorer import GoalScorer, Scorer, StepScorer
from tests.support.tiny_episodes import ENDING
from tests.support.tiny_judges import Scripted
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

CALL = '{"name": "add", "arguments": {"x": "1", "y": "2"}}'
PROGRAM = "```python\ndef seven():\n    return 7\n```"
SEVEN = "def seven():\n    return 7\n"
WRITTEN = "```python\nassert seven() == 7\n```"
OTHER = "#### 3"
DRAWING = '<rect x="0" y="0" width="1" height="2" fill="black" />'
BLANK = png_of(Image.new("RGB", (4, 4)))


DOCUMENTS = Path(__file__).resolve().parents[4] / "recipes" / "documents"
FACTS = DOCUMENTS / "passages.jsonl"
SUM = Problem("p", "1 + 2 =", "7", tokens=(4,))


@dataclass(frozen=True)
class Case:
    """One reward's case: the leak, which would be right if the policy wrote it, the problem, and the settings."""

    leak: str = "#### 7"
    problem: Problem = SUM
    settings: Callable[[], dict[str, Any]] = dict


TOOLS = '{"tools": {"add": ["x", "y"], "sub": ["x"]}, "name": "add", "arguments": {"x": "1", "y": "2"}}'
CALLS = Case(CALL, replace(SUM, answer=TOOLS))
TESTS = "def check(candidate):\n    assert candidate() == 7\n"
CASES = {
    "call_match": CALLS,
    "call_errors": CALLS,
    "constraints": Case("bye", replace(SUM, answer='{"constraints": [{"kind": "contains", "text": "bye"}]}')),
    "claim_support": Case("river of sabo pumu", settings=lambda: {"documents": str(FACTS)}),
    "regret": Case("b", replace(SUM, answer="0.2 0.9 0.4")),
    "unit_tests": Case(PROGRAM, replace(SUM, answer="", tests=TESTS, entry_point="seven")),
    "written_tests": Case(WRITTEN, replace(SUM, answer=SEVEN, tests="assert seven() == 7", entry_point="seven")),
    "style_of_tests": Case(WRITTEN, replace(SUM, entry_point="seven")),
    "severity": Case(settings=lambda: {"table": {"####": 1.0}}),
    "policy_rules": Case(
        settings=lambda: {"rules": (Rule(when="####", requires="never"),), "propositions": {"never": "(?!)"}}
    ),
    "search_results": Case(
        "umbrella",
        replace(SUM, answer='{"wants": ["umbrella"]}'),
        settings=lambda: {"documents": str(DOCUMENTS / "expansions.jsonl")},
    ),
    "entailed": Case(
        "a has the most n",
        replace(SUM, answer='{"table": {"columns": ["team", "n"], "rows": [["a", 2], ["b", 1]]}}'),
    ),
    "ndcg": Case("#### bye", replace(SUM, answer='{"relevance": {"bye": 1}}')),
    "label_set": Case("#### bye", replace(SUM, answer='{"relevance": {"bye": 1}}')),
    "word_share": Case("bye", settings=lambda: {"words": ("bye",)}),
    "attention_on": Case(problem=replace(SUM, prompt="1 + 2 =", tokens=tuple(ENDING.prompts(["1 + 2 ="])[0]))),
    "guard": Case(settings=lambda: {"harmful": ("#### 7",)}),
    "mode_margin": Case(settings=lambda: {"tokens": ("+", "0")}),
    "norm_direction": Case(settings=lambda: {"do": ("3 + 4",), "avoid": ("#### 7",), "questions": ("{phrase}",)}),
    "rendered": Case(DRAWING, replace(SUM, prompt=f"{reference_to(BLANK)} {SUM.prompt}", answer=DRAWING)),
    "solid": Case("box 0 0 0 2 2 2", replace(SUM, answer="box 0 0 0 2 2 2")),
    "cost": Case(settings=lambda: {"calls": {"calculator": 1.0}, "outputs": {"calculator": 0.1}, "written": 0.01}),
}
BY_WORDS = {
    "exact_answer", "solved", "similarity", "hierarchical", "win_rate", "call_match", "call_errors", "regret",
    "unit_tests", "written_tests", "style_of_tests", "severity", "policy_rules", "python",
    "constraints", "abstention", "claim_support", "math_verify", "search_results",
    "word_share",
}  # fmt: skip
"""Rewards that change if the policy itself states the leaked text."""


def episode(case: Case, heard: str, *, between: bool, aloud: bool = False) -> Rollout:
    """Make an episode of two turns, with the environment's text between them or after them.

    The environment's text has equally many tokens with and without the leak. With `aloud`, the policy states the
    leak.
    """
    words = ["3 +", "8 = ;"]
    said = [list(ids) for ids in ENDING.completions(words)]
    leaked = ENDING.inside(["\n#### 7\n" if heard == case.leak else "\n#### 3\n"])[0]
    ids = [*said[0], *leaked, *said[1]] if between else [*said[0], *said[1], *leaked]
    second = len(said[0]) + (len(leaked) if between else 0)
    if aloud:
        words[1] = case.leak
    of_turns = (heard, "") if between else ("", heard)
    turns = (
        Turn(0, len(said[0]), reward=0.25, text=words[0], response=of_turns[0]),
        Turn(second, second + len(said[1]), reward=0.5, text=words[1], response=of_turns[1]),
    )
    text = "\n".join(words)
    made = Rollout(
        case.problem,
        0,
        tuple(ids),
        torch.full((len(ids),), -1.0),
        text,
        True,
        episode=RolloutEpisode(turns=turns),
        source=RolloutSource(value=0.5),
    )
    return replace(made, trained=made.written)


def made_of(name: str, folder: Path) -> Reward:
    """Return a reward of the registry with the settings of its case."""
    if name == "python":
        path = folder / "mine.py"
        path.write_text(
            "def answers(completions, completion_ids, **rest):\n"
            "    return [float('#### 7' in text) + 0.1 * len(ids) for text, ids in zip(completions, completion_ids)]\n"
        )
        return PythonReward(path=str(path), function="answers")
    if name == "molecule":
        pytest.importorskip("rdkit", reason="the extra molecules is not installed")
    if name == "attention_on":
        path = folder / "records.jsonl"
        path.write_text("".join(f'{{"prompt": "+ {x}", "answer": "{x > 4}"}}\n' for x in range(9)))
        return AttentionOn(records=str(path), feature=r"(?P<name>[+]) (?P<value>\d+)", answer="True", top=1)
    settings = CASES.get(name, Case()).settings()
    if name == "severity":
        return Severity(**settings)
    if name == "policy_rules":
        return PolicyRules(**settings)
    part: Any = parts("rewards")[name]
    reward: Reward = part(**settings)
    return reward


def worth(reward: Reward, rollouts: Sequence[Rollout]) -> list[float]:
    """Return the values of the rollouts, with parts that have not been trained."""
    learner = new_learner(SCHEDULE)
    learner.policy, learner.reference = tiny_policy(), tiny_policy(seed=1, spread=2.0).requires_grad_(False)
    if reward.companion:
        torch.manual_seed(5)
        companion = reward.accompany(learner.policy)
        assert companion is not None
        with torch.no_grad():  # heads begin at zero and would give equal values for any input
            for parameter in companion.model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        learner.companions[reward.companion] = companion

    def scorer(sequences: Sequences) -> torch.Tensor:
        return torch.tensor([float(sum(ids) % 97) for ids in sequences.completions])

    def values(sequences: Sequences, ends: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        made = zip(sequences.completions, ends, strict=True)
        return [torch.tensor([sum(ids[: end + 1]) % 97 / 97 for end in some]) for ids, some in made]

    def near(sequences: Sequences) -> list[torch.Tensor]:
        return values(sequences, [range(len(ids)) for ids in sequences.completions])

    read: Scorer = StepScorer(values, ProcessReading(), ENDING) if reward.needs_steps else scorer
    read = GoalScorer(scorer, near) if reward.needs_goal else read
    resources: RunResources = make_resources(
        scorer=read, learner=learner, codec=ENDING, readings=Readings(learner, 16384)
    )
    verdicts = WORDS if reward.name == "judge_pairs" else "0123456789"

    def says(question: str, vote: int) -> str:
        chance = zlib.crc32(question.encode())
        return f"{('right', 'wrong')[chance % 2]} ; #### {verdicts[chance % len(verdicts)]}"

    resources = replace(resources, judge=Scripted(says))
    return [float(value) for value in reward(resources, rollouts)]


def with_a_sibling(rollout: Rollout) -> list[Rollout]:
    """Add a completion of the same group and one of another prompt, which rewards that compare need."""
    sibling = replace(
        rollout,
        completion=(5, 6),
        behaviour_log_probs=torch.zeros(2),
        episode=replace(rollout.episode, turns=()),
        trained=None,
        text="6",
    )
    prompt = rollout.problem.prompt.replace(SUM.prompt, "3 +")
    other_problem = replace(rollout.problem, id="q", prompt=prompt, tokens=(5,))
    other = replace(sibling, group=1, problem=other_problem)
    return [rollout, sibling, other]


NAMES = sorted(
    name
    for name, part in parts("rewards").items()
    if not issubclass(part, Blend)  # it reads the values of other rewards
    and name != "exploitability"  # it reads the game's own states and no episode
)


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_worth_the_same_whether_or_not_its_environment_gives_the_answer_away(
    name: str, tmp_path: Path
) -> None:
    case, reward = CASES.get(name, Case()), made_of(name, tmp_path)
    for between in (False,) if reward.reads_learner or reward.needs_steps else (False, True):
        leaked = worth(reward, with_a_sibling(episode(case, case.leak, between=between)))
        replaced = worth(reward, with_a_sibling(episode(case, OTHER, between=between)))
        same = pytest.approx(replaced, rel=0, abs=0, nan_ok=True)
        assert leaked == same, "the environment's words pay" if not between else "they pay between two turns"


@pytest.mark.parametrize("name", sorted(BY_WORDS))
def test_the_same_words_said_by_the_policy_count(name: str, tmp_path: Path) -> None:
    case, reward = CASES.get(name, Case()), made_of(name, tmp_path)
    silent = worth(reward, with_a_sibling(episode(case, case.leak, between=True)))
    aloud = worth(reward, with_a_sibling(episode(case, case.leak, between=True, aloud=True)))
    assert silent[0] != aloud[0]
