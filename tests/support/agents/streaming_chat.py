"""A chat of two turns with OpenAI's client, in which replies are streamed and end at an exclamation mark."""

import json
import os
from typing import Any


def run(task: dict[str, Any], base_url: str, api_key: str) -> dict[str, Any]:
    """Chat about a task. The reward is the share of replies that begin with the text of the prompt."""
    from openai import OpenAI

    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": task["prompt"]}]
    log: list[Any] = []
    for _ in range(2):
        pieces, finish, tokens = [], None, 0
        with client.chat.completions.create(
            model="policy", messages=messages, stream=True, stop=["!"], stream_options={"include_usage": True}
        ) as stream:
            for chunk in stream:
                for choice in chunk.choices:
                    pieces.append(choice.delta.content or "")
                    finish = choice.finish_reason or finish
                if chunk.usage:
                    tokens = chunk.usage.completion_tokens
        log.append([pieces, finish, tokens])
        messages += [{"role": "assistant", "content": "".join(pieces)}, {"role": "user", "content": "again"}]
    if folder := os.environ.get("AGENT_LOG"):
        with open(os.path.join(folder, "log.jsonl"), "a") as file:
            file.write(json.dumps(log) + "\n")
    return {"reward": sum("".join(pieces).startswith(task["prompt"]) for pieces, _, _ in log) / len(log)}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(input()), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])))
