"""Files of tensors that are split over several ranks: each rank writes its parts, and any number of ranks reads them.

policy.safetensors                 one rank
policy.1of2.safetensors, ...       two: the parts of a tensor, joined along its first dimension, are the tensor
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from models.base.atomic_write import replace_folder, sync
from models.base.disk import needs_space
from models.base.errors import UserError
from models.base.file_hash import sha256_of
from models.base.ranks import Ranks, own_part

Complete = Callable[[Path, dict[str, str]], None]


def parts_of(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Return the tensors that this rank stores: its parts of split ones, and on the first rank all others."""
    own = {key: own_part(value) for key, value in tensors.items()}
    return {key: part for key, part in own.items() if ranks.first or part is not tensors[key]}


def write_parts(folder: Path, state: Mapping[str, Mapping[str, Tensor]], complete: Complete, ranks: Ranks) -> None:
    """Write `folder` atomically, replacing an older one.

    Args:
        folder: folder to create; all ranks share it.
        state: tensors of this rank by the name of their file.
        complete: called on the first rank with the folder and the hashes of its files, when all have written theirs.
        ranks: ranks that write.

    Raises:
        UserError: on every rank: one of them has no space left; the older folder is unchanged.
    """
    with ExitStack() as held:
        partial_folder = ranks.from_first(lambda: held.enter_context(replace_folder(folder)))
        hashes: dict[str, str] = {}
        refused: UserError | None = None
        try:
            with needs_space(folder):
                for name, tensors in state.items():
                    file = partial_folder / _file_name(name, ranks.number, ranks.count)
                    save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, file)
                    if ranks.count > 1:
                        sync(file)  # on the machine that wrote it
                    hashes[file.name] = sha256_of(file)
        except Exception as error:  # the others wait for the outcome
            if ranks.count == 1:
                raise
            refused = error if isinstance(error, UserError) else UserError(f"{folder}: cannot be written ({error})")
        outcomes = ranks.all_gather((hashes, refused))
        for _, theirs in outcomes:
            if theirs is not None:
                raise theirs

        def finish() -> None:
            complete(partial_folder, {name: digest for given, _ in outcomes for name, digest in given.items()})
            held.close()

        ranks.from_first(finish)


def read_parts(folder: Path, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of a file, one at a time, each joined from the parts of all ranks."""
    with ExitStack() as opened:
        files = [opened.enter_context(safe_open(file, "pt")) for file in _files(folder, name)]
        keys = [set(file.keys()) for file in files]
        for key in sorted(set().union(*keys)):
            parts = [file.get_tensor(key) for file, held in zip(files, keys, strict=True) if key in held]
            yield key, parts[0] if len(parts) == 1 else torch.cat(parts)


def _file_name(name: str, number: int, count: int) -> str:
    return f"{name}.safetensors" if count == 1 else f"{name}.{number + 1}of{count}.safetensors"


def _files(folder: Path, name: str) -> list[Path]:
    """Return the files that hold the parts of `name`, in the order of the ranks.

    Raises:
        FileNotFoundError: there is none.
    """
    for file in folder.iterdir():
        if several := re.fullmatch(rf"{re.escape(name)}\.\d+of(\d+)\.safetensors", file.name):
            count = int(several[1])
            return [folder / _file_name(name, number, count) for number in range(count)]
    return [folder / _file_name(name, 0, 1)]
