"""Diversity of a group: by hand, its mean over pairs, limits, groups apart, and hidden states."""

import math
from dataclasses import replace

import pytest
import torch

from models.parts.rewards.shaping.group_diversity import GroupDiversity
from models.parts.shared.text_states import text_states
from tests.support.tiny_judges import rollouts
from tests.support.tiny_loops import SCHEDULE, new_learner
from tests.support.tiny_resources import make_resources

HERE = make_resources()


def test_the_values_by_hand() -> None:
    values = GroupDiversity()(HERE, rollouts("1 2", "1 3", "4"))
    assert values.tolist() == pytest.approx([1 - 0.5 / 2, 1 - 0.5 / 2, 1.0])


def test_equal_texts_have_none_and_texts_without_a_common_word_have_all() -> None:
    assert GroupDiversity()(HERE, rollouts("1 2", "1 2", "1 2")).tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    assert GroupDiversity()(HERE, rollouts("1", "2", "3")).tolist() == pytest.approx([1.0] * 3)


def test_the_mean_of_a_group_is_the_mean_dissimilarity_of_its_pairs() -> None:
    texts = ["1 2 2", "2 3", "1 2", "7 1"]

    def cosine(first: str, other: str) -> float:
        words = sorted({*first.split(), *other.split()})
        a, b = ([text.split().count(word) for word in words] for text in (first, other))
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    pairs = [1 - cosine(texts[i], texts[j]) for i in range(4) for j in range(i)]
    assert float(GroupDiversity()(HERE, rollouts(*texts)).mean()) == pytest.approx(sum(pairs) / 6, abs=1e-6)


def test_groups_are_apart_and_a_completion_alone_has_none() -> None:
    mixed = [*rollouts("1", "1", group=0), *rollouts("1", group=1)]
    assert GroupDiversity()(HERE, mixed).tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)


def test_hidden_states_give_the_cosine_of_the_mean_states() -> None:
    here = replace(HERE, learner=new_learner(SCHEDULE))
    reward = GroupDiversity(embedding="states")
    vectors = text_states(here, ["1 2", "3"], "test")
    expected = 1 - torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0)
    assert reward.needs_reference and reward.reads_learner
    assert reward(here, rollouts("1 2", "3")).tolist() == pytest.approx([float(expected)] * 2, abs=1e-6)
