"""An interpreter that has a small package `verifiers`, with which the process of an environment is tested in no time.

The package has the parts of verifiers 0.1.14 that the process uses. Its environment is called `talk`.
"""

import os
import sys
from pathlib import Path

PACKAGE = """
import asyncio, json, os, time, urllib.request

class Talk:
    def __init__(self, turns, mode):
        self.turns, self.mode = turns, mode
        print("a package may print anything")

    def get_dataset(self):
        return [{"prompt": [{"role": "user", "content": text}]} for text in ("3 + 4", "5 + 1", "7 7")]

    get_eval_dataset = get_dataset

    async def run_rollout(self, row, client, model, sampling, max_retries):
        messages = list(row["prompt"])
        def call():
            body = json.dumps({"model": model, "messages": messages, **sampling}).encode()
            headers = {"Authorization": "Bearer " + os.environ[client.api_key_var], "Content-Type": "application/json"}
            request = urllib.request.Request(client.api_base_url + "/chat/completions", body, headers)
            return json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"]
        for turn in range(self.turns):
            text = await asyncio.to_thread(call)
            if row["prompt"][0]["content"] == "5 + 1":
                if self.mode == "crash":
                    os.write(2, b"it broke\\n"), os._exit(3)
                if self.mode == "hang":
                    time.sleep(600)
                if self.mode == "wait":
                    await asyncio.sleep(600)
                if self.mode == "raise":
                    raise ValueError("no such move")
                if self.mode == "error":
                    return {"reward": 0.0, "error": "RolloutError: it failed"}
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "3 + 4"}]
        return {"reward": 0.5 + len(text) % 2, "metrics": {"turns": self.turns}, "error": None}

def load_environment(name, turns=2, mode=""):
    if name != "talk":
        raise ValueError(f"Could not import '{name}' environment.")
    if mode == "garble":
        for number in range(3, 20):
            try:
                os.write(number, b"not an answer\\n")
            except OSError:
                continue
    return Talk(turns, mode)
"""


def other_interpreter(folder: Path, package: str = PACKAGE) -> str:
    """Make an interpreter in `folder` and return its path; `package` is the source of its package `verifiers`."""
    place = folder / "lib/python3.11/site-packages"
    for name, version in (("verifiers", "0.1.14"), ("talk", "2.0")):
        info = place / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
        (info / "top_level.txt").write_text(f"{name}\n")
    if package:
        (place / "verifiers").mkdir()
        (place / "verifiers/__init__.py").write_text(package)
        types = "class ClientConfig:\n    def __init__(self, **fields):\n        self.__dict__.update(fields)\n"
        (place / "verifiers/types.py").write_text(types)
    program = folder / "bin/python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{place}" exec "{sys.executable}" -S "$@"\n')
    os.chmod(program, 0o755)
    return str(program)
