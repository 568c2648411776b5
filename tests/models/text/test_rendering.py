"""A chat template is refused unless its output contains the text of every message."""

from pathlib import Path

import pytest
import torch

from models.agents.gateway.conversation import Conversations
from models.agents.gateway.program_request import BadRequest, read_request
from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from models.text.bridge import bridge_of
from models.text.chat_template import chat_ids
from models.text.encoding import Codec
from models.text.rendering import ChatTemplate
from tests.support.special_tokens import CHAT, llama_like
from tests.support.tiny_models import tiny_policy

PARTS = CHAT.replace("{{ m['content'] }}", "{% for part in m['content'] %}{{ part['text'] }}{% endfor %}")
TYPED = CHAT.replace(
    "{{ m['content'] }}", "{% for part in m.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
)
FIRST_PART = CHAT.replace("{{ m['content'] }}", "{{ m['content'][0]['text'] }}")
USERS_PARTS = CHAT.replace(
    "{{ m['content'] }}", "{{ m['content'] if m['role'] != 'user' else m['content'][0]['text'] }}"
)
PIPED = CHAT.replace("{{ m['content'] }}", "{{ m['content'] | map(attribute='text') | join }}")
SILENT = CHAT.replace("{{ m['content'] }}", "{{ m['value'] }}")
SYSTEMLESS = CHAT.replace("for m in messages", "for m in messages if m['role'] != 'system'")
CHATTING = [("system", "1"), ("user", "4 + 5"), ("assistant", "9"), ("user", "7")]


@pytest.mark.parametrize("template", [PARTS, TYPED, FIRST_PART, USERS_PARTS, PIPED])
def test_a_template_of_parts_writes_what_one_of_texts_writes(template: str) -> None:
    texts, parts = Codec(llama_like(CHAT), chat=True), Codec(llama_like(template), chat=True)
    assert parts.prompts(["4 + 5 ="]) == texts.prompts(["4 + 5 ="])
    assert parts.conversations([CHATTING]) == texts.conversations([CHATTING])
    assert chat_ids(parts.tokenizer, "4 + 5 =") == chat_ids(texts.tokenizer, "4 + 5 =")
    assert parts.end == texts.end


@pytest.mark.parametrize("template", [SILENT, "{{ bos_token }}", "4 + 5 ="])
def test_a_template_that_drops_the_question_is_refused_in_one_line(template: str) -> None:
    with pytest.raises(UserError, match="leaves out the text of a message of the role user") as refused:
        Codec(llama_like(template), chat=True).prompts(["4 + 5 ="])
    assert "\n" not in str(refused.value)


def test_a_role_that_the_template_drops_is_refused_where_it_is_used() -> None:
    codec = Codec(llama_like(SYSTEMLESS), chat=True)
    assert codec.prompts(["7"])
    with pytest.raises(UserError, match="role system"):
        codec.conversations([CHATTING])
    with pytest.raises(UserError, match="role system"):
        ChatTemplate(codec.tokenizer).check(("user", "system"))
    with pytest.raises(BadRequest, match="role system"):
        messages = [{"role": role, "content": text} for role, text in CHATTING]
        Conversations(codec).prompt(read_request({"messages": messages}, chat=True), ())


def test_another_template_of_the_same_tokenizer_is_tried_again() -> None:
    tokenizer = llama_like(PARTS)
    codec = Codec(tokenizer, chat=True)
    first = codec.prompts(["7"])
    tokenizer.chat_template = CHAT
    assert codec.prompts(["7"]) == first
    tokenizer.chat_template = SILENT
    with pytest.raises(UserError):
        codec.prompts(["7"])


@pytest.mark.parametrize(("template", "sound"), [(PARTS, True), (SILENT, False)])
def test_a_base_whose_template_drops_the_question_is_refused_before_anything_starts(
    template: str, sound: bool, tmp_path: Path
) -> None:
    tokenizer = llama_like(template)
    save_model_folder(tiny_policy(torch.float32, vocabulary=len(tokenizer)), tokenizer, tmp_path / "base")
    (tmp_path / "mine.yaml").write_text(
        f"policy: {{base: {tmp_path / 'base'}, chat: true}}\nwarm_start: null\nrollouts: {{max_tokens: 32}}\n"
    )
    recipe = load_recipe(tmp_path / "mine.yaml")
    if sound:
        require_files(recipe)
        return
    with pytest.raises(UserError, match=r"^policy\.base: .*leaves out the text of a message of the role user"):
        require_files(recipe)


def test_the_bridge_of_a_template_that_drops_what_a_tool_says_is_refused() -> None:
    dropping = CHAT.replace("{{ m['content'] }}", "{{ m['content'] if m['role'] != 'tool' }}")
    with pytest.raises(UserError, match="role tool"):
        bridge_of(Codec(llama_like(dropping), chat=True), "tool")
