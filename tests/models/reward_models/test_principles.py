"""Reward models with principles: pairs are ordered again for each principle, which is read before the prompt."""

from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.parts.rewards.models.learned import LearnedReward
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.reward_models.fit import Pair
from models.reward_models.model import reward_model_from_policy
from models.reward_models.principles import (
    FILE,
    PrincipledScorer,
    read_principles,
    under_principles,
    write_principles,
)
from models.reward_models.scorer import open_scorer
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_judges import rollouts
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

PAIRS = [Pair((1,), (2, 3, 4), (5,), 0.5), Pair((6,), (7,), (8, 9)), Pair((1,), (2,), (3,))]


def test_a_pair_is_ordered_anew_under_each_principle_by_hand() -> None:
    made = under_principles(PAIRS, [(90,), (91, 92), (93,)], ["given", "shorter", "longer"])
    assert list(made) == [
        Pair((90, 1), (2, 3, 4), (5,), 0.5), Pair((90, 6), (7,), (8, 9)), Pair((90, 1), (2,), (3,)),
        Pair((91, 92, 1), (5,), (2, 3, 4), 0.5), Pair((91, 92, 6), (7,), (8, 9)),
        Pair((93, 1), (2, 3, 4), (5,), 0.5), Pair((93, 6), (8, 9), (7,)),
    ]  # fmt: skip
    assert made.number.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert list(made[3:5]) == list(made)[3:5] and len(under_principles([], [(1,)], ["given"])) == 0


def test_of_equal_lengths_a_rule_about_length_says_nothing() -> None:
    assert len(under_principles(PAIRS[2:], [(90,), (91,)], ["shorter", "longer"])) == 0


def test_a_scorer_reads_the_principle_before_the_prompt_and_goes_by_the_first_where_none_is_named() -> None:
    seen: list[Sequences] = []

    def read(sequences: Sequences) -> torch.Tensor:
        seen.append(sequences)
        return torch.tensor([float(prompt[0]) for prompt in sequences.prompts])

    scorer = PrincipledScorer(read, {"a": (7,), "b": (8, 9)})
    asked = Sequences([(1, 2)], [(3,)])
    assert scorer(asked).tolist() == [7.0] and scorer.under("b", asked).tolist() == [8.0]
    assert [tuple(each.prompts[0]) for each in seen] == [(7, 1, 2), (8, 9, 1, 2)]
    with pytest.raises(UserError, match="no principle 'c'; it knows a, b"):
        scorer.under("c", asked)
    resources = make_resources(scorer=scorer)
    assert LearnedReward(squash="none", principle="b")(resources, rollouts("x", "y")).tolist() == [8.0, 8.0]
    assert LearnedReward(squash="none")(resources, rollouts("x")).tolist() == [7.0]


def test_a_folder_says_which_principles_it_goes_by_and_one_that_says_none_goes_by_none(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_model_folder(tiny_policy(), CODEC.tokenizer, tmp_path / "policy")
    model = reward_model_from_policy(tmp_path / "policy", seed=0)
    save_model_folder(
        model,
        CODEC.tokenizer,
        tmp_path / "model",
        lambda into: write_principles(into, {"1": "given", "2 + 3": "shorter"}),
    )
    (tmp_path / "none").mkdir()
    assert read_principles(tmp_path / "none") == [] and read_principles(tmp_path / "model") == ["1", "2 + 3"]
    scorer = open_scorer(tmp_path / "model", CODEC, token_budget=64, autocast_for=lambda model: None)
    assert isinstance(scorer, PrincipledScorer)
    asked = Sequences(CODEC.prompts(["4 + 5"]), CODEC.completions(["#### 9"]))
    by_hand = Sequences(CODEC.prompts(["2 + 3 4 + 5"]), asked.completions)
    assert torch.equal(scorer.under("2 + 3", asked), scorer.read(by_hand))
    assert not torch.equal(scorer.under("2 + 3", asked), scorer(asked))
    for broken in ("{", "[]", '{"a": "nicer"}', "{}", '{"a": "shorter"}'):
        (tmp_path / "model" / FILE).write_text(broken)
        with pytest.raises(UserError, match="does not describe principles"):
            read_principles(tmp_path / "model")


def test_a_recipe_whose_principles_make_no_sense_is_refused_by_the_key() -> None:
    for override, said in [
        ("rewards=[{name: reward_model, principle: kind}]", "principle: 'kind' is none of reward_model.principles"),
        ("reward_model.principles={concise: shorter}", "the first applies where none is named"),
        ("reward_model.principles={' ': given}", "says nothing"),
        ("reward_model.process={}", "principles: they order preferences again"),
    ]:
        with pytest.raises(UserError, match=said):
            load_recipe("salmon", [override])
    with pytest.raises(UserError, match=r"reward_model\.principles, which has none"):
        load_recipe("arithmetic", ["rewards=[{name: reward_model, principle: correct}]"])


def test_a_word_that_the_data_hold_nowhere_is_known_where_the_tokenizer_is_told() -> None:
    plain, known = (
        train_tokenizer(["a b"], TokenizerSettings(kind="words", vocabulary=16, words=words))
        for words in ((), ("correct", "be brief"))
    )
    assert len(set(plain("correct brief")["input_ids"])) == 1  # both are the unknown token
    assert len(set(known("correct brief be a b")["input_ids"])) == 5
