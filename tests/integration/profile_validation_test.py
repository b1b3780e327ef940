"""headroom profile with validation, and what its map is worth: questions that come after the
compression, on prompts of another text and other seeds than the profile's."""
import json
import os
import subprocess

import pytest

import make_needle_prompts
from headroom_server import ROOT, binary


def headroom(*arguments):
    result = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True,
                            timeout=300, env=dict(os.environ))
    assert result.returncode == 0, result.stderr
    return result.stdout


def other_text():
    return "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md"))).encode("ascii", "ignore")


def write_prompts(path, text, task, count, seed):
    lines = make_needle_prompts.make_prompts(text, task, 512, count, seed=seed)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module", params=["1hop", "2hop"])
def profiled(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    seed = 4711
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = write_prompts(folder / "profile.jsonl", text, request.param, 100, seed)
    model = f"builtin:needle-{request.param}"
    table = headroom("profile", model, "--prompts", prompts, "--out", folder / "map.json",
                     "--report", folder / "report.html", "--quiet")
    tests = write_prompts(folder / "tests.jsonl", other_text(), request.param, 64, seed + 1)
    return {"model": model, "folder": folder, "prompts": prompts, "tests": tests, "table": table,
            "map": json.loads((folder / "map.json").read_text())}


def test_the_map_passes(profiled):
    validation = profiled["map"]["validation"]
    assert validation["status"] == "pass", validation["reasons"]
    assert "Validation: pass" in profiled["table"]
    assert validation["documents"] == 12 and validation["needles"] == 12  # one in eight of 100
    assert {row["policy"] for row in validation["rows"]} == {"adaptive", "adakv", "fastkv",
                                                             "streaming"}
    assert all(candidate["validated"] for candidate in profiled["map"]["tsp"]["candidates"])
    assert [plan["prefer"] for plan in profiled["map"]["spend"]] == ["answers", "balanced",
                                                                     "fluency"]


def test_the_heads_that_fetch_are_filled_first(profiled):
    ranks = {(layer, g): head["fill_rank"]
             for layer, heads in enumerate(profiled["map"]["layers"])
             for g, head in enumerate(heads["kv"]) if head["fill_rank"] is not None}
    # Two hops take a third head, which may stand between them.
    first = 2 if profiled["model"] == "builtin:needle-1hop" else 4
    assert ranks[(1, 0)] < first and ranks[(1, 1)] < first


def test_threads_change_no_byte(profiled):
    if profiled["model"] != "builtin:needle-1hop":
        return  # once is enough
    again = profiled["folder"] / "again.json"
    headroom("profile", profiled["model"], "--prompts", profiled["prompts"], "--out", again,
             "--threads", 1, "--quiet")
    assert again.read_bytes() == (profiled["folder"] / "map.json").read_bytes()


@pytest.mark.parametrize("prefer", ["balanced", "answers"])
def test_unseen_questions_are_answered_at_a_quarter_of_the_cache(profiled, prefer):
    out = profiled["folder"] / f"{prefer}.json"
    headroom("eval", profiled["model"], "--head-map", profiled["folder"] / "map.json", "--prefer",
             prefer, "--needles", profiled["tests"], "--needle-count", 64, "--policies",
             "adaptive,fastkv,snapkv,adakv", "--retention", "0.25", "--protocols", "agnostic",
             "--json", out)
    report = json.loads(out.read_text())
    right = {report["rows"][row["row"]]["policy"]: row["right"]["value"]
             for row in report["needles"][0]["rows"]}
    assert right["adaptive"] >= 0.9 * right["full"] > 0.8
    # What the map is for: uniform budgets lose most of them.
    assert max(right[policy] for policy in ("fastkv", "snapkv", "adakv")) < 0.6
