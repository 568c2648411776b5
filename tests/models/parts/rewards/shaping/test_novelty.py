"""Novelty: values by hand and by sacrebleu, a resumed archive, and more weaknesses at equal success."""

from collections.abc import Sequence

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from models.base.errors import UserError
from models.method import tally as tallies
from models.method.episode import Turn
from models.method.learner import Learner
from models.method.reward import Reward
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.episodes.provoked import Provoked
from models.parts.rewards.shaping.novelty import Novelty, self_bleu, word_cosine
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import make_resources

EARLIER = ["a b c d", "a b", "c c c e f"]
TEXTS = ["a b c d", "a b c e", "c c", "x y z", "c d c d c"]


def texts(*written: str) -> list[Rollout]:
    return [Rollout(PROBLEMS[0], 0, (4,), None, text, True) for text in written]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_self_bleu_is_the_bleu_of_sacrebleu_with_the_archive_as_references(order: int) -> None:
    bleu = BLEU(max_ngram_order=order, smooth_method="none", effective_order=True, tokenize="none")
    expected = [bleu.sentence_score(text, EARLIER).score / 100 for text in TEXTS]
    assert self_bleu(TEXTS, EARLIER, [order]).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_mean_over_orders_by_hand() -> None:
    # "a b e c": p1 = 4/4, p2 = 1/3 (a b); the nearest length is 4, so there is no penalty
    (value,) = self_bleu(["a b e c"], EARLIER, [1, 2]).tolist()
    assert value == pytest.approx((1.0 + (1 / 3) ** 0.5) / 2, abs=1e-12)


def test_the_cosine_is_the_mean_over_the_archive_by_counts() -> None:
    # cos(a b, a b) = 1 twice, cos(a b, a) = 1/sqrt 2 once
    (value,) = word_cosine(["a b"], {"a b": 2, "a": 1}).tolist()
    assert value == pytest.approx((2 + 0.5**0.5) / 3, abs=1e-12)


def test_everything_is_new_at_first_and_a_repeated_text_is_not_new_at_all() -> None:
    resources, part = make_resources(), Novelty(grams=(1, 2))
    first = part.reasoned(resources, texts("a b", "a b"))
    assert first.values.tolist() == [2.0, 2.0] and first.watched == {"archive": 1.0}
    again = part(resources, texts("a b", "c d"))
    assert again.tolist() == pytest.approx([0.0, 2.0], abs=1e-6)


def test_the_order_of_a_batch_and_its_other_texts_change_nothing() -> None:
    values = {}
    for batch in (TEXTS, TEXTS[::-1], TEXTS[:1]):
        resources, part = make_resources(), Novelty()
        part(resources, texts(*EARLIER))
        values[tuple(batch)] = dict(zip(batch, part(resources, texts(*batch)).tolist(), strict=True))
    first, turned, alone = values.values()
    assert first == turned and alone.items() <= first.items()


def test_an_archive_that_was_read_again_gives_the_same_values_to_the_last_bit() -> None:
    resources, part = make_resources(), Novelty()
    part(resources, texts(*EARLIER, *TEXTS))
    resumed = make_resources()
    resumed.learner.tally = tallies.read(tallies.written(resources.learner.tally))
    assert list(resumed.learner.tally.archives["novelty"].items()) == list(
        resources.learner.tally.archives["novelty"].items()
    )
    assert torch.equal(part(resumed, texts(*TEXTS, "a d")), part(resources, texts(*TEXTS, "a d")))


def test_a_full_archive_drops_its_oldest_texts() -> None:
    resources, part = make_resources(), Novelty(keep=2)
    part(resources, texts("a b", "c d", "e f"))
    assert list(resources.learner.tally.archives["novelty"]) == ["c d", "e f"]


def test_words_outside_the_part_that_is_compared_earn_nothing() -> None:
    resources, part = make_resources(), Novelty(reads=r"^\w+ \w+", grams=(1, 2))
    part(resources, texts("a b x y z"))
    assert part(resources, texts("a b u v w", "c d")).tolist() == pytest.approx([0.0, 2.0], abs=1e-6)


def test_a_text_in_which_nothing_is_read_is_worth_nothing_and_is_not_remembered() -> None:
    resources, part = make_resources(), Novelty(reads=r"^\w+ \w+", grams=(1, 2))
    assert part(resources, texts("a b x", "z", "")).tolist() == [2.0, 0.0, 0.0]
    assert list(resources.learner.tally.archives["novelty"]) == ["a b"]
    assert part(resources, texts("z", "")).tolist() == [0.0, 0.0]


def test_hidden_states_distinguish_equal_texts_from_others_in_any_row() -> None:
    resources = make_resources()
    learner: Learner = resources.learner
    learner.reference = learner.policy
    part = Novelty(embedding="states", bleu=0.0)
    part(resources, texts("4 + 7"))
    together = part(resources, texts("4 + 7", "7 7 7 7", "1"))
    other = make_resources(token_budget=8)
    other.learner.reference = learner.policy
    part(other, texts("4 + 7"))
    assert together[0] == pytest.approx(0.0, abs=1e-6) and together[1] > 1e-3
    assert torch.allclose(together, part(other, texts("4 + 7", "7 7 7 7", "1")), atol=1e-6)


def test_hidden_states_need_a_reference() -> None:
    resources, part = make_resources(), Novelty(embedding="states")
    part.reasoned(resources, texts("a"))  # nothing is read for an empty archive
    with pytest.raises(UserError, match="reward novelty needs a reference"):
        part.reasoned(resources, texts("a"))


@pytest.mark.parametrize(
    "settings, line",
    [({"grams": ()}, r"rewards\.novelty\.grams: none"), ({"bleu": 0.0, "cosine": 0.0}, "bleu and cosine are both 0"),
     ({"reads": "("}, r"rewards\.novelty\.reads: '\(' is not a regular expression")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        Novelty(**settings)  # type: ignore[arg-type]


REQUESTS = [f"{deed} {thing}" for deed in "abcdef" for thing in "uvwxyz"]
WEAK = set(REQUESTS[::3])


def answered(request: str) -> Rollout:
    """Return the rollout of a request to an enumerable target that fails at each of its weaknesses."""
    response = f"{request} -> #### bowl" if request in WEAK else "#### refuse"
    turn = Turn(0, 1, float(request in WEAK), text=request, response=response)
    return Rollout(PROBLEMS[0], 0, (4,), None, request, True, episode=RolloutEpisode(turns=(turn,)))


def covered_at(successes: int, rewards: Sequence[Reward], seed: int) -> int:
    """Train a softmax over all requests by REINFORCE; count the weaknesses among the first answers that failed."""
    resources = make_resources()
    chance = torch.Generator().manual_seed(seed)
    logits = torch.zeros(len(REQUESTS))
    failed: list[str] = []
    while len(failed) < successes:
        policy = logits.softmax(0)
        drawn = torch.multinomial(policy, 24, replacement=True, generator=chance)
        rollouts = [answered(REQUESTS[place]) for place in drawn]
        value = sum((reward(resources, rollouts) for reward in rewards), torch.zeros(24))
        advantage = value - value.mean()
        for place, gain in zip(drawn.tolist(), advantage.tolist(), strict=True):
            logits += 0.3 * gain * (torch.nn.functional.one_hot(torch.tensor(place), len(REQUESTS)) - policy)
        failed += [rollout.text for rollout in rollouts if rollout.text in WEAK]
    return len(set(failed[-300:]))


def test_at_equal_success_a_policy_with_novelty_still_provokes_more_weaknesses() -> None:
    pairs = [
        (covered_at(1600, [Provoked(), Novelty(grams=(1, 2))], seed), covered_at(1600, [Provoked()], seed))
        for seed in range(3)
    ]
    assert all(curious > plain for curious, plain in pairs), pairs


def test_coverage_counts_different_weaknesses_and_successes_count_all() -> None:
    resources, part = make_resources(), Provoked(planted=len(WEAK))
    made = part.reasoned(resources, [answered(text) for text in ("a u", "a u", "a v", "a x")])
    assert made.values.tolist() == [1.0, 1.0, 0.0, 1.0] and list(made.reasons) == ["a u", "a u", "", "a x"]
    assert made.watched == {"covered": 2.0, "successes": 3.0, "coverage": 2 / len(WEAK)}
    assert part.reasoned(resources, [answered("a u")]).watched["successes"] == 4.0
