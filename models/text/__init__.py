"""Conversion of text to token ids and back: tokenizers, and the one place where prompts and completions are encoded."""
