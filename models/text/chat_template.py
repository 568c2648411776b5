"""The chat template of a policy that was trained on plain prompts: a chat of one message becomes the prompt's own ids.

Servers add no special tokens around the output of a chat template. The template therefore writes those that the
tokenizer adds to a plain text, and the text that follows every prompt of the policy (`models.policies.use`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.errors import UserError
from models.text.encoding import Codec
from models.text.rendering import ChatTemplate
from models.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEMPLATE = "chat_template.jinja"
"""File of a model folder's chat template."""
_OTHERS = ("chat_template.json", "additional_chat_templates")
"""Other places in a model folder from which a server reads a template."""
_REFUSAL = "this policy was trained on single prompts: send one message, of the role user, and no tools"
_PROBES = ("7", "4 + 5 =", " What is it?\n")
"""Texts for testing a template: white space at either end is part of a prompt."""


def plain_template(tokenizer: PreTrainedTokenizerBase, suffix: str = "") -> str:
    """Build a chat template that renders one user message as a plain prompt and refuses all other chats.

    Args:
        tokenizer: the policy's tokenizer.
        suffix: text between every prompt and its completion.

    Raises:
        UserError: the tokenizer changes a text when it adds its special tokens.
    """
    bare: list[int] = list(tokenizer("7", add_special_tokens=False)["input_ids"])
    whole: list[int] = list(tokenizer("7")["input_ids"])
    starts = [at for at in range(len(whole) - len(bare) + 1) if whole[at : at + len(bare)] == bare]
    if not starts:
        raise UserError(
            "the tokenizer's special tokens change the text next to them, so no chat template can write them"
        )
    first, close = (
        "".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (whole[: starts[0]], whole[starts[0] + len(bare) :])
    )
    return (
        "{% if messages | length != 1 or messages[0]['role'] != 'user' or tools %}"
        f"{{{{ raise_exception({json.dumps(_REFUSAL)}) }}}}{{% endif %}}"
        f"{{{{ {json.dumps(first)} }}}}{{{{ messages[0]['content'] }}}}{{{{ {json.dumps(close + suffix)} }}}}"
    )


def chat_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids that a server makes of a chat of one user message `text`."""
    return list(tokenizer(ChatTemplate(tokenizer).render([("user", text)]), add_special_tokens=False)["input_ids"])


def write_plain_template(
    folder: Path, after_prompt: Sequence[int], suffix: str, *, trust_remote_code: bool = False
) -> bool:
    """Write a chat template into `folder` that gives a chat the ids of the plain prompts which the policy trained on.

    A template that already does so stays; any other is replaced.

    Args:
        folder: a model folder, which is changed.
        after_prompt: ids between every prompt and its completion, [tokens].
        suffix: the same as text.
        trust_remote_code: run code of the model's own for its tokenizer.

    Returns:
        Whether they are equal. If no template can achieve this, none is left: a chat is then refused, not misread.
    """
    if _renders_prompts(folder, after_prompt, trust_remote_code):
        return True
    _remove_templates(folder)
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    try:
        template = plain_template(tokenizer, f" {suffix}" if suffix else "")
    except UserError:
        return False
    (folder / TEMPLATE).write_text(template, encoding="utf-8")
    if _renders_prompts(folder, after_prompt, trust_remote_code):
        return True
    (folder / TEMPLATE).unlink()
    return False


def _renders_prompts(folder: Path, after_prompt: Sequence[int], trust_remote_code: bool) -> bool:
    from jinja2 import TemplateError

    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    if not tokenizer.chat_template:
        return False
    expected_ids = [[*ids, *after_prompt] for ids in Codec(tokenizer).prompts(_PROBES)]
    try:
        return [chat_ids(tokenizer, text) for text in _PROBES] == expected_ids
    except (TemplateError, ValueError, UserError):  # it needs more than one message, or has several names
        return False


def _remove_templates(folder: Path) -> None:
    for name in (TEMPLATE, *_OTHERS):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    config = folder / "tokenizer_config.json"
    if config.is_file():
        settings = json.loads(config.read_text(encoding="utf-8"))
        if settings.pop("chat_template", None) is not None:
            config.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
