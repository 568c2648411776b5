"""Prompts and answers that are written as messages, and the texts that are read from them.

    messages   [{"role": "user", "content": "2 + 3 ?"}, {"role": "assistant", "content": "5"}]
    prompt     [{"role": "user", ...}]            completion, chosen, rejected   [{"role": "assistant", ...}]

Messages are lists (TRL), lists with `from` and `value` instead of `role` and `content` (ShareGPT), or the text of
either (`models/datasets/message_text.py`). A prompt is one message of the user. A system message before it is put above
it, separated by a blank line, and its text is also stored separately (`FieldTexts.system`). An answer is one message of
the assistant. If `chosen` and `rejected` begin with the prompt, it is read from there. A conversation of several turns
is refused.

All columns of a row must contain the same question: the messages before an answer, those of a column `messages`, and
the prompt. A system message in one of them belongs to the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from models.base.errors import UserError, listed
from models.datasets.image_columns import IMAGE_COLUMNS, PLACEHOLDER, with_images
from models.datasets.message_text import may_be_messages, parsed_messages
from models.datasets.raw import RawRow

CONVERSATIONS = ("messages", "conversations", "conversation")
"""Columns of a whole conversation: the prompt and, if the last message is the assistant's, the completion."""
WITNESS = "messages"
"""Field of such a column next to a prompt column: both must contain the same question."""
SYSTEM = "system"
"""Field of a system message in a separate column."""
ANSWERS = ("completion", "chosen", "rejected")
MAY_HOLD_MESSAGES = ("prompt", *ANSWERS, WITNESS, "answer")

TEXT_KEYS = frozenset({
    "reasoning_content", "reasoning", "thinking", "thoughts", "thought", "tool_calls", "function_call", "tools",
    "functions", "audio", "image", "images",
})  # fmt: skip
"""Keys of a message that a chat template may write into the prompt or the answer."""
TEXT_COLUMNS = TEXT_KEYS | {"system", "system_prompt", "system_message"}
"""Columns that a chat template may write into the prompt or the answer."""
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "bot": "assistant"}
"""Role names of the ShareGPT form that have another name here."""
TEXT_PARTS = ("text", "input_text", "output_text")

Message = dict[str, Any]


@dataclass(frozen=True)
class FieldTexts:
    """The texts of a row."""

    texts: dict[str, str]
    """Field -> text."""
    system: str = ""
    """System message at the beginning of the prompt, where a blank line follows it; empty if there is none."""
    unread: set[str] = field(default_factory=set)
    """Keys of messages that are not read, such as `messages[].weight`."""


def conversation_in(raw: RawRow, column: str) -> list[Message] | None:
    """Read the messages of a column; None if it has none.

    Raises:
        UserError: a text begins like messages and cannot be parsed.
    """
    value: Any = raw.values.get(column)
    if isinstance(value, str):
        value = parsed_messages(value, f"{raw.place}: column '{column}'")
    if isinstance(value, Mapping):
        value = _turns(value)
    if not isinstance(value, list) or not value:
        return None
    messages = [_message(turn) for turn in value]
    return [message for message in messages if message is not None] if None not in messages else None


def _turns(value: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a mapping, which is one message or has a list for each key."""
    roles, contents = value.get("role"), value.get("content")
    if isinstance(roles, list) and isinstance(contents, list) and len(roles) == len(contents):
        return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    return [value]


def _message(turn: Any) -> Message | None:
    if not isinstance(turn, Mapping):
        return None
    if isinstance(turn.get("role"), str) and ("content" in turn or any(turn.get(key) for key in TEXT_KEYS)):
        return {"content": None, **turn}
    if isinstance(turn.get("from"), str) and "value" in turn:
        rest = {key: value for key, value in turn.items() if key not in ("from", "value")}
        return {"role": ROLES.get(turn["from"], turn["from"]), "content": turn["value"], **rest}
    return None


def columns_of_messages(columns: Mapping[str, str], first: RawRow, present: AbstractSet[str]) -> dict[str, str]:
    """Return the `columns` of a format, field -> column, with the columns of messages that the rows have.

    Args:
        columns: field -> column of the format.
        first: the first row.
        present: columns that any row has.
    """
    named = dict(columns)
    if "prompt" not in named:
        return named
    whole = next((name for name in CONVERSATIONS if name in present and name not in named.values()), None)
    if named["prompt"] in present:
        if whole is not None and conversation_in(first, whole) is not None:
            named[WITNESS] = whole
    elif conversation_in(first, named.get("chosen", "")) is not None:
        named["prompt"] = named["chosen"]
        if whole is not None and conversation_in(first, whole) is not None:
            named[WITNESS] = whole
    elif whole is not None:
        named["prompt"] = whole
    if whole is not None and "completion" in named and named["completion"] not in present:
        named["completion"] = whole
        named.pop(WITNESS, None)
    return named


def read_fields(raw: RawRow, columns: Mapping[str, str], ignored: AbstractSet[str] = frozenset()) -> FieldTexts:
    """Read the text of each field of a row; messages become the texts that they contain.

    Args:
        raw: the row.
        columns: field -> column.
        ignored: columns, and keys of messages, that are left out on purpose.

    Raises:
        UserError: a value is not text; messages have no readable prompt or answer; columns contain different
            questions; a column or key holds text that would be lost.
    """
    if not TEXT_COLUMNS.isdisjoint(raw.values):
        _refuse_lost(raw, raw.values, TEXT_COLUMNS, ignored, {*columns.values(), *IMAGE_COLUMNS})
    held = {
        name: messages
        for name, column in columns.items()
        if name in MAY_HOLD_MESSAGES
        and may_be_messages(raw.values.get(column))
        and not (name == WITNESS and column in ignored)
        and (messages := conversation_in(raw, column)) is not None
    }
    made = FieldTexts({})
    for name, messages in held.items():
        for message in messages:
            _refuse_lost(raw, message, TEXT_KEYS, ignored, where=f" in a message of column '{columns[name]}'")
            made.unread.update(
                f"{columns[name]}[].{key}" for key in message if key not in ("role", "content", *ignored)
            )
    for name, column in columns.items():
        if name in (WITNESS, SYSTEM):
            continue
        if name not in held:
            made.texts[name] = raw.text(column)
            if column in CONVERSATIONS and made.texts[name]:
                raise UserError(f"{raw.place}: column '{column}' holds no messages (role and content of each)")
        elif name == "prompt":
            made.texts[name] = _prompt(raw, column, _asked(held[name]))
        elif name in ANSWERS:
            made.texts[name] = _answer(raw, column, held[name])
        else:
            raise UserError(f"{raw.place}: column '{column}' holds messages, which the field '{name}' cannot be")
    if "rejected" in columns and columns.get("prompt") == columns.get("chosen"):
        asked = [_asked(held[name]) if name in held else None for name in ("chosen", "rejected")]
        if asked[0] != asked[1]:
            raise UserError(f"{raw.place}: the messages of chosen and rejected do not begin with the same prompt")
    if "prompt" in made.texts and (held or SYSTEM in columns):
        made.texts["prompt"], system = _agreed(raw, columns, held, made.texts["prompt"])
        made = replace(made, system=system)
    if "prompt" in made.texts and any(column in raw.values for column in IMAGE_COLUMNS):
        made.texts["prompt"] = with_images(raw, made.texts["prompt"], ignored)
    return made


def _agreed(
    raw: RawRow, columns: Mapping[str, str], held: Mapping[str, Sequence[Message]], prompt: str
) -> tuple[str, str]:
    """Return the prompt on which all columns of a row agree, with the system message of any of them; and this message.

    Raises:
        UserError: two columns contain different questions, or different system messages.
    """
    question, systems, begins = prompt, {}, ""
    if "prompt" in held:
        question = _content(raw, columns["prompt"], _asked(held["prompt"])[-1], images=True)
    if (column := columns.get(SYSTEM)) and (text := raw.text(column)):
        systems[column] = text
    for name, messages in held.items():
        asked = _asked(messages)
        if not asked:
            continue
        column = columns[name]
        whole = _prompt(raw, column, asked)
        own = _content(raw, column, asked[-1], images=True)
        if question.strip() not in (own.strip(), whole.strip()):
            raise UserError(
                f"{raw.place}: column '{column}' answers another question than column '{columns['prompt']}' asks"
                + (f"; data.ignore=[{column}] leaves it out" if name == WITNESS else "")
            )
        if len(asked) > 1:
            begins = _content(raw, column, asked[0])
            if question.strip() != whole.strip():
                systems[column] = begins
    if len(set(systems.values())) > 1:
        raise UserError(f"{raw.place}: the columns {listed(list(systems))} have different system messages")
    for system in systems.values():
        prompt = question if _begins_with(system, question) else _with_system(system, question)
        begins = system
    return prompt, begins if _begins_with(begins, prompt) else ""


def _begins_with(system: str, prompt: str) -> bool:
    return bool(system) and prompt.startswith(_with_system(system, ""))


def _refuse_lost(
    raw: RawRow,
    values: Mapping[str, Any],
    names: AbstractSet[str],
    ignored: AbstractSet[str],
    read: Collection[str] = (),
    where: str = "",
) -> None:
    """Raise a UserError if one of the names holds text that is neither read nor ignored."""
    for name in values:
        if name in names and name not in ignored and name not in read and not _is_empty(values[name]):
            cure = f"write it into the text as the chat template does, or leave it out with data.ignore=[{name}]"
            if name not in TEXT_KEYS:
                cure = f"data.columns={{{SYSTEM}: {name}}} reads it, data.ignore=[{name}] leaves it out"
            raise UserError(f"{raw.place}: '{name}'{where} is not read; {cure}")


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in ("", "[]", "{}", "null", "None")
    return value is None or value is False or value != value or value in ([], {}, ())


def _asked(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without a final message of the assistant."""
    return messages[:-1] if messages[-1]["role"] == "assistant" else messages


def _prompt(raw: RawRow, column: str, messages: Sequence[Message]) -> str:
    roles = [str(turn["role"]) for turn in messages]
    if roles not in (["user"], ["system", "user"]):
        raise UserError(
            f"{raw.place}: column '{column}' asks in the roles {listed(roles)}; "
            "a prompt is one user message, a system message before it at most"
        )
    *before, question = (_content(raw, column, turn, images=True) for turn in messages)
    return _with_system("".join(before), question)


def _with_system(system: str, question: str) -> str:
    """Return the text of a prompt with its system message, in the form that `models.text.prompt_form` splits."""
    return f"{system}\n\n{question}" if system else question


def _answer(raw: RawRow, column: str, messages: Sequence[Message]) -> str:
    roles = [str(turn["role"]) for turn in messages]
    if roles[-1] != "assistant" or "assistant" in roles[:-1]:
        raise UserError(
            f"{raw.place}: column '{column}' answers in the roles {listed(roles)}; an answer is one assistant message"
        )
    return _content(raw, column, messages[-1])


def _content(raw: RawRow, column: str, message: Message, *, images: bool = False) -> str:
    """Return the text of a message; parts of type text are joined.

    Args:
        images: whether a part of type image becomes the placeholder of an image, if the row has images.

    Raises:
        UserError: a part of the message is not text.
    """
    content = message["content"]
    if isinstance(content, list):
        if images and any(raw.values.get(name) for name in IMAGE_COLUMNS):
            is_image = [isinstance(part, Mapping) and part.get("type") == "image" for part in content]
            content = [{"text": PLACEHOLDER} if image else part for part, image in zip(content, is_image, strict=True)]
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        kinds = [part.get("type", "text") if isinstance(part, Mapping) else "" for part in content]
        if not all(isinstance(text, str) for text in texts) or not set(kinds) <= set(TEXT_PARTS):
            raise UserError(f"{raw.place}: column '{column}' holds a message with a part that is not text")
        content = "".join(str(text) for text in texts)
    return raw.as_text(content, column)
