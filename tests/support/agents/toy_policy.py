"""A toy chat policy for the agent programs: whole calls are single tokens, so that it calls functions untrained."""

import copy
from pathlib import Path
from typing import Any

import torch

from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.schedule import ScheduleSettings
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.agents.tool_loop import VALUES
from tests.support.tiny_models import tiny_policy

HERMES = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}"
    "{{ '\n' }}</tools><|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n' }}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ '\n' }}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template in the form of Hermes and Qwen: several results are one message of the user."""
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A chat template without tools, which writes any role."""
TOOLLESS = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}" + CHATML
"""A chat template that refuses results."""
LLAMA = (
    "{% for m in messages %}<|im_start|>{{ 'ipython' if m.role == 'tool' else m.role }}\n"
    "{% if loop.first and tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    '{% if m.tool_calls %}{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template in the form of Llama 3: a call is JSON alone."""
SCHEDULE = ScheduleSettings(
    rounds=2,
    minibatches=1,
    checkpoint_every=100,
    samples_every=100,
    optimiser=OptimiserSettings(learning_rate=1e-2, warmup_steps=0, decay="none"),
)
ENDS = (".", ";", "?")
"""Words that end a turn, so that the turns of an untrained policy end."""


def call_text(key: str) -> str:
    return f'<tool_call>{{"name":"lookup","arguments":{{"key":"{key}"}}}}</tool_call>'


def toy_codec(template: str = HERMES) -> Codec:
    """Return a codec of few words: keys, values, calls, and words in other scripts."""
    words = [*VALUES, *VALUES.values(), *map(call_text, VALUES), "é✓", "!", "again", "user", "assistant", *ENDS]
    return _chat(train_tokenizer([" ".join(words)], TokenizerSettings(kind="words", vocabulary=64)), template, ENDS)


def byte_codec(template: str = HERMES) -> Codec:
    """Return a codec of single bytes, in which a character or a call has many tokens."""
    return _chat(train_tokenizer(["a b"], TokenizerSettings(kind="bytes", vocabulary=260)), template, ())


def _chat(tokenizer: Any, template: str, ends: tuple[str, ...]) -> Codec:
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.split_special_tokens = False
    tokenizer.chat_template = template
    return Codec(tokenizer, chat=True, also_end=tuple(tokenizer.convert_tokens_to_ids(["<|im_end|>", *ends])))


def save_toy(folder: Path) -> Path:
    """Save the untrained policy as a model folder."""
    tokenizer = toy_codec().tokenizer
    save_model_folder(tiny_policy(torch.float32, spread=1.0, vocabulary=len(tokenizer)), tokenizer, folder)
    return folder


def learner_of(start: Path) -> Learner:
    policy: Any = load_causal_model(start, torch.float32)
    reference = copy.deepcopy(policy).requires_grad_(False)
    return Learner(policy, build_optimiser(policy, SCHEDULE.optimiser), reference, None, None, MODEL_DISTRIBUTION)


def problems_of(codec: Codec, count: int = 2) -> list[Problem]:
    """Return a problem for each of the first keys."""
    keys = list(VALUES)[:count]
    return [
        Problem(f"p{number}", key, VALUES[key], 1, tuple(ids))
        for number, (key, ids) in enumerate(zip(keys, codec.prompts(keys), strict=True))
    ]
