"""Eviction frees memory: fewer pages, more sequences at once, a bounded process."""
import concurrent.futures
import json
import pathlib
import shutil
import time

import pytest

import receipt_assert
from headroom_server import ROOT, HeadroomServer
from wire import INT8, NEEDLE, TINY, complete, metric, wait_for, wait_until_free

PAGE_SIZE = 16
MAX_CONTEXT = 8192
NUM_HEADS = NEEDLE["layers"] * NEEDLE["kv_heads"]
PAGE_BYTES = PAGE_SIZE * 2 * NEEDLE["head_dim"] * NEEDLE["element_bytes"]
MIB = 1 << 20


@pytest.fixture(scope="module")
def long_needle(tmp_path_factory):
    """The needle model with a longer context than it was trained for: its answers do not matter."""
    folder = tmp_path_factory.mktemp("long") / "long-needle"
    shutil.copytree(ROOT / "tests/data/needle-1hop", folder)
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    config["max_position_embeddings"] = MAX_CONTEXT
    path.write_text(json.dumps(config))
    return str(folder)


def pages(num_tokens):
    return NUM_HEADS * -(-num_tokens // PAGE_SIZE)


def memory_bytes(server, field):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def test_a_tenth_of_a_long_prompt_is_a_tenth_of_its_pages(long_needle):
    prompt = [i * 31 % 250 for i in range(7500)]
    pool = pages(7600) + pages(800)
    flags = ["--threads", "1", "--kv-pages", str(pool)]
    with HeadroomServer(long_needle, *flags) as server:
        idle = memory_bytes(server, "VmRSS")
        full = complete(server, prompt=prompt, max_tokens=2, kv_policy="full")["kv"]
        receipt_assert.check(full, {"kv_policy": "full"}, n=7500, **NEEDLE)
        asked = {"kv_policy": "fastkv", "kv_retention": 0.1}
        tenth = complete(server, prompt=prompt, max_tokens=2, **asked)["kv"]
        receipt_assert.check(tenth, asked, n=7500, **NEEDLE)
        assert tenth["pages"] <= 0.12 * full["pages"]
        wait_until_free(server)
        peak = memory_bytes(server, "VmHWM")
        bound = idle + pool * PAGE_BYTES + 64 * MIB
        print(f"idle {idle / MIB:.0f} MiB, pool {pool * PAGE_BYTES / MIB:.0f} MiB, "
              f"peak {peak / MIB:.0f} MiB")
        assert peak <= bound, f"peak {peak}, wanted at most {bound}"


def test_receipts_of_an_int8_cache_count_its_scales():
    with HeadroomServer("builtin:tiny", "--kv-dtype", "int8") as server:
        for asked in ({}, {"kv_policy": "streaming", "kv_retention": 0.3},
                      {"kv_policy": "fastkv", "kv_retention": 0.2, "tsp_ratio": 0.4,
                       "tsp_min_prompt": 0}):
            answer = complete(server, prompt=[i * 7 % 250 for i in range(600)], max_tokens=1,
                              **asked)
            receipt_assert.check(answer["kv"], asked, n=600, **{**TINY, **INT8})


PROMPT_TOKENS = 2400
NEW_TOKENS = 32  # a tenth of the prompt and these are 17 whole pages


def most_running(server, count, **fields):
    """The most sequences seen running at once while `count` requests are served."""
    most = 0
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        jobs = [threads.submit(complete, server, max_tokens=NEW_TOKENS, ignore_eos=True, **fields,
                               prompt=[(i * 31 + n) % 250 for i in range(PROMPT_TOKENS)])
                for n in range(count)]
        while not all(job.done() for job in jobs):
            most = max(most, metric(server, "headroom_requests_running"))
            time.sleep(0.005)
        for job in jobs:
            job.result()
    return most


def test_a_pool_of_ten_full_sequences_holds_eighty_at_a_tenth(long_needle):
    # Prompts are read whole, several in a step, so that the first are still decoding when the last
    # have been read.
    flags = ["--threads", "1", "--kv-pages", str(10 * pages(PROMPT_TOKENS + NEW_TOKENS)),
             "--max-batch-rows", "32768", "--step-time-ms", "60000"]
    with HeadroomServer(long_needle, *flags) as server:
        full = most_running(server, 12, kv_policy="full")
        tenth = most_running(server, 84, kv_policy="fastkv", kv_retention=0.1, tsp_ratio=0.1,
                             tsp_min_prompt=0)
        print(f"at once: {full} full, {tenth} at a tenth")
        assert full == 10
        assert tenth >= 80
        wait_for("free pool", lambda: metric(server, "headroom_kv_cache_pages_used") == 0)
