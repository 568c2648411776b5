"""A transformers model as an engine: it needs nothing beside the learner and runs wherever the learner runs.

The completions of a prompt share its keys and values (`models.engine.shared_decoding`). For small models on a CPU it
generates faster than vLLM, whose scheduler costs more there than the arithmetic; for large models, long completions of
very different lengths, or a GPU, vLLM is the engine to use.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.engine.engine import EngineSettings, Generated, Sampling, check_ids, engine_dtype
from models.engine.shared_decoding import Decoding
from models.learner.fused_log_probs import AS_IT_IS, Distribution, next_token_log_probs
from models.learner.log_probs import completion_log_probs, hidden_width, output_head, use_packed_attention
from models.learner.packed_attention import read_packed
from models.learner.packing import Sequences, pack
from models.policy.build import device, load_causal_model
from models.policy.folder import check_model_folder

SCORED_TOKENS = 16384
"""Tokens that one forward pass scores."""
PREFILL_TOKENS = 32768
"""Tokens of prompts that are read at once."""
NARROW_EVERY = 8
"""Steps after which finished sequences may be dropped."""
WORTH_NARROWING = 0.8
"""They are where at most this share of the rows would be left."""


class TransformersEngine:
    """A copy of the policy in the learner's process; see `models.engine.engine.Engine`.

    Raises:
        UserError: `folder` is no model folder, transformers cannot load it, or the model cannot read packed rows.
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
        self.dtype = engine_dtype(settings, dtype)
        model: Any = load_causal_model(folder, self.dtype, trust_remote_code=trust_remote_code)
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.model = model.to(device()).eval().requires_grad_(False)
        use_packed_attention(self.model)
        self.settings = settings
        self.end = end

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        """See `Engine.generate`. It draws from torch's global generator, which is seeded here."""
        check_ids(prompts, self.vocabulary)
        torch.manual_seed(seed)
        most = self.settings.max_sequences
        made: list[list[Generated]] = [[] for _ in prompts]
        with torch.inference_mode():
            for first in range(0, sampling.samples, most):
                samples = min(most, sampling.samples - first)
                for chunk in _chunks(prompts, samples, most):
                    groups = self._generate(prompts[chunk], samples, sampling)
                    for whole, more in zip(made[chunk], groups, strict=True):
                        whole += more
        return made

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

    def _generate(self, prompts: Sequence[Sequence[int]], samples: int, sampling: Sampling) -> list[list[Generated]]:
        """Completions of different prompts side by side, [prompts][samples]."""
        place = self.model.device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=place)
        decoding = Decoding(lengths, samples, sampling.max_tokens)
        ids = torch.tensor([token for prompt in prompts for token in prompt], device=place)
        positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts]).to(place)
        head, distribution = output_head(self.model), _distribution(sampling)
        states = read_packed(self.model.base_model, ids, positions, decoding)[lengths.cumsum(0) - 1]
        states = states.repeat_interleave(samples, dim=0)
        drawn = torch.full((len(states), sampling.max_tokens), self.end, device=place)
        noted = torch.zeros(drawn.shape, device=place)
        rows = torch.arange(len(states), device=place).view(-1, samples)
        alive = torch.ones_like(rows, dtype=torch.bool)
        for step in range(sampling.max_tokens):
            log_probs = next_token_log_probs(states, head, distribution)
            tokens = _draw(log_probs, greedy=sampling.temperature == 0.0)
            going = alive.flatten()
            drawn[rows.flatten()[going], step] = tokens[going]
            noted[rows.flatten()[going], step] = log_probs.gather(1, tokens[:, None]).squeeze(1)[going].float()
            alive = alive & (tokens != self.end).view_as(alive)
            if step + 1 == sampling.max_tokens or not bool(alive.any()):
                break
            if step % NARROW_EVERY == NARROW_EVERY - 1:
                tokens = tokens.view_as(alive)
                stay = alive.any(1).nonzero().squeeze(1)
                widest = int(alive.sum(1).max())
                if len(stay) * widest <= WORTH_NARROWING * alive.numel():
                    members = alive[stay].int().argsort(dim=1, descending=True, stable=True)[:, :widest]
                    decoding.narrow(stay, members)
                    rows, alive, tokens = (wide[stay[:, None], members] for wide in (rows, alive, tokens))
                tokens = tokens.flatten()
            decoding.step = step
            places = (decoding.lengths + step).repeat_interleave(rows.shape[1])
            states = read_packed(self.model.base_model, tokens, places, decoding)
        values = noted.tolist() if sampling.log_probs else [[]] * len(drawn)
        made = [self._cut(row, known) for row, known in zip(drawn.tolist(), values, strict=True)]
        return [made[at : at + samples] for at in range(0, len(made), samples)]

    def _cut(self, tokens: list[int], log_probs: list[float]) -> Generated:
        """A row up to its first end token; behind it stands nothing."""
        finished = self.end in tokens
        length = tokens.index(self.end) + 1 if finished else len(tokens)
        return Generated(tuple(tokens[:length]), tuple(log_probs[:length]), finished)


def _distribution(sampling: Sampling) -> Distribution:
    """What is drawn from; greedy tells the log-probs of temperature 1, uncut."""
    if sampling.temperature == 0.0:
        return AS_IT_IS
    return Distribution(temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)


def _draw(log_probs: Tensor, *, greedy: bool) -> Tensor:
    """The likeliest token, or the one that a random point falls to on the line of all probabilities, [rows]."""
    if greedy:
        return log_probs.argmax(-1)
    line = log_probs.double().exp().cumsum(-1)
    point = torch.rand(len(line), 1, dtype=line.dtype, device=line.device) * line[:, -1:]
    return torch.searchsorted(line, point, right=True).clamp(max=line.shape[-1] - 1).squeeze(1)


def _chunks(prompts: Sequence[Sequence[int]], samples: int, most: int) -> Iterator[slice]:
    """Prompts that are generated for at once: at most `most` sequences and PREFILL_TOKENS tokens, at least one."""
    start = tokens = 0
    for place, prompt in enumerate(prompts):
        if place > start and ((place + 1 - start) * samples > most or tokens + len(prompt) > PREFILL_TOKENS):
            yield slice(start, place)
            start = place
            tokens = 0
        tokens += len(prompt)
    if prompts:
        yield slice(start, len(prompts))
