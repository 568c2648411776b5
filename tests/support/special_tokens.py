"""A tokenizer like Llama's and Gemma's: a text begins with a BOS, and a special token ends each turn of a chat."""

from typing import Any

from tokenizers.processors import TemplateProcessing

from models.text.tokenizer import TokenizerSettings, train_tokenizer

CHAT = (
    "{{ bos_token }}{% for m in messages %} {{ m['role'] }} {{ m['content'] }} <turn>{% endfor %}"
    "{% if add_generation_prompt %} assistant{% endif %}"
)


def llama_like(chat_template: str | None = CHAT) -> Any:
    """Return a tokenizer with the tokens of `tiny_models.word_tokenizer`, <bos>, <turn>, user and assistant."""
    words = [*map(str, range(17)), "+", "=", ";", "####", "<bos>", "<turn>", "user", "assistant"]
    tokenizer: Any = train_tokenizer([" ".join(words)], TokenizerSettings(kind="words", vocabulary=64))
    tokenizer.add_special_tokens({"bos_token": "<bos>", "additional_special_tokens": ["<turn>"]})
    tokenizer.split_special_tokens = False
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    tokenizer.chat_template = chat_template
    return tokenizer
