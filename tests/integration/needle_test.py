"""Exact answers of the needle model through HTTP, under budgets; prompts are new in every run."""
import random

import pytest

import make_needle_prompts
import receipt_assert
from wire import NEEDLE, complete

COUNT = 64
LENGTH = 512  # context, question and answer
SEED = random.SystemRandom().randrange(2**32)

WHOLE = {"kv_min_prompt": 0, "tsp_min_prompt": 0, "tsp_ratio": 1}


@pytest.fixture(scope="module")
def prompts():
    print(f"seed {SEED}")
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    return list(make_needle_prompts.make_prompts(text, "1hop", LENGTH, COUNT, SEED))


def count_right(server, prompts, **budget):
    """Exact answers under a budget; every receipt is recomputed. Also the bytes kept by each."""
    right, kept_bytes = 0, []
    for prompt in prompts:
        ids = prompt["context"] + prompt["question"]
        answer = complete(server, prompt=ids, max_tokens=len(prompt["answer"]), ignore_eos=True,
                          return_token_ids=True, **WHOLE, **budget)
        receipt_assert.check(answer["kv"], {**WHOLE, **budget}, n=len(ids), **NEEDLE)
        kept_bytes.append(answer["kv"]["bytes"])
        right += answer["choices"][0]["token_ids"] == prompt["answer"]
    print(f"seed {SEED}: {budget} {right} of {len(prompts)}")
    return right, kept_bytes


def test_fastkv_keeps_the_answers_that_streaming_loses(needle, prompts):
    full, _ = count_right(needle, prompts, kv_policy="full")
    fastkv, fastkv_bytes = count_right(needle, prompts, kv_policy="fastkv", kv_retention=0.1)
    streaming, streaming_bytes = count_right(needle, prompts, kv_policy="streaming",
                                             kv_retention=0.1)
    assert full >= COUNT - 2, f"seed {SEED}: full {full} of {COUNT}"
    assert fastkv >= full - 1, f"seed {SEED}: fastkv {fastkv}, full {full}"
    assert streaming_bytes == fastkv_bytes
    assert streaming <= 0.20 * COUNT, f"seed {SEED}: streaming {streaming} of {COUNT}"


@pytest.mark.parametrize("budget", [
    {"kv_policy": "fastkv", "kv_retention": 0.3, "tsp_ratio": 0.3},
    {"kv_policy": "fastkv", "kv_retention": 0.1, "tsp_ratio": 0.5},
    {"kv_policy": "fastkv", "kv_retention_tokens": 50, "tsp_tokens": 200},
    {"kv_policy": "full", "tsp_ratio": 0.5},
    {"kv_policy": "fastkv", "kv_retention": 0.001},
], ids=str)
def test_receipts_of_other_budgets_are_exact(needle, prompts, budget):
    prompt = prompts[0]["context"] + prompts[0]["question"]
    asked = {**WHOLE, **budget}
    receipt_assert.check(complete(needle, prompt=prompt, max_tokens=1, **asked)["kv"], asked,
                        n=len(prompt), **NEEDLE)
