"""32 streaming clients at once, a third of them dropping: the others get what they get alone."""
import asyncio
import random

import openai
import pytest

import receipt_assert
from headroom_server import HeadroomServer
from wire import TINY, TINY_SUFFIX, metric, wait_until_free

NUM_CLIENTS = 32
SEED = random.SystemRandom().randrange(2**32)
BUDGETS = [
    {},
    {"kv_policy": "full"},
    {"kv_policy": "fastkv", "kv_min_prompt": 0, "tsp_min_prompt": 0},
    {"kv_policy": "streaming", "kv_min_prompt": 0},
    {"kv_retention": 0.1, "kv_min_prompt": 0},
    {"kv_retention": 0.5, "tsp_ratio": 0.3, "kv_min_prompt": 0, "tsp_min_prompt": 0},
    {"kv_policy": "full", "tsp_ratio": 0.4, "tsp_min_prompt": 0},
    {"kv_policy": "streaming", "kv_retention": 0.3, "kv_min_prompt": 0, "kv_decode": "grow"},
]


@pytest.fixture(scope="module")
def server():
    # A pool for three full contexts: the clients also have to wait for pages.
    flags = ["--threads", "2", "--max-batch-rows", "256", "--kv-pages", str(3 * 8 * 128)]
    with HeadroomServer("builtin:tiny", *flags) as server:
        yield server


def make_requests(rng):
    requests = []
    for _ in range(NUM_CLIENTS):
        text = "".join(rng.choices("abcdefghij klmnop\n", k=rng.randrange(10, 900)))
        requests.append({
            "chat": rng.random() < 0.5, "text": text, "max_tokens": rng.randrange(15, 60),
            "budget": rng.choice(BUDGETS),
        })
    return requests


async def start(client, spec):
    common = {"model": "tiny", "temperature": 0, "max_tokens": spec["max_tokens"], "stream": True,
              "extra_body": {"ignore_eos": True, **spec["budget"]}}
    if spec["chat"]:
        return await client.chat.completions.create(
            messages=[{"role": "user", "content": spec["text"]}], **common)
    return await client.completions.create(prompt=spec["text"], **common)


async def read(client, spec, drop_after=None):
    """The text of one answer; None when this client went away after so many chunks."""
    text, receipt, ends = "", None, 0
    stream = await start(client, spec)
    count = 0
    async for chunk in stream:
        if count == drop_after:
            await stream.close()
            return None
        count += 1
        choice = chunk.choices[0]
        text += (choice.delta.content or "") if spec["chat"] else choice.text
        if choice.finish_reason is not None:
            ends += 1
            receipt = chunk.model_extra["kv"]
    assert ends == 1, "exactly one end"
    check_receipt(receipt, spec)
    return text


def check_receipt(receipt, spec):
    n = len(spec["text"].encode()) + (len("#user\n#\n#assistant\n") if spec["chat"] else 0)
    receipt_assert.check(receipt, spec["budget"], n=n, suffix=TINY_SUFFIX if spec["chat"] else 0,
                        **TINY)


async def run_clients(server, requests, drops):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0,
                                  timeout=600) as client:
        alone = [await read(client, spec) for spec in requests]
        together = await asyncio.gather(
            *(read(client, spec, drop) for spec, drop in zip(requests, drops)))
        return alone, together


def test_survivors_get_the_text_that_they_get_alone(server):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    requests = make_requests(rng)
    dropping = set(rng.sample(range(NUM_CLIENTS), NUM_CLIENTS // 3))
    drops = [rng.randrange(0, 12) if i in dropping else None for i in range(NUM_CLIENTS)]
    alone, together = asyncio.run(run_clients(server, requests, drops))
    for index, (wanted, got) in enumerate(zip(alone, together)):
        if index not in dropping:
            assert got == wanted, f"seed {SEED}, client {index}: {requests[index]}"
    wait_until_free(server)
    assert metric(server, "headroom_kv_cache_pages_reserved") == 0
