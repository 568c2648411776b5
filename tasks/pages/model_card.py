"""The card of an exported model: README.md in the format of the Hugging Face Hub, from plain data to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import yaml

from models.evaluation.bootstrap import Interval
from models.policies.base_models.catalogue import entry_with
from models.policies.base_models.source import BaseModelSource
from models.policies.base_models.store import SUFFIX
from models.policies.folder import is_registered
from models.policies.use import PolicyUse
from models.text.prompt_form import PLACE, PromptForm
from tasks.pages.description import CheckLike, cell, code, fenced, gate_table, number, section, table

Chat = Literal["own", "plain", "none"]
"""How an exported policy chats: own: by the chat template that it was trained with; plain: by a template that writes
the plain prompts that it was trained on; none: no template can write its prompts."""
NOT_STATED = "not-stated"
"""Name of the licence of a model whose licence is unknown."""


@dataclass(frozen=True)
class Card:
    """Contents of a card."""

    name: str
    """Name of the registered model."""
    version: int
    aliases: tuple[str, ...]
    licence: str
    """Identifier as on the Hub, such as apache-2.0; empty if the export states none."""
    source: BaseModelSource | None
    """Source of the base model; None if its folder has no record of one."""
    licence_file: str
    """Name of the file with the licence of the base model; empty if there is none."""
    base: str
    """Hub id or folder that the policy was trained from; empty if it was initialised from its size."""
    data: Sequence[Sequence[str]]
    """Name, role, hash and rows of the data that it learned from and was judged on."""
    origin: Mapping[str, str]
    """Commit, recipe, seed and the like, by name; empty values are left out."""
    recipe: str
    """The whole recipe, YAML; empty if it is not recorded."""
    evaluated_on: str
    """Description of the data behind the metrics."""
    metrics: Mapping[str, Interval]
    verdict: str
    """The gate's verdict; empty if the gate never judged it."""
    compared: str
    """The policy that it was compared with, and the difference with its interval."""
    checks: Sequence[CheckLike]
    approval: Mapping[str, str]
    """Who made it champion, when and why, and a person's ruling on it."""
    use: PolicyUse
    form: PromptForm
    """Text around every prompt in training and evaluation."""
    chat: Chat
    served_name: str
    gguf: str = ""
    """Name of the GGUF file that the folder holds; empty if it holds safetensors."""


def model_card(card: Card, folder: str) -> str:
    """Render the card.

    Args:
        card: its contents.
        folder: path of the exported folder in commands.
    """
    head = yaml.safe_dump(_front_matter(card), sort_keys=False, allow_unicode=True)
    gate_text = "\n\n".join(filter(None, (cell(card.verdict), cell(card.compared), gate_table(card.checks))))
    aliases = f" ({', '.join(card.aliases)})" if card.aliases else ""
    made = "merged from others" if card.origin.get("merged from") else "fine-tuned by reinforcement learning"
    parts = (
        f"---\n{head}---",
        f"# {card.name} version {card.version}{aliases}",
        f"A policy that Rewardflow {made}.",
        section("Use", _use(card, folder)),
        section("Evaluation", _evaluation(card)),
        section("Gate", gate_text or "No gate has judged this version."),
        section("Approval", _facts(card.approval) or "It was not made champion."),
        section("Data", table(["data", "role", "hash", "rows"], [[cell(text) for text in row] for row in card.data])),
        section("Where it comes from", _facts(card.origin)),
        section("Recipe", fenced(card.recipe.rstrip(), "yaml") if card.recipe else ""),
        section("Licence", _licence(card)),
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def serve_commands(folder: str, served_name: str) -> tuple[str, str]:
    """Return the commands with which vLLM serves an exported folder: on a GPU, and on a CPU."""
    return (
        f"vllm serve {folder} --served-model-name {served_name}",
        f"python -m vllm.entrypoints.openai.api_server --model {folder} --served-model-name {served_name} "
        "--dtype float32",
    )


def llama_server_command(file: str, served_name: str) -> str:
    """Return the command with which llama.cpp serves a GGUF file."""
    return f"llama-server --model {file} --alias {served_name} --jinja"


def hub_base(card: Card) -> str:
    """Return the hub id of the base model, without a commit; empty if it is not known to be on the hub."""
    elsewhere = card.base.startswith((".", "/", "~")) or is_registered(card.base) or card.base.lower().endswith(SUFFIX)
    if card.base.count("/") == 1 and not elsewhere:
        return card.base.partition("@")[0]
    entry = entry_with(card.source.gguf_sha256) if card.source is not None else None
    return f"{entry.publisher}/{entry.title}" if entry is not None else ""


def _front_matter(card: Card) -> dict[str, object]:
    licence = card.licence or (card.source.licence if card.source else "")
    facts: dict[str, object] = {"license": licence or "other"}
    if not licence:
        facts["license_name"] = NOT_STATED
    facts |= {"library_name": "gguf" if card.gguf else "transformers", "pipeline_tag": "text-generation"}
    facts["tags"] = ["rewardflow", "reinforcement-learning", *(["gguf"] if card.gguf else [])]
    if base := hub_base(card):
        facts["base_model"] = base
    if card.metrics:
        metrics = [
            {"type": name, "name": name, "value": round(value.estimate, 6)} for name, value in card.metrics.items()
        ]
        result = {
            "task": {"type": "text-generation"},
            "dataset": {"type": "other", "name": card.evaluated_on},
            "metrics": metrics,
        }
        facts["model-index"] = [{"name": f"{card.name} version {card.version}", "results": [result]}]
    return facts


def _use(card: Card, folder: str) -> str:
    if card.gguf:
        command = llama_server_command(f"{folder}/{card.gguf}", card.served_name)
        commands = [
            fenced(f"{command}\n# as the base of another policy: --set policy.base={folder}/{card.gguf}", "bash")
        ]
    else:
        gpu, cpu = serve_commands(folder, card.served_name)
        example = (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
            f'model, tokenizer = (kind.from_pretrained("{folder}") for kind in (AutoModelForCausalLM, AutoTokenizer))'
        )
        commands = [fenced(f"{gpu}\n# on a CPU:\n{cpu}", "bash"), fenced(example, "python")]
    notes = []
    if card.chat == "plain":
        notes.append("It was trained on plain prompts. A chat of one user message is such a prompt, token by token "
                     "(`chat_template.jinja`); more messages are refused.")  # fmt: skip
    elif card.chat == "none":
        notes.append(
            "It was trained on plain prompts, which no chat template can write: send text to `/v1/completions`."
        )
    if card.form.system:
        notes.append("Begin every chat with this system message: the policy was trained and measured with it before "
                     f"each prompt that had none of its own.\n\n{fenced(card.form.system, 'text')}")  # fmt: skip
    if card.form.template != PLACE:
        notes.append(f"Write every prompt in this text, in the place of `{PLACE}`: the policy was trained and measured "
                     f"so.\n\n{fenced(card.form.template, 'text')}")  # fmt: skip
    if card.use.after_prompt:
        notes.append(f"Put {code(card.use.text)} behind every prompt: the policy was measured so.")
    if card.use.gated or card.use.mask_top_p < 1:
        notes.append("Its completions are drawn with a second model that is in this folder (`use.json`), which vLLM "
                     "and transformers by themselves do not do: what they draw is another policy.")  # fmt: skip
    return "\n\n".join([*commands, *notes])


def _evaluation(card: Card) -> str:
    if not card.metrics:
        return "No evaluation is on record."
    rows = [[cell(name), number(value)] for name, value in card.metrics.items()]
    introduction = f"On {cell(card.evaluated_on)}, with 95 % bootstrap intervals over prompts."
    return f"{introduction}\n\n{table(['metric', 'value'], rows)}"


def _licence(card: Card) -> str:
    if card.licence:
        return f"{code(card.licence)}, as stated at the export."
    text = f" The text is in {code(card.licence_file)}." if card.licence_file else ""
    if card.source is not None and card.source.licence:
        return f"{code(card.source.licence)}, the licence of the base model {cell(card.source.name)}.{text}"
    return f"Not stated. Publish this model under one that its base model and data allow (`license` above).{text}"


def _facts(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {cell(key)}: {cell(value)}" for key, value in facts.items() if value)
