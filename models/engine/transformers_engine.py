"""transformers' generate as an engine: slower than vLLM, needs nothing beside the learner, runs wherever it runs.

Prompts of different lengths are padded on the left, so that every row's next token stands in the last column.
Temperature, top-k and top-p are applied by one processor that also notes the log-prob of each drawn token;
it keeps the distribution of one step only, never tokens x vocabulary.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from models.engine.engine import EngineSettings, Generated, Sampling, check_ids, engine_dtype
from models.learner.log_probs import completion_log_probs, hidden_width
from models.learner.packing import Sequences, pack
from models.policy.build import device, load_causal_model
from models.policy.folder import check_model_folder

SCORED_TOKENS = 16384
"""Tokens that one forward pass scores."""


class TransformersEngine:
    """A copy of the policy in the learner's process; see `models.engine.engine.Engine`.

    Raises:
        UserError: `folder` is no model folder, or transformers cannot load it.
    """

    def __init__(
        self,
        folder: Path,
        settings: EngineSettings,
        *,
        end: int,
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        check_model_folder(folder)
        chosen = engine_dtype(settings, dtype)
        model: Any = load_causal_model(folder, chosen, trust_remote_code=trust_remote_code)
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.model = model.to(device()).eval().requires_grad_(False)
        self.model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end)  # no model's own habits
        self.settings = settings
        self.end = end

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        """See `Engine.generate`. It draws from torch's global generator, which is seeded here."""
        check_ids(prompts, self.vocabulary)
        torch.manual_seed(seed)
        rows = [list(prompt) for prompt in prompts for _ in range(sampling.samples)]
        made: list[Generated] = []
        for start in range(0, len(rows), self.settings.max_sequences):
            made += self._generate(rows[start : start + self.settings.max_sequences], sampling)
        return [made[at : at + sampling.samples] for at in range(0, len(made), sampling.samples)]

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        check_ids([[*prompt, *ids] for prompt, ids in zip(prompts, completions, strict=True)], self.vocabulary)
        sequences = Sequences(prompts, completions)
        scores: list[list[float]] = [[] for _ in prompts]
        for cut in pack(sequences, max([SCORED_TOKENS, *sequences.lengths]), width=hidden_width(self.model)):
            with torch.no_grad():
                log_prob, _ = completion_log_probs(self.model, sequences.take(cut))
            for index, row in zip(cut, log_prob.split([len(completions[i]) for i in cut]), strict=True):
                scores[index] = row.tolist()
        return scores

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `Engine.load`. The values are copied: what the learner changes later does not show here."""
        self.model.load_state_dict(dict(weights), strict=True)

    def close(self) -> None:
        """See `Engine.close`."""
        del self.model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _generate(self, prompts: list[list[int]], sampling: Sampling) -> list[Generated]:
        ids, mask = _pad_left(prompts, self.end)
        noted = _Noted(sampling)
        drawing: dict[str, Any] = {"do_sample": True, "top_k": 0} if sampling.temperature > 0 else {"do_sample": False}
        with torch.no_grad():
            output: Tensor = self.model.generate(
                ids.to(self.model.device),
                attention_mask=mask.to(self.model.device),
                logits_processor=LogitsProcessorList([noted]),
                generation_config=GenerationConfig(
                    max_new_tokens=sampling.max_tokens,
                    eos_token_id=self.end,
                    pad_token_id=self.end,
                    **drawing,  # the processor has done the rest
                ),
            )
        drawn = output[:, ids.shape[1] :]
        log_probs = noted.all_of(drawn).tolist()
        return [self._cut(row, values) for row, values in zip(drawn.tolist(), log_probs, strict=True)]

    def _cut(self, tokens: list[int], log_probs: list[float]) -> Generated:
        """A row up to its first end token; behind it stands padding."""
        finished = self.end in tokens
        length = tokens.index(self.end) + 1 if finished else len(tokens)
        return Generated(tuple(tokens[:length]), tuple(log_probs[:length]), finished)


class _Noted(LogitsProcessor):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Shapes the next token's distribution and notes the log-prob of the token that was then drawn from it."""

    def __init__(self, sampling: Sampling) -> None:
        self.warpers = LogitsProcessorList()
        if sampling.temperature not in (0.0, 1.0):
            self.warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k and sampling.temperature > 0:
            self.warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1.0 and sampling.temperature > 0:
            self.warpers.append(TopPLogitsWarper(sampling.top_p))
        self.last: Tensor | None = None
        self.noted: list[Tensor] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """One step: [rows, tokens so far], [rows, vocabulary] -> [rows, vocabulary]."""
        self._note(input_ids[:, -1])
        shaped = self.warpers(input_ids, scores.float())
        self.last = torch.log_softmax(shaped, dim=-1)
        return shaped

    def all_of(self, drawn: Tensor) -> Tensor:
        """Log-probs of all drawn tokens, [rows, steps] -> [rows, steps], nats."""
        self._note(drawn[:, -1])
        return torch.stack(self.noted, dim=1)

    def _note(self, tokens: Tensor) -> None:
        if self.last is not None:
            self.noted.append(self.last.gather(-1, tokens[:, None]).squeeze(-1))


def _pad_left(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask, [rows, width] each, the last token of every prompt in the last column."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask
