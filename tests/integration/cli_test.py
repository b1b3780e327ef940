"""The commands that answer on the terminal: generate and its trace, inspect, tokenize, bench."""
import json
import os
import pathlib
import random
import subprocess

import pytest

from headroom_server import ROOT, binary

CONFIG = json.loads((ROOT / "tests/data/needle-1hop/config.json").read_text())
LAYERS, KV_HEADS = CONFIG["num_hidden_layers"], CONFIG["num_key_value_heads"]
NEEDLE = "builtin:needle-1hop"


def run(*arguments, **environment):
    return subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, env={**os.environ, **environment})


def prompt_ids(length):
    chosen = random.Random(length)
    return ",".join(str(chosen.randrange(4, 120)) for _ in range(length))


def trace_of(tmp_path, length, *flags):
    """The trace of a generation, after its counts were checked against its lists."""
    path = tmp_path / "trace.json"
    result = run("generate", NEEDLE, "--ids", prompt_ids(length), "-n", 4, "--kv-trace", path,
                 "--kv-min-prompt", 0, "--tsp-min-prompt", 0, "--check-invariants", *flags)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split(",")) == 4  # as --ids reads them
    trace = json.loads(path.read_text())
    heads = [head for layer in trace["kept"] for head in layer]
    assert [len(layer) for layer in trace["kept"]] == [KV_HEADS] * LAYERS
    assert trace["prompt_tokens"] == length
    assert trace["entries_full"] == length * LAYERS * KV_HEADS
    assert trace["entries"] == sum(map(len, heads))
    for head in heads:
        assert head == sorted(set(head)) and 0 <= head[0] and head[-1] == length - 1
    return trace


def test_a_trace_of_the_full_cache_holds_every_position(tmp_path):
    trace = trace_of(tmp_path, 50)
    assert trace["policy"] == "full"
    assert all(head == list(range(50)) for layer in trace["kept"] for head in layer)


def test_a_trace_of_streaming_is_sinks_and_the_most_recent(tmp_path):
    trace = trace_of(tmp_path, 200, "--kv-policy", "streaming", "--kv-retention", "0.2")
    wanted = [0, 1, 2, 3, *range(200 - 36, 200)]
    assert all(head == wanted for layer in trace["kept"] for head in layer)


def test_a_trace_of_fastkv_shows_what_each_head_keeps_and_who_went_on(tmp_path):
    trace = trace_of(tmp_path, 300, "--kv-policy", "fastkv", "--kv-retention", "0.1",
                     "--tsp-ratio", "0.2")
    heads = [tuple(head) for layer in trace["kept"] for head in layer]
    assert {len(head) for head in heads} == {30}
    assert len(set(heads)) > LAYERS  # each chooses by its own scores
    assert trace["propagated_tokens"] == 60
    tsp_layer = max(0, LAYERS // 2 - 1)
    above = {position for layer in trace["kept"][tsp_layer + 1:] for head in layer
             for position in head}
    assert len(above) <= 60
    must_keep = {0, 1, 2, 3, *range(292, 300)}
    assert all(must_keep <= set(head) for head in heads)


def test_a_trace_that_cannot_be_written_is_78(tmp_path):
    result = run("generate", NEEDLE, "--ids", "5", "-n", 1, "--kv-trace", tmp_path / "no" / "x")
    assert result.returncode == 78 and "--kv-trace" in result.stderr
    assert result.stdout == "" and "rows" not in result.stderr  # before anything ran


def test_generate_tells_the_prompt_s_progress_and_what_was_kept_on_stderr_alone():
    result = run("generate", NEEDLE, "--ids", prompt_ids(64), "-n", 2)
    assert "64 of 64 rows" in result.stderr and "768 of 768 entries" in result.stderr
    quiet = run("generate", NEEDLE, "--ids", prompt_ids(64), "-n", 2, "--quiet")
    assert quiet.stderr == "" and quiet.stdout == result.stdout


def test_generate_reads_a_prompt_file(tmp_path):
    (tmp_path / "prompt.txt").write_text("abc")
    from_file = run("generate", "builtin:tiny", "--prompt-file", tmp_path / "prompt.txt", "-n", 5)
    assert from_file.returncode == 0, from_file.stderr
    assert from_file.stdout == run("generate", "builtin:tiny", "-p", "abc", "-n", 5).stdout


def test_tokenize_goes_there_and_back():
    ids = run("tokenize", "builtin:tiny", "--text", "hé\n").stdout.strip()
    assert run("tokenize", "builtin:tiny", "--ids", ids).stdout.startswith("hé\n")


def test_inspect_counts_what_the_model_holds():
    text = run("inspect", NEEDLE).stdout
    assert f"layers               {LAYERS}" in text and "token ids only" in text


def test_bench_engine_writes_its_table_as_json():
    result = run("bench", "engine", NEEDLE, "--prefill", 32, "--decode", 4, "--depth", "0,40",
                 "--batch", "1,2", "--threads", 1, "--repeat", 1, "--json", "-")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["results"]
    assert [(row["test"], row["batch"]) for row in rows] == [
        ("prefill", 1), ("decode", 1), ("decode", 2), ("decode", 1), ("decode", 2)]
    assert all(row["tokens_per_s_median"] > 0 and row["kv_retention_ppm"] == 10**6 for row in rows)
    assert [row["kv_pages"] for row in rows] == [24, 12, 12, 36, 36]  # 12 heads, 16 tokens a page


def bench(*flags, prefill=32):
    return run("bench", "engine", NEEDLE, "--prefill", prefill, "--decode", 8, "--threads", 1,
               "--repeat", 1, *flags)


@pytest.mark.parametrize("flags,message", [
    (["--depth", "1020"], "--depth: got 1020, wanted at most 1015"),
    (["--depth", 100, "--batch", "1,40", "--kv-pages", 200], "--batch: got 40"),
    (["--depth", 0, "--batch", 5, "--max-running", 4], "--batch: got 5, wanted at most"),
    (["--depth", 16, "--batch", 1, "--kv-retention", "0.2", "--kv-strict"], "kv_min_prompt"),
])
def test_bench_engine_refuses_what_it_could_not_measure(flags, message):
    result = bench(*flags)
    assert result.returncode == 78 and message in result.stderr, result.stderr


def test_bench_engine_refuses_a_prompt_that_fills_the_context():
    result = bench("--depth", 0, prefill=1024)
    assert result.returncode == 78 and "--prefill: got 1024" in result.stderr, result.stderr


def test_bench_engine_leaves_out_defaults_that_do_not_fit_and_says_so():
    result = bench()
    assert result.returncode == 0, result.stderr
    assert "left out: --depth: got 7500" in result.stderr
    assert "decode" in result.stdout


def test_bench_engine_tells_the_budget_that_acted():
    result = bench("--depth", "600,100", "--batch", 1, "--kv-retention", "0.2", "--json", "-")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["results"]
    assert [row["kv_retention_ppm"] for row in rows] == [10**6, 200_000, 10**6]


def test_tokenize_prints_bytes_as_they_are():
    result = run("tokenize", "builtin:tiny", "--ids", "97,0,98")
    assert result.stdout.rstrip("\n") == "a\0b"


@pytest.mark.parametrize("size", [0, 3, 500_000])
def test_cut_weights_are_78_with_file_offset_and_reason(tmp_path, size):
    source = ROOT / "tests/data/needle-1hop"
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes(pathlib.Path(source / name).read_bytes())
    os.truncate(tmp_path / "model.safetensors", size)
    result = run("inspect", tmp_path)
    assert result.returncode == 78
    assert "model.safetensors: offset " in result.stderr


def test_a_subcommand_misspelt_is_named_with_the_nearest():
    result = run("serv", "builtin:tiny")
    assert result.returncode == 78 and "did you mean serve?" in result.stderr
