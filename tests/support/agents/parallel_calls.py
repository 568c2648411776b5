"""Parallel calls with OpenAI's asynchronous client: three drafts at once, of which two have the same prompt, then a
reply to the first of them."""

import asyncio
import json
import os
from typing import Any


async def _draft(client: Any, messages: list[Any]) -> str:
    reply = await client.chat.completions.create(model="policy", messages=messages, stop="!")
    return str(reply.choices[0].message.content)


async def _work(task: dict[str, Any], base_url: str, api_key: str) -> list[str]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        prompt = {"role": "user", "content": task["prompt"]}
        drafts = await asyncio.gather(
            _draft(client, [prompt]), _draft(client, [prompt]), _draft(client, [{"role": "user", "content": "h"}])
        )
        history = [prompt, {"role": "assistant", "content": drafts[0]}, {"role": "user", "content": "again"}]
        return [*drafts, await _draft(client, history)]


def run(task: dict[str, Any], base_url: str, api_key: str) -> dict[str, Any]:
    """Work on a task. The reward is the share of drafts of the prompt that begin with its text."""
    texts = asyncio.run(_work(task, base_url, api_key))
    if folder := os.environ.get("AGENT_LOG"):
        with open(os.path.join(folder, "log.jsonl"), "a") as file:
            file.write(json.dumps(texts) + "\n")
    return {"reward": sum(text.startswith(task["prompt"]) for text in texts[:2]) / 2}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(input()), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])))
