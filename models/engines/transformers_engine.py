"""A transformers model as an engine: it needs no packages besides the learner's and runs on the same machines.

The completions of a prompt share its keys and values (`models.engines.shared_decoding`). For small models on a CPU it
generates faster than vLLM, whose scheduler costs more there than the arithmetic; for large models, long completions of
very different lengths, or a GPU, use vLLM.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.base.device import device
from models.base.errors import UserError
from models.engines.decoding_loop import Switch, complete
from models.engines.engine import (
    CompletionRequest,
    Engine,
    EngineSettings,
    Generated,
    TokenSampling,
    check_ids,
    engine_dtype,
    prompts_of,
)
from models.engines.serving import Serving
from models.engines.voice import JointDecoding, Voice
from models.learner.all_completions import all_log_probs
from models.learner.image_features import reads_images
from models.learner.log_probs import use_packed_attention
from models.learner.packing import Sequences
from models.policies.build import load_causal_model
from models.policies.folder import check_model_folder
from models.text.end_ids import Ends, all_of

SCORED_TOKENS = 16384
"""Tokens that one forward pass scores."""


class TransformersEngine(Engine):
    """An engine with a copy of the policy in the learner's process; see `models.engines.engine.Engine`.

    Raises:
        UserError: `folder` is not a model folder, transformers cannot load it, or the model cannot read packed rows.
    """

    def __init__(
        self,
        folder: Path,
        settings: EngineSettings,
        *,
        end: Ends,
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        check_model_folder(folder)
        self.dtype = engine_dtype(settings, dtype)
        self.model = self.read_model(folder, trust_remote_code)
        self.vocabulary = int(self.model.get_input_embeddings().weight.shape[0])
        self.settings = settings
        self.end = end
        self.read_extra_files(folder, trust_remote_code)
        self.room = settings.max_sequences if len(self.voices()) == 1 and not reads_images(self.model) else 0
        self.serving: Serving | None = None
        self.asleep: list[torch.Size] = []
        """Shapes of the released weights, in order; empty while the engine has its weights."""

    def read_model(self, folder: Path, trust_remote_code: bool) -> Any:
        """Load a read-only model in the engine's precision."""
        model: Any = load_causal_model(folder, self.dtype, trust_remote_code=trust_remote_code)
        use_packed_attention(model.to(device()).eval().requires_grad_(False))
        return model

    def read_extra_files(self, folder: Path, trust_remote_code: bool) -> None:
        """Read what the policy in `folder` needs in addition to its weights (`models.policies.use`); here nothing."""

    def voices(self) -> list[Voice]:
        """Return the voices that choose the next token: only the policy by default."""
        return [Voice(lambda: nullcontext(self.model))]

    def switch(self) -> Switch | None:
        """Return the switch between two voices at every token; None: the voices form a mixture."""
        return None

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`."""
        return self.complete_with(requests, drawing, JointDecoding())

    def complete_with(
        self, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding
    ) -> list[Generated]:
        """See `models.engines.voice.JointEngine`."""
        self._check(prompts_of(requests))
        switch, most = self.switch(), self.settings.max_sequences
        if switch is not None and joint != JointDecoding():
            raise UserError("a policy that writes by turns with its reference cannot decode together with other models")
        own = self.voices()
        if joint.budget is not None:
            own = [replace(voice, budget=joint.budget) for voice in own]
        voices = (*own, *joint.voices)
        return complete(voices, requests, drawing, end=self.end, most=most, switch=switch, terms=joint.terms)

    def serve(
        self,
        requests: Mapping[int, CompletionRequest],
        drawing: TokenSampling,
        steps: int,
        dropped: Collection[int] = (),
    ) -> dict[int, Generated]:
        """See `Engine.serve`."""
        self._check(prompts_of(list(requests.values())))
        serving = self.serving
        if serving is None or (serving.drawing != drawing and not serving.under_way):
            serving = self.serving = Serving(self.model, drawing, all_of(self.end), self.room)
        if serving.drawing != drawing:
            raise ValueError(f"{serving.under_way} completions are under way that are drawn in another way")
        serving.change(requests, dropped)
        ended: dict[int, Generated] = {}
        for _ in range(steps):
            if not serving.under_way:
                break
            ended |= serving.step(self.version)
        return ended

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        self._check([[*prompt, *ids] for prompt, ids in zip(prompts, completions, strict=True)])
        sequences = Sequences(prompts, completions)
        log_probs = all_log_probs(self.model, sequences, token_budget=max([SCORED_TOKENS, *sequences.lengths]))
        return [row.tolist() for row in log_probs]

    def _check(self, rows: Sequence[Sequence[int]]) -> None:
        """Check prompts; see `check_ids`."""
        check_ids(rows, self.vocabulary, images=reads_images(self.model))

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. The values are copied: later changes by the learner have no effect here.

        Raises:
            ValueError: a weight is missing, or does not belong to the model.
        """
        given = dict(weights)
        own = self.model.state_dict().keys()
        if given.keys() != own:
            raise ValueError(f"weights were handed over that are not the model's: {sorted(given.keys() ^ own)}")
        if self.asleep:
            for weight, shape in zip(self.model.parameters(), self.asleep, strict=True):
                weight.data = weight.data.new_empty(shape)
            self.asleep = []
        self.model.load_state_dict(given, strict=True)
        self.version = version

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        if self.settings.sleeps and not self.asleep:
            self.serving = None
            weights = list(self.model.parameters())
            self.asleep = [weight.shape for weight in weights]
            for weight in weights:
                weight.data = weight.data.new_empty(0)

    def close(self) -> None:
        """See `Engine.close`."""
        self.serving = None
        del self.model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
