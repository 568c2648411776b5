"""Several processes that learn together on this machine and communicate by gloo, for tests of ranks."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import cache
from multiprocessing import forkserver
from typing import Any

import torch
from torch import distributed

from models.base.ranks import Ranks, joined_ranks, listening_at, meet

SECONDS = 240


def on_ranks(count: int, work: Callable[..., Any], *given: Any) -> list[Any]:
    """Return the results of `work(ranks, *given)` on each of `count` new processes, in the order of the ranks.

    Args:
        count: number of processes.
        work: a function of a module, so that it can be pickled.
        given: further arguments of `work`; they must be picklable.

    Raises:
        RuntimeError: a process raised an exception; the message contains its traceback.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(count, mp_context=_prepared()) as pool:
        begun = [pool.submit(_rank, number, count, port, work, given) for number in range(count)]
        outcomes = [future.result(SECONDS) for future in begun]
    failed = [text for worked, text in outcomes if not worked]
    if failed:
        raise RuntimeError("\n".join(failed))
    return [made for _, made in outcomes]


@cache
def _prepared() -> Any:
    """Return a context whose processes are forks of a server that has imported the slow modules."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.tiny_loops", "models.learner.sharding", "models.reward_models.fit"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # otherwise the server does not get sys.path
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def _rank(number: int, count: int, port: int, work: Callable[..., Any], given: tuple[Any, ...]) -> tuple[bool, Any]:
    torch.set_num_threads(1)
    address, patience = ("127.0.0.1", port), timedelta(seconds=60)
    store = meet(number, count, address, patience, None if number else listening_at(*address))
    distributed.init_process_group("gloo", store=store, timeout=patience, world_size=count, rank=number)
    try:
        ranks: Ranks = joined_ranks()
        return True, work(ranks, *given)
    except BaseException:
        return False, traceback.format_exc()
    finally:
        distributed.destroy_process_group()
