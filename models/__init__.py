"""The learning code: torch, transformers and vLLM. It does not depend on Prefect, MLflow, DVC or Great Expectations."""

import os

# Idle OpenMP threads spin before they sleep, by default for so long that on a machine with other work on it they take
# the very cores that the work waits for: with one busy process a step of a small model took up to 17 times as long.
# A short spin costs a quiet machine little (python -m benchmarks --only busy_neighbour). libgomp reads this when
# torch is loaded, so it must be set before that; a spin or a wait policy that the user has set is kept.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# Torch reads it once, at its first large tensor on a CPU. An update allocates gigabytes in tensors of some megabytes;
# with pages of 2 MiB their first touch costs a quarter (64 MiB: 5 ms, not 19), and whole updates take 10 to 15 % less.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
