"""Tiny policies and rollouts, shared by the tests of the learning core."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from models.engines.engine import Sampling, has_vllm
from models.learner.packing import Sequences
from models.method.advantage import Signal
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.device_here import placed

NO_VLLM = pytest.mark.skipif(not has_vllm(), reason="vLLM is not installed")
VOCABULARY = 24
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 12, 4], [9, 9], [13, 3]]
COMPLETIONS = [[5, 1], [6, 7, 8, 1], [3], [20, 19, 18, 17, 16, 1], [4, 4, 1]]
SEQUENCES = Sequences(PROMPTS, COMPLETIONS)


def tiny_policy(
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    vocabulary: int = VOCABULARY,
    spread: float = 6.0,
    hidden: int = 64,
) -> Any:
    """Make a Qwen3 of 2 layers whose next-token distributions are far from uniform.

    In float64, its norms do not round to float32.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=64,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model: Any = Qwen3ForCausalLM(config)
    model.to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(spread)
    if dtype == torch.float64:
        keep_float64_in_norms(model)
    return placed(model).eval()


def keep_float64_in_norms(model: nn.Module) -> None:
    """Replace the norms of transformers, which round to float32 and would limit the precision of tests in float64."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Qwen3RMSNorm | LlamaRMSNorm):
                norm = nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon, dtype=torch.float64)
                norm.to(child.weight.device).weight.data.copy_(child.weight.data)
                setattr(module, name, norm)


def plain_log_probs(model: Any, sequences: Sequences, temperature: float = 1.0) -> list[Tensor]:
    """Return the log-probs of each completion by definition: one sequence at a time, log-softmax over all tokens."""
    rows = []
    for prompt, completion in zip(sequences.prompts, sequences.completions, strict=True):
        ids = placed(torch.tensor([[*prompt, *completion]]))
        logits = model(ids).logits[0] / temperature
        whole = torch.log_softmax(logits, dim=-1)
        rows.append(whole[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None]).squeeze(1))
    return rows


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of 24 tokens: <pad>, <end>, <unk>, the numbers 0 to 16, and + = ; ####"""
    text = " ".join(str(number) for number in range(17)) + " + = ; ####"
    return train_tokenizer([text], TokenizerSettings(kind="words", vocabulary=64))


def scored(
    rewards: Tensor | Sequence[float],
    sizes: Sequence[int],
    components: Mapping[str, Tensor] | None = None,
    sequences: Sequences | None = None,
) -> Scored:
    """Return completions with the given rewards, in groups of the given sizes, one group after the other."""
    groups = [number for number, size in enumerate(sizes) for _ in range(size)]
    prompts = sequences.prompts if sequences else [[3]] * len(groups)
    completions = sequences.completions if sequences else [[1]] * len(groups)
    rollouts = [
        Rollout(Problem(f"p{group}", "", tokens=tuple(prompt)), group, tuple(ids), torch.zeros(len(ids)), "", True)
        for group, prompt, ids in zip(groups, prompts, completions, strict=True)
    ]
    return Scored(rollouts, torch.as_tensor(rewards), components or {}, {})


def contents(value: Any) -> Any:
    """Return `value` in a form that can be compared with `==`.

    Two results are equal if and only if all contents are equal, log-probs bit for bit. Completions and rollouts
    themselves compare by identity.
    """
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, (list, tuple)):
        return [contents(part) for part in value]
    if is_dataclass(value):
        return type(value).__name__, [contents(getattr(value, item.name)) for item in fields(value)]
    return value


def each_token(values: Tensor, chosen: Scored) -> Sequence[Tensor]:
    """Return `values` [completions] at each token of `chosen`, in the form that a fit takes."""
    return Signal.of_completions(values, chosen.lengths).tokens


GREEDY = Sampling(max_tokens=12, temperature=0.0)


def leave_room_for(model: Any, tokens: int) -> list[int]:
    """Make `model` raise an out-of-memory error when it learns from a row of more than `tokens` tokens.

    Return a list to which the model appends the length of every row that it learns from.
    """
    rows: list[int] = []

    def see(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            rows.append((args[0] if args else kwargs["input_ids"]).shape[-1])
            if rows[-1] > tokens:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    model.get_submodule("model").register_forward_pre_hook(see, with_kwargs=True)
    return rows
