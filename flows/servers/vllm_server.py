"""vLLM's OpenAI server as the process that `rewardflow serve` starts: unchanged, except that it ends with its starter.

Run as `python -m flows.servers.vllm_server STARTER OPTION...`; the options are vLLM's.
"""

from __future__ import annotations

import runpy
import sys

from flows.servers.orphan_watch import end_with
from flows.servers.server_process import END_SECONDS

if __name__ == "__main__":  # vLLM's own processes import this file too
    end_with(int(sys.argv.pop(1)), END_SECONDS)
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
