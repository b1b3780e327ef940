"""The memory of a profile: flat in the number of prompts, linear in their length."""
import json
import pathlib
import shutil
import subprocess
import sys

import make_needle_prompts
from headroom_server import ROOT, binary

BOS = 510


def write_prompts(path, count, length):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    step = (len(text) - length) // count
    with open(path, "w", encoding="ascii") as lines:
        for i in range(count):
            ids = [BOS] + list(text[i * step:i * step + length - 1])
            lines.write(json.dumps({"id": str(i), "token_ids": ids}) + "\n")
    return path


# A process counts what it was before exec, too: the measured one has to be forked by a small one.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(model, prompts, *flags):
    arguments = [binary(), "profile", str(model), "--prompts", str(prompts), "--out",
                 str(prompts) + ".map", "--synthetic", "none", "--no-validate", "--threads", "1",
                 "--quiet", *flags]
    peak = int(subprocess.check_output([sys.executable, "-S", "-c", MEASURE, *arguments])) / 1024
    assert peak > 15, "the measuring process's own memory"
    return peak


def test_five_times_the_prompts_take_no_more_memory(tmp_path):
    peaks = {}
    for count in (200, 1000):
        prompts = write_prompts(tmp_path / f"{count}.jsonl", count, 256)
        peaks[count] = peak_mib("builtin:needle-1hop", prompts, "--limit", "1000", "--all-prompts")
    print(f"peaks in MiB by prompts: {peaks}")
    # Ids of the prompts, and a number a head and rung for each: 2 KB a prompt, 4 MiB in all.
    assert peaks[1000] <= peaks[200] + 8


def test_twice_the_length_takes_about_twice_the_memory(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "tests/data/needle-1hop", model)
    path = pathlib.Path(model, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 16384}))
    peaks = {}
    for length in (8192, 16384):
        prompts = write_prompts(tmp_path / f"{length}.jsonl", 1, length)
        peaks[length] = peak_mib(model, prompts, "--max-len", str(length), "--max-context",
                                 str(length))
    print(f"peaks in MiB by tokens: {peaks}")
    assert peaks[16384] <= 2.1 * peaks[8192]
