"""Engines that generate completions: vLLM, or transformers if vLLM cannot be installed."""
