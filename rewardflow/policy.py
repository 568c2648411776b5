"""`load`: a registered policy with its tokenizer, ready to generate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Policy:
    """A policy in a self-contained model folder: safetensors, tokenizer, model card."""

    label: str
    """Name and version, or the folder."""
    folder: Path
    """The model folder, which transformers and vLLM read as it is."""

    @cached_property
    def model(self) -> PreTrainedModel:
        """The transformers model, in the dtype of its weights; it is loaded at the first use."""
        from transformers import AutoModelForCausalLM

        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(self.folder, dtype="auto").eval()
        return loaded

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, with the chat template that the policy was trained with."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int = 0,
    ) -> list[list[str]]:
        """Generate completions of prompts, [prompts][samples].

        Args:
            prompts: texts; a policy with a chat template reads each as a user's message.
            max_tokens: longest completion, in tokens.
            temperature: temperature of the draw; 0 takes the likeliest token.
            samples: completions per prompt; more than one needs a temperature above 0.
            seed: seed of the random numbers.

        Raises:
            UserError: `samples` is larger than one at temperature 0, or `prompts` is a text instead of a list.
        """
        import torch

        from models.base.errors import UserError

        if isinstance(prompts, str):
            raise UserError("generate: prompts is a list of texts, not one text")
        if samples > 1 and not temperature > 0:
            raise UserError("generate: several samples at temperature 0 are all the same; set a temperature above 0")
        drawn: dict[str, Any] = {"do_sample": True, "temperature": temperature} if temperature > 0 else {}
        torch.manual_seed(seed)
        completions = []
        for prompt in prompts:
            ids = self._encoded(prompt).to(self.model.device)
            with torch.inference_mode():
                generate: Any = self.model.generate
                made = generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, num_return_sequences=samples,
                    pad_token_id=self.tokenizer.pad_token_id, **drawn,
                )  # fmt: skip
            texts = self.tokenizer.batch_decode(made[:, ids.shape[1] :], skip_special_tokens=True)
            completions.append([str(text) for text in texts])
        return completions

    def _encoded(self, prompt: str) -> Any:
        if self.tokenizer.chat_template:
            message = [{"role": "user", "content": prompt}]
            return self.tokenizer.apply_chat_template(
                message, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )["input_ids"]
        return self.tokenizer(prompt, return_tensors="pt")["input_ids"]


def load(version: str | int | Path = "champion", *, model: str = "") -> Policy:
    """Load a registered version or a model folder.

    Args:
        version: number, alias such as champion, NAME/VERSION, or a model folder.
        model: name of the registered model; empty: the only registered policy that is not of a smoke run.

    Raises:
        UserError: there is no such version, or its files are missing or damaged.
    """
    folder = Path(str(version)).expanduser()
    if folder.is_dir():
        from models.policies.folder import check_model_folder

        check_model_folder(folder)
        return Policy(str(folder), folder.absolute())
    from flows.runtime.command_options import meant_policy
    from flows.runtime.environment import state_folder
    from tasks.registered.export import served_folder
    from tasks.tracking import recorded, store

    store.open_for_reading(state_folder())
    record = recorded.recorded(str(version), lambda: meant_policy(model))
    with served_folder(record, state_folder()) as served:
        return Policy(record.label, served)
