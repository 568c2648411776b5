"""Engines that generate completions: vLLM, or transformers where vLLM cannot be installed."""
