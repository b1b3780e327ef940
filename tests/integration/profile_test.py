"""headroom profile: the map it writes for the needle model, reruns, the Python module, errors."""
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import make_needle_prompts
from headroom_server import ROOT, binary

sys.path.append(str(ROOT / "profiler/python"))
import fastgen  # noqa: E402

NEEDLE = "builtin:needle-1hop"


def run(*arguments):
    return subprocess.run([binary(), "profile", *map(str, arguments)], capture_output=True,
                          text=True, timeout=570, env=dict(os.environ))


def needle_lines(count, seed):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    return list(make_needle_prompts.make_prompts(text, "1hop", 384, count, seed=seed))


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in needle_lines(12, 3)))
    result = run(NEEDLE, "--prompts", prompts, "--out", folder / "map.json", "--report",
                 folder / "report.html", "--no-validate")
    assert result.returncode == 0, result.stderr
    return {"folder": folder, "prompts": prompts, "table": result.stdout,
            "map": json.loads((folder / "map.json").read_text()),
            "bytes": (folder / "map.json").read_bytes()}


def test_finds_the_two_heads_that_fetch(profile):
    scores = [(max(head["copy"], head["induction"]), head["type"], (layer, g))
              for layer, heads in enumerate(profile["map"]["layers"])
              for g, head in enumerate(heads["kv"])]
    scores.sort(reverse=True)
    # The model's two retrieval heads; all others score far below them.
    assert [score[1] for score in scores[:2]] == ["dense", "dense"]
    assert scores[1][0] > 0.5
    assert scores[2][0] < scores[1][0] - 0.2


def test_is_unvalidated_and_says_so(profile):
    assert profile["map"]["validation"]["status"] == "unvalidated"
    assert "unvalidated" in profile["table"]


def test_report_is_a_page_of_its_own(profile):
    text = (profile["folder"] / "report.html").read_text()
    xml.etree.ElementTree.fromstring(text.split("\n", 1)[1])
    assert "<script" not in text and "src=" not in text


def test_order_of_lines_and_threads_change_no_byte(profile):
    lines = profile["prompts"].read_text().splitlines(keepends=True)
    other = profile["folder"] / "reversed.jsonl"
    other.write_text("".join(reversed(lines)))
    out = profile["folder"] / "again.json"
    result = run(NEEDLE, "--prompts", other, "--out", out, "--no-validate", "--threads", 1,
                 "--max-batch-rows", 64, "--quiet")
    assert result.returncode == 0, result.stderr
    assert out.read_bytes() == profile["bytes"]


def test_python_module_writes_the_same_file(profile):
    config = fastgen.profile_model(model_name=NEEDLE, sample_prompts=needle_lines(12, 3),
                                   budget_ratio=0.3, validate=False, binary=binary())
    path = profile["folder"] / "python.json"
    config.save(path)
    assert path.read_bytes() == profile["bytes"]
    assert fastgen.FastGenConfig.load(path).head_types == config.head_types
    assert len(config.head_types) == len(profile["map"]["layers"])


def test_python_module_passes_errors_on():
    with pytest.raises(fastgen.ProfileError, match="no tokenizer"):
        fastgen.profile_model(model_name=NEEDLE, sample_prompts=["text"], binary=binary())
    with pytest.raises(ValueError, match="budget_ratio"):
        fastgen.profile_model(model_name=NEEDLE, sample_prompts=[], budget_ratio=2)


@pytest.mark.parametrize("ladder,classifier", [("paper", "threshold"), ("default", "cluster")])
def test_other_ladders_and_clusters_give_valid_maps(profile, ladder, classifier):
    out = profile["folder"] / f"{ladder}-{classifier}.json"
    result = run(NEEDLE, "--prompts", profile["prompts"], "--out", out, "--no-validate",
                 "--ladder", ladder, "--classifier", classifier, "--limit", 4, "--quiet")
    assert result.returncode == 0, result.stderr
    counts = [line.split() for line in result.stdout.splitlines() if line.startswith("dense ")]
    assert len(counts) == 1 and not any(cell.startswith("-") and cell != "-" for cell in counts[0])
    written = json.loads(out.read_text())
    assert written["profile"]["ladder"] == f"{ladder}/1"
    assert written["profile"]["classifier"] == f"{classifier}/1"


def test_errors_name_what_is_wrong(profile, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"token_ids": [1]}\n{"token_ids": [99999]}\n')
    for arguments, wanted in [
            ([NEEDLE, "--out", tmp_path / "m"], "--prompts"),
            ([NEEDLE, "--prompts", profile["prompts"]], "--out"),
            ([NEEDLE, "--prompts", bad, "--out", tmp_path / "m"], "bad.jsonl:2"),
            ([NEEDLE, "--prompts", profile["prompts"], "--out", tmp_path / "no/m"], "no/m"),
            ([NEEDLE, "--prompts", profile["prompts"], "--out", tmp_path / "m", "--ladder", "x"],
             "--ladder"),
            ([NEEDLE, "--prompts", profile["prompts"], "--out", tmp_path / "m",
              "--target-recovery", "1.5"], "--target-recovery")]:
        result = run(*arguments)
        assert result.returncode == 78, result.stderr
        assert wanted in result.stderr
        assert not pathlib.Path(tmp_path / "m").exists()
