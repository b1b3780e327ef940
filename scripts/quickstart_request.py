#!/usr/bin/env python3
"""The requests of scripts/quickstart.sh: printed for the user, or sent and checked.

usage: quickstart_request.py free-port
       quickstart_request.py port-is-free PORT
       quickstart_request.py {check,print} {chat,needle} URL

chat asks SmolLM2 for the capital of France; needle sends a prompt of token ids in which an answer
is hidden and compares the ids that come back.
"""
import json
import pathlib
import socket
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDLE_FILE = "tests/data/needle/1hop-256.jsonl"
QUESTION = "What is the capital of France?"
TIMEOUT_S = 300


def call(url, body=None):
    """The JSON answer of a GET, or of a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: HTTP {error.code}: {error.read().decode(errors='replace')}")


def model_name(url):
    return call(f"{url}/v1/models")["data"][0]["id"]


def needle():
    with open(ROOT / NEEDLE_FILE, encoding="utf-8") as lines:
        return json.loads(next(lines))


def chat_body(model):
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}


def needle_body(model):
    record = needle()
    return {
        "model": model,
        "prompt": record["context"] + record["question"],
        "max_tokens": len(record["answer"]),
        "temperature": 0,
        "return_token_ids": True,
    }


def check_chat(url):
    answer = call(f"{url}/v1/chat/completions", chat_body(model_name(url)) | {"max_tokens": 64})
    text = answer["choices"][0]["message"]["content"]
    print(f"{QUESTION}\n{text}")
    if "Paris" not in text:
        sys.exit("check failed: the answer does not contain Paris")


def check_needle(url):
    answer = call(f"{url}/v1/completions", needle_body(model_name(url)))
    ids = answer["choices"][0]["token_ids"]
    wanted = needle()["answer"]
    print(f"answer ids: {ids}")
    if ids != wanted:
        sys.exit(f"check failed: got {ids}, wanted {wanted}")


def print_chat(url):
    model = model_name(url)
    print(f"""
Headroom serves {model} on {url}. Try:

curl -s {url}/v1/chat/completions -H 'content-type: application/json' \\
  -H 'x-kv-retention: 0.2' -d '{json.dumps(chat_body(model))}'

or in Python, after `pip install openai`:

from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="none")
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": "{QUESTION}"}}],
    temperature=0,
    extra_headers={{"x-kv-retention": "0.2"}},
)
print(answer.choices[0].message.content)
print(answer.kv)  # what the budget kept of the prompt; short prompts are kept whole

Ctrl-C stops the server.""", flush=True)


def print_needle(url):
    model = model_name(url)
    prompts = ROOT / NEEDLE_FILE
    body = ROOT / "build" / "needle-request.json"
    body.parent.mkdir(exist_ok=True)
    body.write_text(json.dumps(needle_body(model)), encoding="utf-8")
    print(f"""
Headroom serves {model} on {url}. It reads and writes token ids. Try:

curl -s {url}/v1/completions -H 'content-type: application/json' -d '@{body}'

or in Python, after `pip install openai`:

import json
from openai import OpenAI
record = json.loads(open("{prompts}").readline())
client = OpenAI(base_url="{url}/v1", api_key="none")
answer = client.completions.create(
    model="{model}",
    prompt=record["context"] + record["question"],
    max_tokens=len(record["answer"]),
    temperature=0,
    extra_body={{"return_token_ids": True}},
)
print(answer.choices[0].token_ids, "wanted", record["answer"])

The answer to this prompt is {needle()["answer"]}. Ctrl-C stops the server.""", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        print(probe.getsockname()[1])


def check_port(port):
    """Exit status 1 when somebody listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(port)))
        except OSError:
            sys.exit(1)


def main():
    commands = {
        ("check", "chat"): check_chat,
        ("check", "needle"): check_needle,
        ("print", "chat"): print_chat,
        ("print", "needle"): print_needle,
    }
    if sys.argv[1:] == ["free-port"]:
        free_port()
    elif len(sys.argv) == 3 and sys.argv[1] == "port-is-free" and sys.argv[2].isdigit():
        check_port(sys.argv[2])
    elif len(sys.argv) == 4 and tuple(sys.argv[1:3]) in commands:
        commands[tuple(sys.argv[1:3])](sys.argv[3].rstrip("/"))
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
