"""Tokens between the turns of a policy: chat templates with different habits, and the templates of real models."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from models.base.errors import UserError
from models.text.bridge import bridge_of, why_not
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer

ENDS = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|end|>", "<|return|>", "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<turn|>",
    "<|user|>", "<|observation|>", "<|call|>",
)  # fmt: skip
"""Tokens that end a turn in current models."""

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
THOUGHTLESS = CHATML.replace(
    "m.content +", "(m.content.split('</think>')[-1] if m.role == 'assistant' else m.content) +"
)
NUMBERED = CHATML.replace("'<|im_start|>' +", "messages | length ~ '<|im_start|>' +")
ECHOING = CHATML.replace("'<|im_end|>", "m.content[1:2] + '<|im_end|>")
ENDLESS = CHATML.replace("<|im_end|>", "|")
USERS_ONLY = "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}" + CHATML
FORGETFUL = CHATML.replace("for m in messages", "for m in messages[-1:]")


def codec(template: str | None) -> Codec:
    tokenizer: Any = train_tokenizer(["a b c"], TokenizerSettings(kind="bytes", vocabulary=300))
    tokenizer.add_special_tokens({"additional_special_tokens": list(ENDS)})
    tokenizer.split_special_tokens = False
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    tokenizer.chat_template = template
    return Codec(tokenizer, chat=True, also_end=tuple(tokenizer.convert_tokens_to_ids(list(ENDS))))


def test_without_a_template_words_stand_on_lines_of_their_own() -> None:
    plain = Codec(train_tokenizer(["a b c"], TokenizerSettings(kind="bytes", vocabulary=300)))
    (ids,) = bridge_of(plain).ids(["12"])
    assert plain.tokenizer.decode(ids) == "\n12\n"


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_conversation_in_ids_is_what_the_template_writes_though_no_turn_is_encoded_again(role: Any) -> None:
    mine = codec(CHATML)
    end: Any = mine.tokenizer.convert_tokens_to_ids("<|im_end|>")
    turns = ["calculator: 3 * 4", "it is 12"]
    written = mine.prompts(["3 * 4 ?"])[0]
    for number, turn in enumerate(turns):
        written = [*written, *mine.inside([turn])[0], int(end)]
        if number + 1 < len(turns):
            written += bridge_of(mine, role).ids(["12"])[0]
    said = [{"role": "user", "content": "3 * 4 ?"}, {"role": "assistant", "content": turns[0]},
            {"role": role, "content": "12"}, {"role": "assistant", "content": turns[1]}]  # fmt: skip
    whole = str(mine.tokenizer.apply_chat_template(said, tokenize=False))
    assert mine.tokenizer.decode(written) == whole.removesuffix("\n")
    assert written == mine.inside([whole.removesuffix("\n")])[0]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (None, "the tokenizer has none"),
        (THOUGHTLESS, "it drops the thoughts of earlier replies"),
        (NUMBERED, "it rewrites a conversation when a message is added"),
        (ECHOING, "what it writes between messages depends on their texts"),
        (ENDLESS, "it does not end a reply with a token that ends completions"),
        (USERS_ONLY, "it refuses a message of the role user behind a reply (one message only)"),
        (FORGETFUL, "it does not write the text of the role user and the reply before it, each once"),
    ],
)
def test_a_template_that_cannot_be_continued_is_refused_by_a_line_that_says_why(template: str | None, why: str) -> None:
    mine = codec(template)
    assert why_not(mine) == why
    with pytest.raises(UserError, match=r"policy\.chat: the chat template cannot be continued turn by turn"):
        bridge_of(mine)


VERDICTS = {
    "ok": "",
    "thoughts": "it drops the thoughts",
    "anew": "it rewrites a conversation",
    "end": "it does not end a reply",
    "unwritten": "it does not write what the role",
    "refuses": "it refuses a message of the role",
}
TABLE: dict[str, tuple[str, str]] = {
    "cohere": ("ok", "refuses"),
    "cohere2": ("end", "unwritten"),
    "deepseek_r1_distill": ("thoughts", "anew"),
    "deepseekv3": ("thoughts", "anew"),
    "diffusion_gemma": ("ok", "unwritten"),
    "gemma": ("ok", "refuses"),
    "gemma3": ("ok", "refuses"),
    "gemma4": ("ok", "unwritten"),
    "gemma4_v2": ("ok", "ok"),
    "gemma4_v3": ("ok", "unwritten"),
    "gemma4_v4": ("ok", "unwritten"),
    "gemma4_v5": ("ok", "unwritten"),
    "glm4moe": ("thoughts", "thoughts"),
    "gptoss": ("ok", "refuses"),
    "idefics3": ("unwritten", "unwritten"),
    "lfm2": ("ok", "ok"),
    "lfm2_2_5": ("thoughts", "ok"),
    "lfm2_2_5_v2": ("thoughts", "ok"),
    "lfm2_2_5_vl": ("thoughts", "ok"),
    "lfm2_v2": ("ok", "ok"),
    "llama3": ("ok", "ok"),
    "llama3_1": ("ok", "ok"),
    "llama3_2": ("ok", "ok"),
    "llava_next": ("refuses", "refuses"),
    "muse_glimmer": ("end", "end"),
    "nemotron_3_5_lightning": ("thoughts", "ok"),
    "nemotron_3_nano": ("thoughts", "ok"),
    "nemotron_3_super": ("thoughts", "ok"),
    "nemotron_3_ultra": ("thoughts", "ok"),
    "phi3": ("ok", "unwritten"),
    "phi3_5": ("ok", "unwritten"),
    "qwen2_5": ("ok", "ok"),
    "qwen2_5_vl": ("ok", "ok"),
    "qwen3": ("thoughts", "ok"),
    "qwen3_5_nothink": ("anew", "ok"),
    "qwen3_5_think": ("anew", "ok"),
    "qwen3_6": ("anew", "ok"),
    "qwen3_8": ("ok", "ok"),
    "qwen3_instruct_2507": ("ok", "ok"),
    "qwen3_vl": ("ok", "ok"),
    "smolvlm": ("unwritten", "unwritten"),
}
"""The templates that TRL 1.16 ships, by file: the verdict on appending a message of the user, and of a tool."""


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed (extra `bench`)")
@pytest.mark.parametrize("name", TABLE)
def test_chat_templates_of_real_models_are_continued_or_refused_as_they_were(name: str) -> None:
    import trl  # type: ignore[import-not-found, unused-ignore]

    template = Path(str(trl.__file__)).parent / "chat_templates" / f"{name}.jinja"
    mine = codec(template.read_text(encoding="utf-8"))
    for role, verdict in zip(("user", "tool"), TABLE[name], strict=True):
        why = why_not(mine, role)  # type: ignore[arg-type]
        assert why.startswith(VERDICTS[verdict]) and bool(why) == (verdict != "ok")
