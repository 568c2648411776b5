"""Completions read as trees: what each token sees, common beginnings that occur once, and attention by definition."""

import random

import pytest
import torch

from models.learner.attention.prefix_tree import STEP, forests, trees
from models.learner.attention.tree_attention import TreeAttention
from models.learner.packing import Sequences


def sequences_that_begin_alike(seed: int, count: int = 40) -> Sequences:
    chance = random.Random(seed)
    prompts = [[chance.randrange(3) for _ in range(chance.randint(1, 9))] for _ in range(6)] + [[]]
    return Sequences(
        [chance.choice(prompts) for _ in range(count)],
        [[chance.randrange(2) for _ in range(chance.randint(1, 12))] for _ in range(count)],
    ).once_each()[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_end_of_a_sequence_sees_its_own_tokens_in_order_and_no_others(seed: int) -> None:
    sequences = sequences_that_begin_alike(seed)
    seen_once = []
    for tree in trees(sequences):
        for member, last in zip(tree.members, tree.last, strict=True):
            seen = [j for j in range(last + 1) if tree.until[j] > last]
            assert [tree.ids[j] for j in seen] == [*sequences.prompts[member], *sequences.completions[member]]
            assert [tree.positions[j] for j in seen] == list(range(len(seen)))
            seen_once.append(member)
    assert sorted(seen_once) == list(range(len(sequences)))


@pytest.mark.parametrize("seed", range(4))
def test_what_sequences_of_one_prompt_begin_with_stands_once(seed: int) -> None:
    sequences = sequences_that_begin_alike(seed)
    for tree in trees(sequences):
        whole = [(*sequences.prompts[m], *sequences.completions[m]) for m in tree.members]
        assert len(tree.ids) == len({ids[:end] for ids in whole for end in range(1, len(ids) + 1)})


@pytest.mark.parametrize("budget", [1, 64, 10_000])
def test_rows_hold_every_sequence_once_and_keep_to_their_budget(budget: int) -> None:
    sequences = sequences_that_begin_alike(7)
    rows = forests(trees(sequences), budget)
    assert sorted(member for row in rows for member in row.members) == list(range(len(sequences)))
    for row in rows:
        assert len(row.ids) <= budget or sum(group.trees for group in row.groups) == 1
        assert len(row.ids) == sum(group.trees * group.size for group in row.groups)
        assert all(group.size % STEP == 0 for group in row.groups)
        for member, place in zip(row.members, row.last.tolist(), strict=True):
            assert int(row.ids[place]) == sequences.completions[member][-1]


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_tree_attention_equals_the_softmax_of_each_sequence_written_out(
    window: int | None, softcap: float | None, key_heads: int
) -> None:
    sequences = sequences_that_begin_alike(3)
    (row,) = forests(trees(sequences), 10_000)
    tokens = len(row.ids)
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, tokens, 8, generator=draw, dtype=torch.float64) for heads in (4, key_heads, key_heads)
    )
    out = TreeAttention(row).attend(torch.nn.Module(), query, key, value, 0.3, window, softcap)
    assert out.shape == (1, tokens, 4, 8) and torch.isfinite(out).all()
    everyone = {tree.members: tree for tree in trees(sequences)}
    checked, begin = 0, 0
    for group in row.groups:
        for _ in range(group.trees):
            tree = next(t for t in everyone.values() if list(t.ids) == row.ids[begin : begin + len(t.ids)].tolist()
                        and set(t.members) <= set(row.members) and row.last[row.members.index(t.members[0])] - begin
                        == t.last[0])  # fmt: skip
            for place in range(len(tree.ids)):
                seen = [begin + j for j in range(place + 1) if tree.until[j] > place][-(window or tokens) :]
                keys, values = (part[0, :, seen].repeat_interleave(4 // key_heads, 0) for part in (key, value))
                scores = torch.einsum("hd,hkd->hk", query[0, :, begin + place], keys) * 0.3
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                expected = torch.einsum("hk,hkd->hd", torch.softmax(scores, -1), values)
                torch.testing.assert_close(out[0, begin + place], expected, rtol=1e-9, atol=1e-9)
                checked += 1
            begin += group.size
    assert checked == sum(len(tree.ids) for tree in everyone.values())
