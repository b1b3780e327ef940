"""Serving with a head map: what adaptive applies, what clients and operators see of the map, and
which maps are refused."""
import json
import os
import subprocess

import pytest

import make_needle_prompts
from headroom_server import HeadroomServer, binary
from wire import request

NEEDLE = "builtin:needle-1hop"
IDS = {"prompt": [510, *[97 + i % 26 for i in range(299)]], "max_tokens": 2, "kv_min_prompt": 0,
       "tsp_min_prompt": 0}


def headroom(*arguments):
    return subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, env=dict(os.environ))


def make_map(folder, model=NEEDLE, name="map.json"):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(
        json.dumps(prompt) + "\n"
        for prompt in make_needle_prompts.make_prompts(text, "1hop", 256, 8, seed=5)))
    result = headroom("profile", model, "--prompts", prompts, "--out", folder / name,
                      "--no-validate", "--quiet")
    assert result.returncode == 0, result.stderr
    return folder / name


@pytest.fixture(scope="module")
def head_map(tmp_path_factory):
    return make_map(tmp_path_factory.mktemp("head_map"))


@pytest.fixture(scope="module")
def server(head_map):
    with HeadroomServer(NEEDLE, "--threads", "1", "--check-invariants", "--head-map",
                        str(head_map)) as running:
        yield running


def complete(server, headers=None, **fields):
    reply = request(server, "POST", "/v1/completions", {**IDS, **fields}, headers)
    return reply.status, reply.json()


def types_of(head_map):
    return json.loads(head_map.read_text())["summary"]["types"]


def test_a_budget_alone_is_spent_by_the_map(server, head_map):
    status, answer = complete(server, kv_retention=0.25)
    assert status == 200
    kv = answer["kv"]
    assert kv["policy"] == "adaptive"
    assert kv["head_map"] == json.loads(head_map.read_text())["map_hash"]
    assert kv["applied"]["kv_mode"] == "budget" and kv["applied"]["kv_scope"] == "model"
    assert kv["applied"]["kv_head_check"] is False
    assert "no_head_map" not in kv["reasons"]
    # 300 tokens, 6 layers of 2 KV heads: a quarter of all entries, no more.
    assert 0.9 * 900 < kv["entries"] <= 900 and kv["entries_full"] == 3600


def test_settings_come_from_body_and_headers(server):
    status, answer = complete(server, {"x-kv-scope": "layer", "x-kv-head-check": "true"},
                              kv_retention=0.25, kv_options={"dense_share": 0.75})
    kv = answer["kv"]
    assert status == 200, answer
    assert kv["applied"]["kv_scope"] == "layer" and kv["applied"]["kv_head_check"] is True
    assert kv["applied"]["kv_options"] == {"dense_share": 0.75, "local_share": None}
    assert kv["sources"]["kv_scope"] == "header" and kv["asked"]["kv_scope"] == "layer"


def test_recovery_needs_no_retention(server):
    status, answer = complete(server, kv_mode="recovery")
    assert status == 200, answer
    assert answer["kv"]["applied"]["kv_recovery"] == 0.95
    assert answer["kv"]["entries"] < answer["kv"]["entries_full"]
    status, answer = complete(server, kv_mode="recovery", kv_retention=0.5)
    assert status == 400
    assert answer["error"]["code"] == "policy_unsupported"
    assert answer["error"]["param"] == "kv_mode"


def test_other_policies_name_no_map(server):
    assert complete(server, kv_policy="snapkv")[1]["kv"]["head_map"] is None
    assert complete(server)[1]["kv"]["policy"] == "full"


def test_the_map_is_listed_with_the_model(server, head_map):
    model = request(server, "GET", "/v1/models").json()["data"][0]
    stored = json.loads(head_map.read_text())
    assert model["head_map"] == {"hash": stored["map_hash"], "validation": "unvalidated",
                                 "prefer": "balanced", "heads": stored["summary"]["types"]}
    assert model["meta"]["tsp_layer"] == stored["tsp"]["layer"]
    assert "adaptive" in model["meta"]["kv_policies"]


def test_metrics_count_heads_and_entries_by_type(server, head_map):
    def metrics():
        values = {}
        for line in request(server, "GET", "/metrics").body.decode().splitlines():
            if line.startswith("headroom_kv_head") and 'type="' in line:
                name = line.split("{")[0]
                kind = line.split('type="')[1].split('"')[0]
                values[name, kind] = float(line.split()[-1])
        return values

    before = metrics()
    kv = complete(server, kv_retention=0.25)[1]["kv"]
    after = metrics()
    types = types_of(head_map)
    for kind, count in types.items():
        assert after["headroom_kv_heads", kind] == count
        seen = "headroom_kv_head_type_entries_total"
        assert after[seen, kind] - before[seen, kind] == count * 300
    kept = "headroom_kv_head_type_entries_kept_total"
    assert sum(after[kept, kind] - before[kept, kind] for kind in types) == kv["entries"]


def test_no_warning_repeats_and_the_unvalidated_map_is_told_once(server):
    complete(server, kv_retention=0.25)
    assert server.log().count("event=head_map_warning") == 1
    assert "not validated" in server.log()


def test_the_layer_of_a_flag_beats_the_maps(head_map):
    with HeadroomServer(NEEDLE, "--head-map", str(head_map), "--tsp-layer", "4", "--prefer",
                        "answers") as server:
        model = request(server, "GET", "/v1/models").json()["data"][0]
        assert model["meta"]["tsp_layer"] == 4 and model["head_map"]["prefer"] == "answers"


@pytest.mark.parametrize("model,change,flags,message", [
    ("builtin:needle-2hop", None, (), "other weights"),
    ("builtin:tiny", None, ("--head-map-check", "warn"), "another model"),
    (NEEDLE, lambda text: text[:-2], (), "malformed JSON"),
    (NEEDLE, lambda text: text.replace('"type": "dense"', '"type": "local"', 1), (), "head map:"),
    (NEEDLE, lambda text: text.replace("headmap/1", "headmap/2"), (), "headmap/2"),
    (NEEDLE, None, ("--prefer", "speed"), "--prefer: got speed"),
    (NEEDLE, None, ("--head-map-check", "never"), "--head-map-check: got never"),
])
def test_a_map_that_does_not_fit_ends_the_start_with_78(head_map, tmp_path, model, change, flags,
                                                        message):
    path = head_map
    if change is not None:
        path = tmp_path / "changed.json"
        path.write_text(change(head_map.read_text()))
    for command in (("serve", model, "--port", "0"), ("generate", model, "--ids", "1,2")):
        result = headroom(*command, "--head-map", path, *flags)
        assert result.returncode == 78, result.stderr
        assert message in result.stderr


def test_a_missing_map_ends_the_start_with_78(tmp_path):
    result = headroom("generate", NEEDLE, "--ids", "1,2", "--head-map", tmp_path / "none.json")
    assert result.returncode == 78
    assert "No such file" in result.stderr


def test_other_weights_are_served_with_a_check_when_asked_to(head_map):
    with HeadroomServer("builtin:needle-2hop", "--head-map", str(head_map), "--head-map-check",
                        "warn") as server:
        assert "other weights" in server.log()
        kv = complete(server, kv_retention=0.25)[1]["kv"]
        assert kv["policy"] == "adaptive" and kv["applied"]["kv_head_check"] is True


def test_eval_compares_adaptive_with_others(head_map, tmp_path):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = tmp_path / "needles.jsonl"
    prompts.write_text("".join(
        json.dumps(prompt) + "\n"
        for prompt in make_needle_prompts.make_prompts(text, "1hop", 256, 4, seed=6)))
    result = headroom("eval", NEEDLE, "--needles", prompts, "--policies", "adaptive,snapkv",
                      "--retention", "0.25", "--kv-scope", "layer", "--head-map", head_map,
                      "--resamples", 100, "--quiet", "--json", "-")
    assert result.returncode == 0, result.stderr
    rows = {row["policy"]: row for row in json.loads(result.stdout)["rows"]}
    assert set(rows) == {"full", "adaptive", "snapkv"}
    assert rows["adaptive"]["refused"] is None and rows["snapkv"]["refused"] is None
