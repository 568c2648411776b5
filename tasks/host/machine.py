"""The packages and the machine of a run, on which its numbers depend in addition to code, recipe and data.

The machine includes torch's build, the processor's instructions, the threads and the device. Two trainings of one
commit, one recipe and the same data end with the same bits if all of this is the same. It is logged to the flow's run
as `environment/packages.txt` and `environment/machine.json`. Only the environment variables in MATTERS are read: the
others may contain secrets.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from models.base.file_hash import sha256_of
from models.base.processor import processor
from tasks.tracking import records

PACKAGES, MACHINE = "environment/packages.txt", "environment/machine.json"
"""Artifacts of a flow's run."""
LOCKS = ("cpu.lock", "cuda.lock")
MATTERS = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Environment variables that change the arithmetic."""
ARITHMETIC = re.compile(r"(sse|ssse|avx|fma|f16c|amx|asimd|sve|sme|bf16|i8mm|fp16|fphp).*")
"""Processor flags that name arithmetic instructions; torch, MKL and oneDNN select their kernels by them."""
THREADS = "threads"
BITS = ("torch", "torch build", THREADS, "cpu instructions", "cpu flags", "device")
"""Entries of `machine` that determine bits; the processor's name, Python and the system do not."""


def packages() -> dict[str, str]:
    """Return name -> version of every package that can be imported here, the first on the path if there are two."""
    installed: dict[str, str] = {}
    for distribution in metadata.distributions():
        installed.setdefault(normal_name(distribution.metadata["Name"] or ""), distribution.version)
    return dict(sorted(installed.items()))


def normal_name(package: str) -> str:
    """Return a package's name in its normalised spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def machine(root: Path) -> dict[str, str]:
    """Return the facts about this machine and its build of torch: name -> value, as text.

    Args:
        root: the repository, whose lock files are hashed.
    """
    import torch  # here: who only reads what was recorded need not wait for it

    own = processor()
    locks = {f"sha256 of {name}": sha256_of(root / name) for name in LOCKS if (root / name).is_file()}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}".strip(", "),
        "torch": f"{torch.__version__} ({torch.version.git_version})",
        "torch build": " ".join(torch.__config__.show().split()),
        THREADS: str(torch.get_num_threads()),
        "cpu": own.name,
        "cpu instructions": torch.backends.cpu.get_cpu_capability(),
        "cpu flags": " ".join(sorted(filter(ARITHMETIC.fullmatch, own.flags or ()))),
        "device": _device(),
        **locks,
        **{f"${name}": os.environ[name] for name in MATTERS if name in os.environ},
    }


def log_machine(run_id: str, root: Path) -> None:
    """Log packages and machine to a flow's run."""
    records.log_text(run_id, PACKAGES, listed_packages(packages()))
    records.log_text(run_id, MACHINE, json.dumps(machine(root), indent=1, ensure_ascii=False) + "\n")


def listed_packages(versions: Mapping[str, str]) -> str:
    """Return `name==version` of each package, one a line, as `pip install -r` reads it."""
    return "".join(f"{name}=={version}\n" for name, version in versions.items())


def read_packages(text: str) -> dict[str, str]:
    """Read the packages of a list that `listed_packages` wrote."""
    entries = [line.partition("==") for line in text.splitlines() if "==" in line]
    return {name: version for name, _, version in entries}


def read_machine(text: str) -> dict[str, str]:
    """Read the machine from `environment/machine.json`; empty if the text is invalid."""
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in facts.items()} if isinstance(facts, dict) else {}


def machine_text(facts: Mapping[str, str]) -> str:
    """Return torch's version, device, threads and processor instructions of a machine, as one line of text."""
    torch_version = facts.get("torch", "").partition(" ")[0]
    threads = facts.get(THREADS, "")
    counted = f"{threads} thread{'' if threads == '1' else 's'}" if threads else ""
    parts = (f"torch {torch_version}" if torch_version else "", facts.get("device", ""), counted)
    return ", ".join(filter(None, (*parts, facts.get("cpu instructions", ""))))


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return "CPU"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    cudnn = torch.backends.cudnn.version()
    return f"{len(names)} x {', '.join(sorted(set(names)))}; CUDA {torch.version.cuda}, cuDNN {cudnn}"
