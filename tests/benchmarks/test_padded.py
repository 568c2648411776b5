"""Tests of the padded loop that our updates are compared with: log-probs, loss and shapes. No test measures time."""

import torch

from benchmarks.shared.learners import learner_of
from benchmarks.shared.materials import llama
from benchmarks.speed.padded import PaddedLoop
from benchmarks.speed.padded_step import SHAPES
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences

PAIRS = [([5, 6, 7], [8, 9]), ([5, 6, 7], [4]), ([3], [9, 8, 7, 6, 5])]


def test_the_padded_loop_reads_the_log_probs_that_the_packed_learner_reads() -> None:
    padded, packed = (llama(hidden=32, layers=2, heads=2, vocabulary=16) for _ in range(2))
    padded.set_attn_implementation("sdpa")
    loop = PaddedLoop(padded, learner_of(padded, None).optimiser, None, rows=3)
    with torch.no_grad():
        rows, real = loop._log_probs(PAIRS)
        expected, _ = completion_log_probs(packed, Sequences(*zip(*PAIRS, strict=True)))
    assert real.sum(1).tolist() == [2, 1, 5]
    torch.testing.assert_close(rows[real > 0], expected, rtol=1e-5, atol=1e-5)


def test_its_loss_is_a_mean_over_tokens_whatever_the_micro_batch() -> None:
    losses = []
    for rows in (1, 2, 3):
        model = llama(hidden=32, layers=1, heads=2, vocabulary=16)
        before = model.lm_head.weight.detach().clone()
        losses.append(PaddedLoop(model, learner_of(model, None).optimiser, None, rows).update(PAIRS, [0.5, -1.0, 2.0]))
        assert not torch.equal(model.lm_head.weight, before)
    torch.testing.assert_close(losses, [-(0.5 * 2 - 1.0 * 1 + 2.0 * 5) / 8] * 3)


def test_the_tail_is_heavy_and_both_sides_get_whole_groups() -> None:
    shape = SHAPES["heavy_tail"]
    assert max(shape.lengths) > 10 * sorted(shape.lengths)[len(shape.lengths) // 2]
    prompts, completions = shape.ids()
    assert [len(group) for group in completions] == [shape.group] * len(prompts)
    assert [len(ids) for group in completions for ids in group] == list(shape.lengths)
