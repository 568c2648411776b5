"""Savings of the learner on episodes: shared histories, and tokens without a loss. Both sides are ours.

    histories    8 turns x 2 branches, every turn a sample of its own, forward and backward: each token of the trie
                 once, against every sample with its whole history
    projection   completions of which 20 % of the tokens are trained on, vocabulary 32,768, output projection forward
                 and backward: for these tokens alone, against all

The two sides take turns in one process, on the same weights; losses are equal (tests check that).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.shared.alternate import REST
from benchmarks.shared.materials import learner_precision, llama, token_lists
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.learner.fused_log_probs import fused_log_probs
from models.learner.histories import unique_tokens
from models.learner.log_probs import completion_log_probs, output_head
from models.learner.packing import Sequences

TURNS, BRANCHES, GROUPS = 8, 2, 4
TURN, HEARD, PROMPT = 32, 16, 64
"""Tokens of a turn, of the environment's text after it, and of the prompt."""
VOCABULARY, TRAINED = 32768, 0.2


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    return [(_histories if name == "histories" else _projection)(settings)]


def _histories(settings: Settings) -> Row:
    turns, groups = (2, 1) if settings.quick else (TURNS, GROUPS)
    model = llama()
    precision = learner_precision(model)
    nested = _branching(turns, groups)
    alone = _unshared(nested, groups)
    sides = {
        "ours": lambda: _read(model, [nested], precision),
        "peer": lambda: _read(model, alone, precision),
    }
    seconds = _in_turns(sides, settings)
    tokens = unique_tokens([nested.whole(index) for index in range(len(nested))])
    return compare(
        f"reading and learning from {turns} turns x {BRANCHES} branches x {groups}, each turn a sample of its own",
        seconds["ours"],
        seconds["peer"],
        "s",
        4.0,
        smaller_is_better=True,
        against="every sample with its whole history, packed",
        details={"tokens": tokens, "tokens_of_peer": sum(nested.lengths), "precision": str(precision)},
    )


def _branching(turns: int, groups: int) -> Sequences:
    """Make in each group a line of turns with a second branch at every turn, which ends there; groups by turns."""
    drawn = iter(token_lists(groups * turns * (BRANCHES + 1) + groups, max(TURN, HEARD, PROMPT), seed=3))
    prompts: list[list[int]] = []
    completions: list[list[int]] = []
    histories = [next(drawn)[:PROMPT] for _ in range(groups)]
    for _ in range(turns):
        branches = [[next(drawn)[:TURN] for _ in range(BRANCHES)] for _ in range(groups)]
        for number in range(BRANCHES):
            for group in range(groups):
                prompts.append(histories[group])
                completions.append(branches[group][number])
        histories = [
            [*history, *of_group[0], *next(drawn)[:HEARD]]
            for history, of_group in zip(histories, branches, strict=True)
        ]
    return Sequences(prompts, completions, nested=True)


def _unshared(nested: Sequences, groups: int) -> list[Sequences]:
    """Return the same samples in rows in which all prompts differ, so that nothing is shared: one row a branch."""
    branches = [
        [index for index in range(len(nested)) if (index // groups) % BRANCHES == number] for number in range(BRANCHES)
    ]
    return [Sequences([nested.prompts[i] for i in some], [nested.completions[i] for i in some]) for some in branches]


def _read(model: torch.nn.Module, parts: list[Sequences], precision: torch.dtype | None) -> None:
    for part in parts:
        log_prob, _ = completion_log_probs(model, part, autocast=precision)
        (-log_prob.mean()).backward()
    model.zero_grad(set_to_none=True)


def _projection(settings: Settings) -> Row:
    vocabulary, tokens = (2048, 64) if settings.quick else (VOCABULARY, 2048)
    model = llama(layers=1, vocabulary=vocabulary)
    precision = learner_precision(model)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(tokens, model.config.hidden_size, generator=generator)
    targets = torch.randint(3, vocabulary, (tokens,), generator=generator)
    kept = torch.randperm(tokens, generator=generator)[: int(TRAINED * tokens)].sort().values

    def project(places: Tensor | None) -> None:
        mine = states.clone().requires_grad_(True)
        chosen, wanted = (mine, targets) if places is None else (mine[places], targets[places])
        log_prob, entropy = fused_log_probs(chosen, output_head(model), wanted, compute=precision)
        if places is None:  # as before: all of it, and then a part
            log_prob, entropy = log_prob[kept], entropy[kept]
        (entropy.mean() - log_prob.mean()).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    seconds = _in_turns({"ours": lambda: project(kept), "peer": lambda: project(None)}, settings)
    return compare(
        f"output projection of {tokens} tokens, {TRAINED:.0%} of them trained on, vocabulary {vocabulary:,}",
        seconds["ours"],
        seconds["peer"],
        "s",
        1.5,
        smaller_is_better=True,
        against="projecting all tokens",
        details={"precision": str(precision)},
    )


def _in_turns(sides: dict[str, Callable[[], None]], settings: Settings) -> dict[str, list[float]]:
    """Measure the seconds of each side, which take turns."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(settings.warm + settings.samples):
        for side, run in sides.items():
            time.sleep(REST)
            began = time.perf_counter()
            run()
            if turn >= settings.warm:
                seconds[side].append(time.perf_counter() - began)
    return seconds
