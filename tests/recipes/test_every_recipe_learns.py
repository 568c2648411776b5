"""Every recipe that trains a policy improves what it claims to improve, in a few rounds on a small task.

The task is to end the answer with 7. The policy is tiny and was trained on three answers, so that it gives `#### 7` in
about a quarter of the cases. The log-probs of the right and the wrong answer are computed; the share of right answers
is measured on samples. The parts are real, as in the smoke run of a recipe: the slots that the recipe names, the
learner and the engine. If a recipe has a verifier and a fitted reward model, the verifier replaces the reward model.
The step size is the recipe's own times `FASTER`, except in `LESS_FAST`.
"""

from dataclasses import dataclass, fields, replace

import pytest
import torch

from models.answers.exact import by_answer
from models.datasets.built_in import EXTRA_SETS, TASK_SETS
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.precision import autocast_rule
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.attempt import Attempt
from models.method.problem import KnownAnswer
from models.method.reward import Blend
from models.parts.feedback.verdict import VerdictFeedback
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from models.policies.use import read_use
from models.policies.weights import plain_model
from models.recipes.find import method_files
from models.recipes.load import load_recipe
from models.recipes.teachers import frozen_models
from models.reward_models.judges.local import LocalJudge
from models.reward_models.process import ProcessReading
from models.reward_models.scorer import StepScorer
from models.training.build import build_learner
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.own_rows import reads_own_rows
from tests.support.tiny_loops import CODEC, PROBLEMS, TOKENIZER
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

pytestmark = [pytest.mark.recipes, pytest.mark.rotating(of=10)]
RECIPES = [
    file
    for file in method_files()
    if (recipe := load_recipe(file)).schedule is not None
    and recipe.data.name not in (*TASK_SETS, *EXTRA_SETS)
    and not reads_own_rows(recipe)  # only its own reward reads their answers
    and recipe.advantage.trains_policy
    and recipe.rollouts.episodes is None
    and recipe.objective.name != "guided_distillation"  # the policy here ignores its prompt: nothing guides it
]
"""Recipes that train the policy to answer problems in one turn; docs/agents.md shows what those with episodes learn."""
RIGHT, WRONG, OTHER = "#### 7", "#### 3", "4 + 7 #### 5"
SHOWN = [RIGHT, WRONG, WRONG, OTHER]
SMALL = {"prompts": 6, "max_tokens": 6}
SAID = VerdictFeedback(right="", wrong="#### {answer}")
"""Replaces the feedback of a recipe, which may apply only to other problems."""
ROUNDS, FASTER, GROUP = 8, 6.0, 8
LESS_FAST = {"ppo_nlu": 2.0, "nlpo": 3.0, "gspo_token": 3.0, "pit": 3.0, "pacs": 3.0}
"""Factors for recipes that fail at `FASTER`. `ppo_nlu` would have a step size of 0.006 and fail with every other seed.
The others fail with one seed of four, and which one depends on the processor; `nlpo` fails because it masks tokens for
good that both models find unlikely, and `pacs` takes four steps a round. At these factors, none of four seeds failed.
"""
OVERRIDES = ["policy.precision=float32", "policy.base=null", "alarm=null"]


def shown(texts, seed=0, warm_start=None):
    """Train a policy on some answers and, given a warm start, as often on the right answer after its context."""
    policy = tiny_policy(torch.float32, seed=seed, spread=1.0)
    completions = [CODEC.completions([text])[0] for text in texts]
    both = [(problem.tokens, ids) for problem in PROBLEMS for ids in completions]
    if warm_start is not None:
        hint = {"answer": "7", "feedback": f"{WRONG} {RIGHT}"}.get(warm_start.shows, RIGHT)
        context = warm_start.context.replace("{shown}", hint)
        contexts = [context.replace("{prompt}", problem.prompt) for problem in PROBLEMS]
        right = CODEC.completions([RIGHT])[0]
        both += [(tuple(ids), right) for ids in CODEC.prompts(contexts) for _ in texts]
    settings = SupervisedSettings(steps=40, batch=24, optimiser=OptimiserSettings(learning_rate=0.01, warmup_steps=5))
    fit_supervised(policy, Sequences(*(list(side) for side in zip(*both, strict=True))), settings, seed=0)
    return policy


@pytest.fixture(scope="session")
def frozen():
    """Return the teachers of distillation by role: one mostly gives the right answer, one mostly the wrong one."""
    said = {"teacher": [RIGHT, RIGHT, RIGHT, WRONG, OTHER], "contrast": [WRONG, WRONG, WRONG, RIGHT, OTHER]}
    return {role: shown(texts, seed=1).requires_grad_(False) for role, texts in said.items()}


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """Write the folder of a policy that was trained on the answers."""
    return save_start(shown(SHOWN), tmp_path_factory)


def save_start(policy, tmp_path_factory):
    """Write the folder of a policy."""
    folder = tmp_path_factory.mktemp("start") / "policy"
    save_model_folder(policy, TOKENIZER, folder)
    return folder


def small(part):
    """Return a part with short completions. Their number does not depend on the group size, which is at most eight."""
    names = {item.name for item in fields(part)}
    changed = {name: value for name, value in SMALL.items() if name in names}
    if "group_size" in names:
        changed["group_size"] = min(part.group_size, GROUP)
        changed["prompts"] = SMALL["prompts"] * GROUP // changed["group_size"]
    if (
        "feedback" in names and not part.training_context
    ):  # with a training context, feedback that states the answer would be copied
        changed["feedback"] = SAID
    return replace(part, **changed)


def programs(problems):
    """Make programming problems. `4 + 7 #### 5` is a program that passes; the other answers are comments, and fail."""
    tests = "def check(candidate):\n    assert candidate() == 11"
    return [replace(problem, prompt="def f():\n    return ", tests=tests, entry_point="f") for problem in problems]


def known(reads):
    """Return the known answers of every prompt for the kind of data: a right one and a wrong one."""
    kinds = {"problems": [], "demonstrations": ["demonstration"] * 2, "preferences": ["chosen", "rejected"]}[reads]
    answers = [RIGHT, WRONG]
    rows = zip(kinds, answers, CODEC.completions(answers), strict=False)
    return tuple(KnownAnswer(kind, tuple(ids), text, "" if text == RIGHT else "slip") for kind, text, ids in rows)


@dataclass(frozen=True)
class Says:
    """Measurements of the answers of a policy to the prompts."""

    right: float
    """Mean log-prob of the right answer of the data, in nats."""
    wrong: float
    """Mean log-prob of the wrong answer, in nats."""
    reward: float
    """Share of 384 samples that the verifier accepts, whatever their text."""


def asked(problems, behind):
    """Return the prompts of the problems, or the context `behind` with a wrong answer in it."""
    if not behind:
        return [problem.tokens for problem in problems]
    context = behind.replace("{shown}", WRONG)
    return [tuple(ids) for ids in CODEC.prompts([context.replace("{prompt}", each.prompt) for each in problems])]


def says(policy, start, problems, verify, folder=None, beside=lambda into: None, behind=""):
    """Measure the answers of `policy`. It is sampled as in use, with the files that `beside` writes to `folder`."""
    policy.eval()
    logs = []
    for text in (RIGHT, WRONG):
        ids = CODEC.completions([text])[0]
        rows = all_log_probs(policy, Sequences(asked(PROBLEMS, behind), [ids] * len(PROBLEMS)))
        logs.append(float(torch.stack([row.sum() for row in rows]).mean()))
    used = start
    if folder is not None:
        save_model_folder(plain_model(policy), TOKENIZER, folder, beside)
        used = folder
    engine = open_engine(used, EngineSettings(name="transformers"), longest=64, end=CODEC.end, seed=0)
    prompts = [(*tokens, *read_use(used).after_prompt) for tokens in asked(problems, behind)]
    drawn = engine.generate(prompts, Sampling(max_tokens=6, samples=64, log_probs=False), seed=1)
    flat = [(problem, completion) for problem, group in zip(problems, drawn, strict=True) for completion in group]
    texts = CODEC.text([completion.tokens for _, completion in flat])
    right = verify([Attempt(problem, text, each.finished) for (problem, each), text in zip(flat, texts, strict=True)])
    return Says(*logs, sum(right) / len(right))


def reads_models(reward, rewards):
    """Return whether a reward reads a reward model or a judge, directly or as a blend, and does not train the judge."""
    if reward.begins_as == "judge":
        return False
    behind = [other for other in rewards if isinstance(reward, Blend) and other.label in reward.made_of]
    return reward.needs_reward_model or reward.needs_judge or any(reads_models(other, rewards) for other in behind)


def undecided(sequences, ends):
    """Replace a fitted process reward model: every step has the value 0.5."""
    return [torch.full((len(some),), 0.5) for some in ends]


def trained(recipe, start, folder, frozen):
    """Train by the recipe. Return the measurements before and after."""
    faster = LESS_FAST.get(recipe.name, FASTER)
    optimiser = replace(recipe.schedule.optimiser, learning_rate=faster * recipe.schedule.optimiser.learning_rate)
    optimiser = replace(optimiser, warmup_steps=1)
    settings = replace(
        recipe.schedule, rounds=ROUNDS, checkpoint_every=100, samples_every=100, token_budget=2048, optimiser=optimiser
    )
    rewards = [reward for reward in recipe.rewards if reward.needs_steps or not reads_models(reward, recipe.rewards)]
    # A verifier that only watched replaces the reward that was removed.
    if not any(reward.weight for reward in rewards):
        rewards = [replace(reward, weight=1.0) for reward in rewards]
    rewards = [replace(reward, feedback=SAID) if hasattr(reward, "feedback") else reward for reward in rewards]
    slots = replace(recipe.slots, rollouts=small(recipe.rollouts), rewards=rewards)
    policy = load_causal_model(start, torch.float32)
    problems = programs(PROBLEMS) if any(reward.needs_tests for reward in recipe.rewards) else PROBLEMS
    verify = recipe.verifier.right if recipe.verifier is not None else by_answer
    behind = recipe.rollouts.training_context
    before = says(policy, start, problems, verify, behind=behind)
    learner = build_learner(policy, recipe, settings, autocast_rule(recipe.policy.precision, folder))
    learner.teachers = {role: frozen[role] for role in frozen_models(recipe) if role != "judge"}
    engine = TransformersEngine(start, EngineSettings(), end=CODEC.end) if slots.rollouts.draws else None
    scorer = StepScorer(undecided, ProcessReading(), CODEC)
    resources = make_resources(engine, scorer, recipe.seed, learner, settings.token_budget, recipe.truncated)
    if any(reward.begins_as == "judge" for reward in rewards):
        resources = replace(resources, judge=LocalJudge(start, recipe.judge, recipe.seed))
    # Here every demonstration is the preferred answer, so flawed ones are left out.
    sound = recipe.objective.level == "pair" and slots.rollouts.reads == "demonstrations"
    answers = [answer for answer in known(slots.rollouts.reads) if not (sound and answer.flaw)]
    problems = [replace(problem, known=tuple(answers)) for problem in problems]
    run_loop(resources, slots, settings, problems, folder / "checkpoints", Watchers())

    def export(into):
        slots.rollouts.export(learner, CODEC, start, into)

    return before, says(learner.policy, start, problems, verify, folder / "policy", export, behind)


OWN_RANKING = ("own_likelihood",)
"""Rewards that ignore correctness: the policy becomes more certain of the answer that it prefers."""


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_what_the_recipe_claims_has_risen(file, start, frozen, tmp_path, tmp_path_factory):
    # A recipe after another stage has no warm start, which a policy without a base needs.
    begun = ["warm_start={steps: 1}"] if load_recipe(file).warm_start is None else []
    recipe = load_recipe(file, [*OVERRIDES, *begun])
    shows = recipe.warm_start is not None and recipe.warm_start.context is not None
    # After its own training context, such a policy would have little left to learn.
    if shows and not recipe.rollouts.training_context:
        start = save_start(shown(SHOWN, warm_start=recipe.warm_start), tmp_path_factory)
    before, after = trained(recipe, start, tmp_path, frozen)
    right, wrong = after.right - before.right, after.wrong - before.wrong
    if any(reward.name in OWN_RANKING for reward in recipe.rewards):
        assert wrong > right + 0.1  # the policy was trained on the wrong answer twice
    elif recipe.rollouts.reads == "preferences" and not recipe.rollouts.draws:
        assert right > wrong + 0.1
    elif recipe.rollouts.reads == "demonstrations" and not recipe.rollouts.draws:
        assert right > 0.1 and right > wrong
    else:
        assert after.reward > before.reward + 0.05
