"""Modes of a policy: the token of each answer, the margin by hand, the exported mode, and a policy that learns them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.agents.strategies.in_mode import InMode
from models.agents.strategy import CountedPolicy
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, TokenSampling
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.problem import KnownAnswer
from models.parts.rewards.models.mode_margin import ModeMargin, margins_of
from models.parts.rollouts.conditioned import Conditioned, Mode, single_tokens
from models.parts.rollouts.dataset import Dataset
from models.policies.use import read_use
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from tests.support.tiny_engines import Saying
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_models import plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

TEXTS = ["4 + 7 #### 7", "1 #### 2", "#### 9"]
IDS = [tuple(ids) for ids in CODEC.completions(TEXTS)]
KNOWN = tuple(
    KnownAnswer("demonstration", ids, text, flaw=flaw)
    for ids, text, flaw in zip(IDS, TEXTS, ("", "slip", "bare"), strict=True)
)
MODES = {
    "safe": Mode(token="+", answers=("sound",)),
    "open": Mode(token=";", answers=("slip",)),
    "refuse": Mode(token="=", answers=("bare", "rejected")),
}
TOKENS = {text: CODEC.completions([text])[0][0] for text in ("+", ";", "=")}
ASKED = [replace(problem, known=KNOWN) for problem in PROBLEMS]


def test_the_token_of_its_class_follows_the_prompt_of_each_answer_and_nothing_else_changes() -> None:
    moded = Conditioned(modes=MODES)(make_resources(), ASKED, 0)
    plain = Dataset(reads="demonstrations")(make_resources(), ASKED, 0)
    for place, (rollout, other) in enumerate(zip(moded, plain, strict=True)):
        token = list(TOKENS.values())[place % 3]
        assert rollout.problem.tokens == (*other.problem.tokens, token)
        assert rollout.completion == other.completion and rollout.group == other.group
    assert Conditioned(modes=MODES).extra_tokens(CODEC, ASKED) == [1] * len(ASKED)


def test_the_rejected_answer_of_a_pair_is_a_class_of_its_own() -> None:
    pair = (replace(KNOWN[0], origin="chosen"), replace(KNOWN[0], origin="rejected"))
    rollouts = Conditioned(reads="preferences", modes=MODES)(make_resources(), [replace(PROBLEMS[0], known=pair)], 0)
    assert [rollout.problem.tokens[-1] for rollout in rollouts] == [TOKENS["+"], TOKENS["="]]


def test_the_margin_is_the_own_likelihood_less_the_best_other() -> None:
    values = torch.tensor([[-1.0, -4.0, -2.0], [-3.0, -1.0, -0.5]])
    assert margins_of(values, torch.tensor([0, 1])).tolist() == [1.0, -0.5]


def test_the_reward_reads_every_answer_in_every_mode_in_any_batch() -> None:
    resources = make_resources()
    rollouts = Conditioned(modes=MODES)(resources, ASKED[:2], 0)
    part = ModeMargin(tokens=("+", ";", "="))
    together = part(resources, rollouts)
    for place, rollout in enumerate(rollouts):
        sums = []
        for token in TOKENS.values():
            asked = Sequences([(*rollout.problem.tokens[:-1], token)], [rollout.completion])
            sums.append(float(plain_log_probs(resources.learner.policy, asked)[0].double().sum()))
        own = sums.pop(place % 3)
        assert float(together[place]) == pytest.approx(own - max(sums), abs=1e-4)
        assert float(part(make_resources(token_budget=64), [rollout])[0]) == pytest.approx(
            float(together[place]), abs=1e-4
        )


@pytest.mark.rotating(of=6)
def test_one_fine_tuning_separates_the_modes_and_the_token_selects_the_answer() -> None:
    resources = make_resources()
    policy = tiny_policy()
    resources = make_resources(learner=replace(resources.learner, policy=policy))
    rollouts = Conditioned(modes=MODES)(resources, ASKED, 0)
    part = ModeMargin(tokens=("+", ";", "="))
    before = part.reasoned(resources, rollouts)
    shown = Sequences([r.problem.tokens for r in rollouts], [r.completion for r in rollouts])
    fit_supervised(policy, shown, SupervisedSettings(steps=60, batch=len(rollouts), compile=False), seed=0)
    after = part.reasoned(resources, rollouts)
    assert after.watched["separated"] == 1.0 and after.values.mean() > before.values.mean() + 1.0


def test_the_policy_is_exported_in_the_first_mode(tmp_path: Path) -> None:
    resources = make_resources()
    Conditioned(modes=MODES).export(resources.learner, CODEC, tmp_path, tmp_path)
    assert read_use(tmp_path).after_prompt == (TOKENS["+"],)
    assert json.dumps(" +") in (tmp_path / "chat_template.jinja").read_text()
    assert not Conditioned().exports and Conditioned(modes=MODES).exports


def test_the_strategy_replaces_the_token_of_the_exported_mode() -> None:
    engine = Saying(CODEC, lambda read, seed: "7")
    policy = CountedPolicy(engine, CODEC, 64)
    request = CompletionRequest((*PROBLEMS[0].tokens, TOKENS["+"]), 1, 4)
    policy.begin(1, 1)
    InMode(exported="+", token=";").turns(policy, [request], TokenSampling())
    assert [prompt for prompt, _ in engine.asked] == [(*PROBLEMS[0].tokens, TOKENS[";"])]
    with pytest.raises(UserError, match=r"strategy in_mode: the policy's prompts do not end with '='"):
        InMode(exported="=", token=";").turns(policy, [request], TokenSampling())
    with pytest.raises(UserError, match=r"strategy\.token: empty"):
        InMode(exported="+").turns(policy, [request], TokenSampling())


@pytest.mark.parametrize(
    "modes, line",
    [
        ({"a": Mode(token="+", answers=("sound",)), "b": Mode(token="+", answers=("slip",))}, r"the token '\+'; each"),
        ({"a": Mode(token="+", answers=("sound",)), "b": Mode(token=";", answers=("sound",))}, r"'sound' are in two"),
    ],
)
def test_modes_that_cannot_be_distinguished_are_refused(modes: dict[str, Mode], line: str) -> None:
    with pytest.raises(UserError, match=f"rollouts.modes: .*{line}"):
        Conditioned(modes=modes)


def test_a_class_without_a_mode_and_a_token_of_two_words_are_refused_by_one_line() -> None:
    with pytest.raises(UserError, match=r"rollouts\.modes: no mode has the answers of the class 'slip' \(row"):
        Conditioned(modes={"safe": MODES["safe"]})(make_resources(), ASKED, 0)
    for text in ("+ ;", "unheard"):
        with pytest.raises(UserError, match=r"rollouts\.modes: .* is not one token of the policy's tokenizer"):
            single_tokens(CODEC, [text], "rollouts.modes")


def test_a_margin_needs_prompts_with_modes_and_two_tokens() -> None:
    with pytest.raises(UserError, match=r"rewards\.mode_margin\.tokens: 1 named"):
        load_recipe(find_recipe("magic_token"), ["rewards=[{name: mode_margin, tokens: ['+']}]"])
    plain = Dataset(reads="demonstrations")(make_resources(), [replace(ASKED[0], tokens=(5, 6))], 0)
    with pytest.raises(UserError, match=r"reward mode_margin: the prompt of row .* does not end with a mode's token"):
        ModeMargin(tokens=("+", ";"))(make_resources(), plain)


def test_the_recipe_names_the_tokens_of_its_modes() -> None:
    recipe = load_recipe("magic_token")
    tokens = tuple(mode.token for mode in recipe.rollouts.modes.values())  # type: ignore[attr-defined]
    margin = next(reward for reward in recipe.rewards if reward.name == "mode_margin")
    assert margin.tokens == tokens == recipe.policy.tokenizer.words  # type: ignore[attr-defined]
