"""A tool loop with OpenAI's client: the model calls a function until it answers with text."""

import json
import os
from typing import Any

VALUES = {key: str(place) for place, key in enumerate("abcdefgh")}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look up a key.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
        },
    }
]


def run(task: dict[str, Any], base_url: str, api_key: str) -> dict[str, Any]:
    """Answer a task. The reward is the share of calls for the key of the prompt."""
    from openai import OpenAI

    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": task["prompt"]}]
    keys, log = [], []
    for _ in range(3):
        reply = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS).choices[0]
        log.append([reply.message.model_dump(), reply.finish_reason])
        messages.append(reply.message)
        if not reply.message.tool_calls:
            break
        for call in reply.message.tool_calls:
            if call.type != "function":
                continue
            key = json.loads(call.function.arguments).get("key")
            keys.append(key)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": VALUES.get(str(key), "unknown")})
    if folder := os.environ.get("AGENT_LOG"):
        with open(os.path.join(folder, "log.jsonl"), "a") as file:
            file.write(json.dumps(log) + "\n")
    return {"reward": sum(key == task["prompt"] for key in keys) / max(1, len(keys))}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(input()), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])))
