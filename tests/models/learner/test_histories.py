"""Histories that sequences share at any depth: each token is read once, and results equal those of plain reading."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.attention.packed_attention import attend_packed
from models.learner.attention.span_tables import span_tables, tables_of
from models.learner.histories import attended_pairs, cut_family, families, unique_tokens
from models.learner.layout import allowed
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences, longest_unit, pack, pack_shares, packed_row
from models.reward_models.critic.losses import loss_of
from models.reward_models.critic.model import Critic
from models.reward_models.critic.settings import CriticSettings
from tests.support.architectures import MODELS, ROUGH, built, largest_gap, loss_and_gradients, plain
from tests.support.device_here import DEVICE, placed
from tests.support.tiny_models import gradients, tiny_policy


def forest(seed: int, roots: int = 2, depth: int = 6, vocabulary: int = 58) -> Sequences:
    """Make the turns of branching episodes in random order, each a sequence. Its prompt is everything before the turn,
    including the answers of the environment. Some turns occur twice."""
    chance = random.Random(seed)

    def ids(longest: int) -> list[int]:
        return [chance.randrange(3, 3 + vocabulary) for _ in range(chance.randint(1, longest))]

    prompts: list[list[int]] = []
    completions: list[list[int]] = []

    def grow(history: list[int], left: int) -> None:
        for _ in range(chance.choice([1, 1, 2, 3]) if left else 0):
            turn = ids(5)
            prompts.append(history)
            completions.append(turn)
            if chance.random() < 0.1:
                prompts.append(history)
                completions.append(turn)
            if chance.random() < 0.8:
                grow([*history, *turn, *ids(4)], left - 1)

    for root in range(roots):
        grow([3 + root, *ids(6)], depth)
    order = list(range(len(prompts)))
    chance.shuffle(order)
    return Sequences([prompts[i] for i in order], [completions[i] for i in order], nested=True)


def trie(sequences: Sequences) -> set[tuple[int, ...]]:
    """Return the nodes of the trie as paths, by definition: every beginning of every sequence."""
    wholes = [sequences.whole(index) for index in range(len(sequences))]
    return {whole[:end] for whole in wholes for end in range(1, len(whole) + 1)}


SEEDS = [seed for seed in range(40) if 12 <= len(forest(seed)) <= 40][:6]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_has_every_token_of_the_trie_once(seed: int) -> None:
    sequences = forest(seed)
    row = packed_row(sequences)
    assert len(row.ids) == len(trie(sequences)) < sum(sequences.lengths)
    assert unique_tokens([sequences.whole(index) for index in range(len(sequences))]) == len(row.ids)
    path = {place: int(position) for place, position in enumerate(row.positions)}
    assert sorted(path.values()) == sorted(len(node) - 1 for node in trie(sequences))
    seen = allowed(row.layout, torch.device("cpu"), None)
    assert int(seen.sum()) == sum(map(len, trie(sequences)))  # a token sees itself and its ancestors
    at = 0
    for index, completion in enumerate(sequences.completions):
        assert row.targets[at : at + len(completion)].tolist() == list(completion)
        visible = row.ids[seen[row.predicting[at + len(completion) - 1]]]
        assert visible.tolist() == list(sequences.whole(index)[:-1])
        at += len(completion)


def test_a_row_by_hand() -> None:
    """The prompt 1 2 has the continuations 3 4 and 8, and 1 2 3 4 has the continuations 5 and 6 7."""
    row = packed_row(Sequences([[1, 2], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2]], [[3, 4], [5], [6, 7], [8]], nested=True))
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8] and row.positions.tolist() == [0, 1, 2, 3, 4, 4, 5, 2]
    assert [(span.start, span.length) for span in row.layout.spans] == [(0, 2), (2, 2), (4, 1), (5, 2), (7, 1)]
    assert [(p.start, p.end, p.first, p.stop) for p in row.layout.prefixes] == [(0, 2, 2, 8), (2, 4, 4, 7)]
    assert row.targets.tolist() == [3, 4, 5, 6, 7, 8] and row.predicting.tolist() == [1, 2, 3, 3, 5, 1]
    assert row.last.tolist() == [3, 4, 6, 7]
    assert row.layout.before == [0, 2, 4, 4, 2] and row.layout.longest == 6


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", MODELS)
def test_log_probs_and_every_gradient_are_those_of_plain_reading(name: str) -> None:
    sequences = forest(SEEDS[0], roots=1, depth=5)
    model = built(name, torch.float64)
    expected, of_expected = loss_and_gradients(model, plain(model, sequences, 1.0))
    loss, of_trees = loss_and_gradients(model, completion_log_probs(model, sequences))
    tolerance = 1e-3 if name in ROUGH else 1e-5  # most architectures compute norms and positions in float32
    assert float((loss - expected).abs()) < tolerance and largest_gap(of_trees, of_expected) < tolerance


def by_plain_rows(model: Any, sequences: Sequences, read: Any) -> list[Tensor]:
    """Return what `read` gives for each sequence alone, one tensor per sequence."""
    return [read(model, replace(sequences.take([index]), nested=False)) for index in range(len(sequences))]


def log_prob(model: Any, sequences: Sequences) -> Tensor:
    return completion_log_probs(model, sequences)[0]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", ["token", "pair"])
def test_losses_of_tokens_and_of_pairs_and_their_gradients_are_exact_in_float64(level: str, seed: int) -> None:
    sequences = forest(seed)
    results = []
    for together in (True, False):
        model = tiny_policy(vocabulary=64)
        if together:
            parts = log_prob(model, sequences).split([len(ids) for ids in sequences.completions])
        else:
            parts = tuple(by_plain_rows(model, sequences, log_prob))
        sums = torch.stack([part.sum() for part in parts])
        if level == "token":
            loss = torch.cat([part * (index + 1) for index, part in enumerate(parts)]).mean()
        else:
            loss = -torch.nn.functional.logsigmoid(0.1 * (sums[:-1] - sums[1:])).mean()
        loss.backward()
        results.append((loss.detach(), gradients(model)))
    (first, of_first), (other, of_other) = results
    assert float((first - other).abs()) <= 1e-12 * max(1.0, float(other.abs()))
    assert largest_gap(of_first, of_other) <= 1e-12


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_critics_loss_and_gradients_are_exact_in_float64(seed: int) -> None:
    sequences, settings = forest(seed), CriticSettings()
    # Returns are not centred on zero. The gradient of the head's bias is the mean value minus the mean return. If both
    # are near zero, terms near 1 cancel (to 2e-6 with the head that a GPU draws), and a relative error has no meaning.
    returns = torch.linspace(-1, 2, sum(map(len, sequences.completions)), dtype=torch.float64, device=DEVICE)
    results = []
    for together in (True, False):
        torch.manual_seed(3)
        critic = placed(Critic(tiny_policy(vocabulary=64), settings))

        def outputs(model: Any, some: Sequences) -> Tensor:
            read: Tensor = model.outputs(some)
            return read

        said = outputs(critic, sequences) if together else torch.cat(by_plain_rows(critic, sequences, outputs))
        loss_of(said, returns, returns, settings).mean().backward()
        results.append((said.detach(), gradients(critic)))
    (first, of_first), (other, of_other) = results
    assert float((first - other).abs().max()) <= 1e-12 and largest_gap(of_first, of_other) <= 1e-12


@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_every_route_of_attention_knows_nested_prompts(window: int | None, softcap: float | None) -> None:
    sequences = forest(SEEDS[1])
    layout = packed_row(sequences).layout
    chance = torch.Generator().manual_seed(2)
    drawn = [torch.randn(1, heads, layout.tokens, 8, generator=chance).double() for heads in (4, 2, 2)]
    query, key, value = map(placed, drawn)
    out = attend_packed(query, key, value, tables_of(layout, query.device), 0.3, window, softcap)
    seen = allowed(layout, DEVICE, window)
    scores = 0.3 * query[0] @ key[0].repeat_interleave(2, dim=0).transpose(1, 2)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    expected = (weights @ value[0].repeat_interleave(2, dim=0)).transpose(0, 1)
    assert torch.allclose(out[0], expected, rtol=0, atol=1e-12)


def test_spans_over_varied_lengths_have_the_keys_of_all_that_they_continue() -> None:
    layout = packed_row(forest(SEEDS[2])).layout
    query_ends, key_ends, places, *_, longest = span_tables(layout)
    longest_query, longest_key = longest.tolist()
    seen = allowed(layout, torch.device("cpu"), None)
    for number, span in enumerate(layout.spans):
        keys = places[key_ends[number] : key_ends[number + 1]]
        assert keys.tolist() == seen[span.start + span.length - 1].nonzero().flatten().tolist()
        assert query_ends[number + 1] - query_ends[number] == span.length <= longest_query
    assert longest_key == layout.longest == int(seen.sum(1).max())


def size_of(sequences: Sequences, row: Sequence[int]) -> int:
    return len(trie(sequences.take(row)))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("budget", [50, 90, 200])
def test_a_forest_over_the_budget_is_cut_and_every_sequence_stands_once(seed: int, budget: int) -> None:
    sequences = forest(seed)
    rows = pack(sequences, budget, width=64)
    assert sorted(index for row in rows for index in row) == list(range(len(sequences)))
    assert all(size_of(sequences, row) <= budget for row in rows)
    assert rows == pack(sequences, budget, width=64)
    whole = torch.cat(by_plain_rows(tiny_policy(vocabulary=64), sequences, log_prob))
    parts: dict[int, Tensor] = {}
    for row in rows:
        read = log_prob(tiny_policy(vocabulary=64), sequences.take(row))
        parts |= dict(zip(row, read.split([len(sequences.completions[i]) for i in row]), strict=True))
    assert float((torch.cat([parts[index] for index in range(len(sequences))]) - whole).detach().abs().max()) <= 1e-12


def test_what_belongs_together_stays_together_and_a_budget_too_small_is_refused_by_a_line() -> None:
    sequences = forest(SEEDS[0])
    labels = [index % 3 for index in range(len(sequences))]
    least = longest_unit(sequences, labels)
    units = [[index for index, mine in enumerate(labels) if mine == label] for label in range(3)]
    assert least == max(len(packed_row(sequences.take(unit)).ids) for unit in units)
    rows = pack(sequences, least, width=64, together=labels)
    assert all(any(set(unit) <= set(row) for row in rows) for unit in units)
    assert sorted(index for row in rows for index in row) == list(range(len(sequences)))
    assert all(len(packed_row(sequences.take(row)).ids) <= least for row in rows)
    family = families(sequences.prompts)[0]
    some = sequences.take(family)
    (row,) = pack(some, longest_unit(some, [0] * len(some)), width=64, together=[0] * len(some))
    assert sorted(row) == list(range(len(family))) and longest_unit(some, [0] * len(some)) == len(trie(some))
    with pytest.raises(
        UserError, match=r"token_budget is 9, smaller than one row: a turn and its history of \d+ tokens"
    ):
        pack(sequences, 9, width=64)


def test_shares_for_several_readers_hold_every_sequence_once() -> None:
    sequences = forest(SEEDS[3])
    shares = pack_shares(sequences, 120, 3, width=64)
    assert len(shares) == 3 and sorted(i for rows in shares for row in rows for i in row) == list(range(len(sequences)))


def test_prompts_that_only_begin_alike_are_of_different_families() -> None:
    assert families([[1, 2], [1, 3], [1, 2, 5], [4], [1, 2, 5, 6], [1, 3]]) == [[0, 2, 4], [1, 5], [3]]
    assert families([[], [], [1]]) == [[0], [1], [2]]


def test_pairs_of_tokens_are_counted_once() -> None:
    wholes = [(1, 2, 3), (1, 2, 4, 5), (1, 2, 3)]
    assert attended_pairs(wholes) == (1 + 2 + 3) + (3 + 4) and unique_tokens(wholes) == 5
    assert cut_family([whole[:1] for whole in wholes], wholes, [[0], [1], [2]], 4) == [[0, 2], [1]]
