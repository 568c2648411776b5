"""The template and system message of a recipe are in all token ids of prompts, but not in the data."""

from pathlib import Path
from typing import Any

import pytest

from models.agents.gateway.conversation import Conversations
from models.agents.gateway.program_request import read_request
from models.answers.unknown import unknown_shares
from models.base.errors import UserError
from models.datasets.schema import arrow_schema, file_name, write_rows
from models.datasets.settings import DataSettings
from models.recipes.held_out import held_out_recipes
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.text.prompt_form import BARE, PromptForm
from models.text.token_cache import CachedCodec
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import LengthSections, read_problems
from tasks.compute.run_tokens import RunTokens
from tasks.data.data_sources import source_files
from tasks.steps.validate_data import token_counters
from tests.support.special_tokens import CHAT, llama_like
from tests.support.tiny_models import word_tokenizer

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "recipes" / "arithmetic.yaml"
FORM = PromptForm("1 2", "3 {prompt} ####")


def words(tokenizer: Any, text: str) -> list[int]:
    return [int(tokenizer.convert_tokens_to_ids(word)) for word in text.split()]


def written_chat(text: str) -> str:
    return f"<bos> system 1 2 <turn> user {text} <turn> assistant"


def with_system(template: str | None = CHAT) -> Any:
    tokenizer = llama_like(template)
    tokenizer.add_tokens(["system"])
    return tokenizer


def test_the_template_is_around_every_prompt_and_the_system_message_before_every_chat() -> None:
    tokenizer = with_system()
    assert Codec(tokenizer, form=FORM).prompts(["4 +"]) == [words(tokenizer, "<bos> 3 4 + ####")]
    chat = Codec(tokenizer, chat=True, form=FORM)
    assert chat.prompts(["4 +"]) == [words(tokenizer, written_chat("3 4 + ####"))]
    assert chat.unwrapped(["4 +"]) == [words(tokenizer, written_chat("4 +"))]
    assert chat.completions(["9"]) == Codec(tokenizer, chat=True).completions(["9"])


def test_a_program_at_the_gateway_gets_the_system_message_unless_it_has_its_own() -> None:
    tokenizer = with_system()
    codec = Codec(tokenizer, chat=True, form=FORM)
    mine, own = {"role": "user", "content": "4 +"}, {"role": "system", "content": "7"}

    def ids(codec: Codec, *messages: dict[str, str]) -> list[int]:
        return list(Conversations(codec).prompt(read_request({"messages": [*messages]}, chat=True), ()).ids)

    assert ids(codec, mine) == words(tokenizer, written_chat("4 +"))
    assert ids(codec, own, mine) == words(tokenizer, "<bos> system 7 <turn> user 4 + <turn> assistant")
    assert ids(Codec(tokenizer, form=FORM), mine) == words(tokenizer, "<bos> 4 +")


@pytest.mark.parametrize("prompt", ["{prompt}", "{0} {} {{x}} %s $1 \\1", "{% raw %}", ""])
def test_nothing_in_a_prompt_or_template_is_read_as_a_placeholder_but_one(prompt: str) -> None:
    template = "{ {0} {{prompt}} \\begin{x} %s"
    assert PromptForm("", template).text(prompt) == template.replace("{prompt}", "\0").replace("\0", prompt)


def test_texts_kept_under_another_form_are_not_read_again(tmp_path: Path) -> None:
    tokenizer = with_system()
    forms = (BARE, FORM, PromptForm("1 2"), PromptForm("", "3 {prompt} ####"), PromptForm("1"))
    kept = [CachedCodec(tokenizer, chat=True, form=form, folder=tmp_path) for form in forms]
    for _ in range(2):
        for codec, form in zip(kept, forms, strict=True):
            assert codec.prompts(["4 +"]) == Codec(tokenizer, chat=True, form=form).prompts(["4 +"])
            assert codec.completions(["9"]) == Codec(tokenizer, chat=True).completions(["9"])
    assert len(list(tmp_path.glob("*.safetensors"))) == len(forms) + 1


def test_control_without_a_form_the_kept_file_has_the_name_that_it_had(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    CachedCodec(tokenizer, folder=tmp_path).prompts(["4 +"])
    CachedCodec(tokenizer, form=PromptForm.of(None, None), folder=tmp_path).prompts(["4 +"])
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def recipe(*given: str) -> Any:
    return load_recipe(RECIPE, ["policy.size.positions=64", "rollouts.max_tokens=8", *given])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("policy.system=Be short.", r"policy\.system: only with policy\.chat"),
        ("policy.system=''", "policy.system"),
        ("data.template=Answer.", r"data\.template: it has \{prompt\} 0 times"),
        ("data.template='{prompt} or {prompt}'", r"data\.template: it has \{prompt\} 2 times"),
        ("data.template='{Prompt}'", r"data\.template: it has \{prompt\} 0 times"),
    ],
)
def test_a_form_that_cannot_be_meant_is_refused_with_its_key(given: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        recipe(given)


def test_problems_are_read_with_the_form_in_their_ids_and_not_in_their_text(tmp_path: Path) -> None:
    row = {"id": "p", "prompt": "4 +", "answer": "9", "level": 1, "tests": "", "entry_point": ""}
    write_rows(tmp_path / file_name("problems", "gate"), [row], arrow_schema("problems"))
    word_tokenizer().save_pretrained(tmp_path)
    sections = LengthSections(recipe("data.template='3 {prompt} ####'"))
    tokens = RunTokens.read(tmp_path, None, sections)
    (problem,) = tokens.problems(tmp_path, "gate", sections, None)
    assert problem.prompt == "4 +"
    assert list(problem.tokens) == words(load_tokenizer(tmp_path), "3 4 + ####")
    assert read_problems(tmp_path, Codec(word_tokenizer()), "gate", sections)[0].prompt == "4 +"


def test_a_prompt_is_counted_with_its_form_where_the_data_are_validated(tmp_path: Path) -> None:
    tokenizer = with_system()
    tokenizer.save_pretrained(tmp_path)
    policy = recipe(f"policy.base={tmp_path}", "policy.chat=true").policy
    texts, prompts = token_counters(tmp_path, policy, FORM)
    assert texts(["4 +"]) == [3] and prompts(["4 +"]) == [len(words(tokenizer, written_chat("3 4 + ####")))]
    assert not unknown_shares(tokenizer, Codec(tokenizer, chat=True, form=FORM).prompts(["4 +"])).any()
    texts, prompts = token_counters(tmp_path, policy, BARE)
    assert texts(["4 +"]) == prompts(["4 +"]) == [3]


def test_the_template_is_no_part_of_the_data_set(tmp_path: Path) -> None:
    settings = DataSettings(name="mine", format="problems", path=(tmp_path / "rows.jsonl",))
    wrapped = settings.model_copy(update={"template": "{prompt}!"})
    assert source_files(wrapped, tmp_path) == source_files(settings, tmp_path)


def test_held_out_sets_are_asked_with_the_template_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"prompt": "1", "answer": "1"}\n')
    given = f"gate.held_out={{other: {{path: {tmp_path / 'other.jsonl'}, format: problems}}}}"
    (held,) = held_out_recipes(recipe("data.template='{prompt}!'", given)).values()
    assert held.data.template == "{prompt}!"


def test_the_recipes_for_real_chat_models_ask_gsm8k_for_the_marker_that_the_verifier_reads() -> None:
    files = sorted((ROOT / "recipes" / "real").glob("*gsm8k*.yaml"))
    assert len(files) >= 4
    for file in files:
        assert "####" in str(load_recipe(file).data.template), file.name
