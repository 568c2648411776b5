"""The learning code: torch, transformers and vLLM. It knows nothing of Prefect, MLflow, DVC or Great Expectations."""

import os

# Torch asks once, at its first large tensor on a CPU. An update allocates gigabytes in tensors of some megabytes each;
# with pages of 2 MiB their first touch costs a quarter (64 MiB: 5 ms, not 19), and whole updates take 10 to 15 % less.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
