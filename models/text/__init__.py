"""Conversion of text to token ids and back: tokenizers, and the encoding of prompts and completions in one place."""
