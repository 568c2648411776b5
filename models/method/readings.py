"""Cache of a round's log-probs under the policy as the round began and under the reference.

Rewards, advantages and the fit may all request them; the first request computes them. The loop makes one object for
every round, because the policy moves in the fit and the reference after it. Tokens that an environment wrote have
log-prob zero under every model: the policy does not choose them, and no difference of models there is a reward or a
penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from models.learner.all_completions import all_log_probs, all_states, read_each
from models.learner.distribution import Mask
from models.learner.log_probs import completion_log_probs
from models.learner.mask import lagged_at
from models.learner.packing import Sequences
from models.learner.rows import among_own_rows
from models.learner.upload import to_device
from models.method.episode_parts import rows_of_wholes
from models.method.learner import Learner, TargetModel
from models.method.rollout import Rollout, parts_of, privileged_sequences, sequences_of, written_places
from models.method.schedule import BUDGET_KEY

Read = dict[int, tuple[Rollout, Tensor]]
"""Log-probs by the `id()` of their rollout, which is stored with them so that the `id()` is not reused."""


class Readings:
    """Cache of completions' log-probs under policy and reference, valid as long as neither of them changes."""

    def __init__(self, learner: Learner, token_budget: int) -> None:
        """Begin with an empty cache.

        Args:
            learner: policy and reference.
            token_budget: tokens of one packed row.
        """
        self.token_budget = token_budget
        self._learner = learner
        self._policy: Read = {}
        self._reference: Read = {}
        self._lagged: Read = {}
        self._judge: dict[TargetModel, Read] = {}

    def policy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return log-probs under the policy at the first request, [completions] tensors of [tokens of it], nats."""
        return self._recall(self._policy, rollouts, lambda missing: self._masked(self._learner.policy, missing))

    def entropy(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Compute the entropy of the policy's distribution at each token, not cached, [completions] tensors of [tokens
        of it], nats."""
        learner, parts = self._learner, parts_of(rollouts)

        def read(part: Sequences, cut: Sequence[int]) -> Tensor:
            entropy = completion_log_probs(
                learner.policy,
                part,
                distribution=learner.distribution,
                autocast=learner.autocast,
                mask=self.mask([parts[index] for index in cut]),
            )[1]
            places = written_places([parts[index] for index in cut])
            if places is None:
                return entropy
            places = to_device(places, entropy.device)
            return torch.zeros_like(entropy).index_copy(0, places, entropy[places])

        return self.each(rollouts, read)

    def each(self, rollouts: Sequence[Rollout], read: Callable[[Sequences, Sequence[int]], Tensor]) -> list[Tensor]:
        """Apply `read` to the policy's packed rows, not cached, [completions] tensors of [tokens of it, ...].

        Args:
            rollouts: [completions].
            read: maps a row's sequences and their indices in `parts_of` to the values of all their tokens, [tokens,
            ...].
        """
        policy = self._learner.policy
        rows = read_each(
            policy,
            sequences_of(rollouts),
            read,
            token_budget=self.token_budget,
            setting=BUDGET_KEY,
        )
        return rows_of_wholes(rows, rollouts)

    def reference(self, rollouts: Sequence[Rollout]) -> list[Tensor] | None:
        """Return log-probs under the reference, [completions] tensors of [tokens of it], nats; None if there is none.

        Rollouts that carry them (offline methods, see `models.learner.reference_cache`) are not read at all.
        """
        for rollout in rollouts:
            if rollout.reference_log_probs is not None:
                self._reference.setdefault(id(rollout), (rollout, rollout.reference_log_probs))
        if all(id(rollout) in self._reference for rollout in rollouts):
            return [self._reference[id(rollout)][1] for rollout in rollouts]
        with self._learner.as_reference() as model:
            if model is None:
                return None
            return self._recall(self._reference, rollouts, lambda missing: self._masked(model, missing))

    def judge(self, rollouts: Sequence[Rollout], judge: TargetModel) -> list[Tensor]:
        """Return log-probs under the model `judge`, [completions] tensors of [tokens of it], nats.

        It reads `RolloutSource.privileged` instead of the prompt if a rollout has it.

        Raises:
            UserError: the recipe has none of this kind, or the server of the teacher does not answer.
        """

        def read(missing: Sequence[Rollout]) -> list[Tensor]:
            sequences = privileged_sequences(missing)
            served = self._learner.served_teacher
            if judge == "teacher" and served is not None:
                rows = rows_of_wholes(self._learner.ranks.from_first(lambda: served(sequences)), missing)
                return [row * torch.tensor(r.written).to(row) for r, row in zip(missing, rows, strict=True)]
            with self._learner.as_judge(judge) as model:
                return self.under(model, sequences, missing)

        return self._recall(self._judge.setdefault(judge, {}), rollouts, read)

    def mask(self, rollouts: Sequence[Rollout], kept: Tensor | None = None) -> Mask | None:
        """Return the reference's mask of the vocabulary for the tokens of `rollouts`, one completion after the other.

        With `kept`, [kept], only for the tokens at these places. None if the learner masks nothing.
        """
        learner = self._learner
        if learner.mask_top_p == 1.0:
            return None
        with learner.as_reference() as model:
            assert model is not None, "a source that masks needs a reference"
            states = self._recall(
                self._lagged,
                rollouts,
                lambda missing: rows_of_wholes(
                    all_states(
                        model,
                        sequences_of(missing),
                        autocast=learner.autocast,
                        token_budget=self.token_budget,
                        setting=BUDGET_KEY,
                    ),
                    missing,
                ),
            )
            drawn = replace(learner.distribution, top_p=learner.mask_top_p)
            if kept is not None:
                joined = torch.cat(states)
                states = [joined[to_device(kept, joined.device)]]
            return lagged_at(model, states, drawn, learner.autocast)

    def under(
        self,
        model: nn.Module,
        sequences: Sequences,
        rollouts: Sequence[Rollout] = (),
        masked: bool = False,
    ) -> list[Tensor]:
        """Compute log-probs under any model, not cached, [completions] tensors of [tokens of it], nats.

        Args:
            sequences: the model's input, [sequences] as in `parts_of`.
            rollouts: whose completions these are, [completions]; none: all tokens are the policy's, nothing is masked.
            masked: whether distributions are those within the learner's mask.
        """

        parts = parts_of(rollouts)

        def written(cut: Sequence[int]) -> Tensor | None:
            return written_places([parts[index] for index in cut]) if parts else None

        def mask(cut: Sequence[int]) -> Mask | None:
            return self.mask([parts[index] for index in cut], written(cut)) if masked else None

        rows = all_log_probs(
            model,
            sequences,
            distribution=self._learner.distribution,
            autocast=self._learner.autocast,
            token_budget=self.token_budget,
            setting=BUDGET_KEY,
            masked=mask,
            kept=written,
        )
        return rows_of_wholes(rows, rollouts) if rollouts else rows

    def _masked(self, model: nn.Module, rollouts: Sequence[Rollout]) -> list[Tensor]:
        return self.under(model, sequences_of(rollouts), rollouts, masked=True)

    def _recall(
        self, known: Read, rollouts: Sequence[Rollout], read: Callable[[Sequence[Rollout]], list[Tensor]]
    ) -> list[Tensor]:
        missing = [rollout for rollout in rollouts if id(rollout) not in known]
        ranks = self._learner.ranks
        if ranks.count > 1 and among_own_rows():
            # Others may miss entries of this rank, and all must read in step. Nothing is cached: not all would have it.
            if not any(ranks.all_gather(bool(missing))):
                return [known[id(rollout)][1] for rollout in rollouts]
            return read(rollouts)
        if missing:
            rows = read(missing)
            known.update((id(rollout), (rollout, row)) for rollout, row in zip(missing, rows, strict=True))
        return [known[id(rollout)][1] for rollout in rollouts]
