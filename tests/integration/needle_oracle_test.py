"""`headroom eval` answers needles as a forward pass in double precision does, prompt by prompt."""
import json
import pathlib
import subprocess

import pytest

import make_needle_prompts
import needle_oracle
from headroom_server import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = 10
SEED = 7
POLICIES = [(needle_oracle.full, 1), (needle_oracle.streaming, 0.5), (needle_oracle.streaming, 0.2),
            (needle_oracle.snapkv, 0.5), (needle_oracle.snapkv, 0.2), (needle_oracle.snapkv, 0.1)]


def headroom_rights(task, path, policy, sinks):
    """{(protocol, policy, rho): [right]} of eval at the oracle's settings."""
    command = [binary(), "eval", f"builtin:needle-{task}", "--needles", path, "--policies",
               f"full,{policy}", "--retention", "0.5,0.2,0.1", "--kv-dtype", "f32", "--kv-pool",
               "avg", "--kv-window", str(needle_oracle.WINDOW), "--kv-sink-tokens", str(sinks),
               "--rank-candidates", "0", "--threads", "1", "--quiet", "--json", "-"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return {(needles["protocol"], report["rows"][scores["row"]]["policy"],
             report["rows"][scores["row"]]["retention"]):
            [prompt["right"] for prompt in scores["prompts"]]
            for needles in report["needles"] for scores in needles["scores"]}


@pytest.mark.parametrize("task", ["1hop", "2hop"])
def test_answers_are_those_of_the_oracle(task, tmp_path):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = list(make_needle_prompts.make_prompts(text, task, 256, COUNT, SEED))
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts), encoding="ascii")
    model = needle_oracle.Model(ROOT / f"tests/data/needle-{task}")
    wanted = {}
    for prompt in prompts:
        for protocol in ("aware", "agnostic"):
            found = needle_oracle.answers(model, prompt, protocol == "aware", POLICIES)
            for (policy, rho), answer in found.items():
                wanted.setdefault((protocol, policy, rho), []).append(answer == prompt["answer"])
    got = headroom_rights(task, path, "streaming", needle_oracle.SINKS)
    got.update(headroom_rights(task, path, "snapkv", 0))
    for key, rights in wanted.items():
        print(task, *key, sum(rights), "of", COUNT)
        assert got[key] == rights, key
    # The prompts tell the policies apart.
    assert 0 < sum(map(sum, wanted.values())) < COUNT * len(wanted)
