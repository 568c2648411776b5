"""Servers that commands start: MLflow, Prefect and vLLM."""
