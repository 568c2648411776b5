"""An agent program, as a third party might write it: it knows OpenAI's protocol over HTTP, not this project."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

TASK = json.loads(sys.stdin.readline())
MODE = sys.argv[1] if len(sys.argv) > 1 else "talk"


def ask(path: str, body: dict[str, object]) -> list[str]:
    """Send a request, and return the texts of the choices."""
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/{path}",
        json.dumps({"model": os.environ["OPENAI_MODEL"], **body}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    return [choice["message"]["content"] if path.startswith("chat") else choice["text"] for choice in answer["choices"]]


def talk(messages: list[dict[str, str]], heard: str) -> list[dict[str, str]]:
    """Return the conversation with one more reply of the policy, and `heard` as the next message of the user."""
    (reply,) = ask("chat/completions", {"messages": messages})
    return [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": heard}]


begun = [{"role": "user", "content": TASK["prompt"]}]
if MODE == "crash" and TASK["id"] == "p1":
    ask("chat/completions", {"messages": begun})
    sys.exit(f"it broke, with the key {os.environ['OPENAI_API_KEY']}")
if MODE == "hang" and TASK["id"] == "p1":
    ask("chat/completions", {"messages": begun})
    time.sleep(600)
if MODE == "branch":
    later = talk(begun, "9 = ;")
    replies = [
        *ask("chat/completions", {"messages": later, "n": 2}),
        *ask("chat/completions", {"messages": [{"role": "user", "content": "7 7"}]}),
    ]
    said = [later[1]["content"], *replies]
elif MODE == "text":
    (first,) = ask("completions", {"prompt": TASK["prompt"]})
    (second,) = ask("completions", {"prompt": f"{TASK['prompt']}{first} 9 = ;"})
    said = [first, second]
elif MODE == "greedy":
    refused = 0
    messages = begun
    for _ in range(9):
        try:
            messages = talk(messages, "5")
        except urllib.error.HTTPError as error:
            refused = error.code
            break
    assert refused in (400, 403)
    said = [message["content"] for message in messages if message["role"] == "assistant"]
else:
    ended = talk(talk(begun, "3 + 4"), "5")
    said = [message["content"] for message in ended if message["role"] == "assistant"]
print("a word beside the result")
print(json.dumps({"reward": sum(text.count("7") for text in said), "answer": "7" if "answer" in TASK else None}))
