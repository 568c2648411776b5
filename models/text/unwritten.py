"""Special tokens of a tokenizer that are left out of a completion's text, and tags, which are part of it.

A tokenizer marks many tokens as special: its end and padding, the tokens between which a chat template puts messages,
and often tags such as `<think>` or `<answer>` that were added for a purpose of the model. Tags are text: rewards,
samples, judges and people read them. The others are left out of a completion's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.text.rendering import PROBE, ChatTemplate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Roles for which a tokenizer's config names one token each."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*)>")


def ids_left_out_of_text(tokenizer: PreTrainedTokenizerBase, ends: Collection[int] = ()) -> frozenset[int]:
    """Return the ids of the special tokens that a completion's text leaves out.

    They are those that the tokenizer names for a purpose (`ROLES`), those that end a completion, and those that the
    chat template writes around a message of the user and before the assistant's reply. A pair `<name>` and `</name>`
    that has no such purpose is a tag, wherever the template writes it.

    Args:
        tokenizer: tokenizer of the completion.
        ends: ids that end a completion, see `models.text.end_ids`.
    """
    special = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    vocabulary = tokenizer.get_vocab()
    role_tokens = {str(token) for role in ROLES if (token := getattr(tokenizer, role, None)) is not None}
    chat_tokens = {token for token in _around_messages(tokenizer, special) if not _tag(token, special)}
    return frozenset(
        {vocabulary[name] for name in role_tokens if name in vocabulary}
        | {number for number in special.values() if number in ends}
        | {special[token] for token in chat_tokens}
    )


def _around_messages(tokenizer: PreTrainedTokenizerBase, special: Collection[str]) -> set[str]:
    """Return the special tokens that the chat template writes around a message, and the first one before a reply."""
    from jinja2 import TemplateError

    if not tokenizer.chat_template or not special:
        return set()
    template = ChatTemplate(tokenizer)
    try:
        message_text, prompt_text = (template.render([("user", PROBE)], asks=asks) for asks in (False, True))
    except (TemplateError, ValueError, TypeError, KeyError, UserError):  # it is refused when a chat is rendered
        return set()
    around = {token for token in special if token in message_text}
    reply = prompt_text.removeprefix(message_text)
    first = min((token for token in special if token in reply), key=reply.index, default=None)
    return around if first is None else {*around, first}


def _tag(token: str, special: Collection[str]) -> bool:
    """Return whether a special token is one of a pair `<name>` and `</name>`."""
    match = _TAG.fullmatch(token)
    return match is not None and f"<{'' if match[1] else '/'}{match[2]}>" in special


def write_tags(folder: Path, ends: Collection[int] = (), *, trust_remote_code: bool = False) -> None:
    """Remove the mark of special tokens from tags in a model folder's tokenizer, so that decoding keeps them.

    Servers and `decode(skip_special_tokens=True)` leave out every special token. The tokens and their ids do not
    change.

    Args:
        folder: a model folder, whose tokenizer files are changed.
        ends: ids that end a completion.
        trust_remote_code: run code of the model's own for its tokenizer.
    """
    from models.text.tokenizer import load_tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():  # slow tokenizers have no such marks in a file of a known format
        return
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    left_out = ids_left_out_of_text(tokenizer, ends)
    tags = {
        token.content
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special and number not in left_out
    }
    if not tags:
        return
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            facts: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            _unmark(facts, tags)
            (folder / name).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _unmark(facts: dict[str, Any], tags: Collection[str]) -> None:
    """Remove the mark of special tokens from `tags` in the content of a tokenizer's file."""
    entries = [*facts.get("added_tokens", ()), *facts.get("added_tokens_decoder", {}).values()]
    for token in entries:
        if token.get("content") in tags:
            token["special"] = False
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = facts.get(key)
        if isinstance(extra, list):
            facts[key] = [token for token in extra if _content(token) not in tags]
        elif isinstance(extra, dict):
            facts[key] = {name: token for name, token in extra.items() if _content(token) not in tags}


def _content(token: Any) -> str:
    return str(token.get("content")) if isinstance(token, dict) else str(token)
