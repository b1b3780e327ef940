"""What the measuring scripts compute themselves: intervals, and a model folder as GGUF."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import make_needle_prompts
import measure_needles
import plot_front
from headroom_server import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]


def evaluate(model, prompts):
    command = [binary(), "eval", model, "--needles", prompts, "--policies", "full,snapkv",
               "--retention", "0.1", "--kv-dtype", "f32", "--threads", "1", "--quiet", "--json",
               "-"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return [(prompt["right"], pytest.approx(prompt["margin"], abs=1e-3))
            for needles in json.loads(done.stdout)["needles"] for scores in needles["scores"]
            for prompt in scores["prompts"]]


# Newcombe, Interval estimation for the difference between independent proportions (1998), table II,
# method 10, to its four digits.
@pytest.mark.parametrize("counts, low, high", [
    ((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090),
    ((10, 10, 0, 20), 0.6791, 1.0), ((10, 10, 0, 10), 0.6075, 1.0)], ids=str)
def test_intervals_of_differences_are_the_published_ones(counts, low, high):
    assert measure_needles.newcombe(*counts)[1:] == pytest.approx((low, high), abs=5e-5)


def test_a_folder_as_gguf_computes_the_same(tmp_path):
    folder, target = ROOT / "tests/data/needle-1hop", tmp_path / "needle.gguf"
    done = subprocess.run([sys.executable, ROOT / "scripts/hf_to_gguf.py", folder, target],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in
                               make_needle_prompts.make_prompts(text, "1hop", 256, 4, 1)))
    wanted = evaluate(folder, prompts)
    assert len(wanted) == 16
    # Rows of Q and K lie in another order in the file, and so their products are summed in another:
    # margins of some 25 nats, sums of log-probabilities, differed by 1e-5.
    assert [(right, margin.expected) for right, margin in evaluate(target, prompts)] == wanted


def test_a_folder_without_weights_is_named(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "scripts/hf_to_gguf.py", tmp_path,
                           tmp_path / "out.gguf"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and str(tmp_path) in done.stderr and "Traceback" not in done.stderr


def front_row(policy, share, delta_nll, seen, unseen, retention=0.1):
    return {"policy": policy, "retention": retention, "dense_share": share, "local_share": 0,
            "delta_nll": delta_nll, "seen": seen, "unseen": unseen}


def test_the_plot_of_a_front_has_every_share_and_every_plan():
    front = [front_row("adaptive", share, delta, 1, unseen)
             for share, delta, unseen in ((1, 0.2, 1), (0, 0.1, 0), (0.5, 0.1, 0.5))]
    head_map = {"spend": [{"prefer": "answers", "points": [[0.1, 1]]},
                          {"prefer": "balanced", "points": [[0.1, 0.5]]}],
                "validation": {"front": front + [front_row("adaptive", 0.5, 0, 1, 1, 0.2)],
                               "rows": [front_row("fastkv", None, 0.3, 0.5, 0)]}}
    svg = xml.etree.ElementTree.fromstring(plot_front.draw(head_map))
    words = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"retention 0.1", "retention 0.2", "1: answers", "0.5: balanced"} <= set(words)
    lines = [line.get("points").split() for line in
             svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(line) for line in lines] == [3, 3, 1, 1]
    unseen = [tuple(map(float, point.split(","))) for point in lines[1]]
    # By share: the loss goes right, answers go up.
    assert unseen[0][0] == unseen[1][0] < unseen[2][0]
    assert unseen[0][1] > unseen[1][1] > unseen[2][1]
    for row in front:
        row["unseen"] = None
    head_map["validation"]["front"] = front
    assert plot_front.draw(head_map) is None
