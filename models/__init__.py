"""The learning code: torch, transformers and vLLM. It knows nothing of Prefect, MLflow, DVC or Great Expectations."""
