"""headroom headmap: show, diff, derive, check and export, their outputs, statuses and files."""
import json
import math
import struct

import pytest

import make_needle_prompts
from head_map_test import NEEDLE, headroom, make_map
from headroom_server import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headmap")
    make_map(folder)
    return folder


def headmap(*arguments):
    return headroom("headmap", *arguments)


def flips_of(before, after):
    types = [json.loads(path.read_text())["summary"]["matrix"] for path in (before, after)]
    return sum(a != b for a, b in zip(" ".join(types[0]).split(), " ".join(types[1]).split()))


def test_show_prints_types_spending_and_hashes(folder):
    result = headmap("show", folder / "map.json")
    stored = json.loads((folder / "map.json").read_text())
    assert result.returncode == 0, result.stderr
    for text in (stored["map_hash"], stored["model"]["weights_hash"], "balanced", "TSP layer",
                 f"{stored['profile']['corpus'][0]['prompts']} prompts"):
        assert text in result.stdout


def test_derive_writes_a_map_that_serves_and_diff_lists_its_flips(folder):
    derived = folder / "derived.json"
    result = headmap("derive", folder / "map.json", "--theta", "0.99", "-o", derived)
    assert result.returncode == 0, result.stderr
    flips = flips_of(folder / "map.json", derived)
    assert flips > 0, "the needle model has heads between 0.95 and 0.99"
    assert f"{flips} of 12 heads changed type" in result.stdout
    diff = headmap("diff", folder / "map.json", derived)
    assert diff.returncode == 1 and "theta: 0.95 -> 0.99" in diff.stdout
    assert f"{flips} of 12 heads changed type" in diff.stdout
    assert headmap("diff", derived, derived).returncode == 0
    served = headroom("generate", NEEDLE, "--ids", "1,2,3", "-n", "1", "--head-map", derived,
                      "--kv-retention", "0.5", "--quiet")
    assert served.returncode == 0, served.stderr


def test_deriving_the_maps_own_theta_changes_no_type(folder):
    same = folder / "same.json"
    assert headmap("derive", folder / "map.json", "--theta", "0.95", "-o", same).returncode == 0
    assert flips_of(folder / "map.json", same) == 0


def test_export_duo_is_a_pattern_directory(folder):
    result = headmap("export", folder / "map.json", "--format", "duo", "-o", folder / "duo")
    assert result.returncode == 0, result.stderr
    stored = json.loads((folder / "map.json").read_text())
    gates = [[float(cell) for cell in line.split("\t")]
             for line in (folder / "duo/full_attention_heads.tsv").read_text().splitlines()]
    assert len(gates) == 6 and all(len(line) == 2 for line in gates)
    for line, layer in zip(gates, stored["layers"]):
        for gate, head in zip(line, layer["kv"]):
            assert math.isfinite(gate) and 0 <= gate <= 1
            assert (gate == 1) == (head["type"] == "dense")
            assert (gate >= 0.5) == (head["type"] in ("dense", "heavy"))
    config = json.loads((folder / "duo/config.json").read_text())
    assert config["sink_size"] == 4 and config["recent_size"] >= 64


def test_export_kvpress_holds_the_same_scores(folder):
    result = headmap("export", folder / "map.json", "--format", "kvpress")
    assert result.returncode == 0, result.stderr
    duo = (folder / "duo/full_attention_heads.tsv").read_text().splitlines()
    assert json.loads(result.stdout)["head_scores"] == [
        [float(cell) for cell in line.split("\t")] for line in duo]


def test_check_knows_the_maps_own_model(folder):
    result = headmap("check", folder / "map.json", NEEDLE)
    assert result.returncode == 0, result.stderr
    assert "weights: the map's" in result.stdout


def test_check_measures_the_maps_own_model_and_keeps_the_map(folder):
    result = headmap("check", folder / "map.json", NEEDLE, "--prompts", folder / "prompts.jsonl",
                     "--quiet")
    assert result.returncode == 0, result.stderr
    assert "0 of 12 heads changed type" in result.stdout and "keep the map" in result.stdout


def test_check_measures_another_model_and_asks_for_a_profile(folder):
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    prompts = folder / "2hop.jsonl"
    prompts.write_text("".join(
        json.dumps(prompt) + "\n"
        for prompt in make_needle_prompts.make_prompts(text, "2hop", 384, 16, seed=4)))
    unmeasured = headmap("check", folder / "map.json", "builtin:needle-2hop")
    assert unmeasured.returncode == 1 and "--prompts" in unmeasured.stdout
    out = folder / "refused.json"
    result = headmap("check", folder / "map.json", "builtin:needle-2hop", "--prompts", prompts,
                     "--quiet", "-o", out)
    assert result.returncode == 1, result.stdout
    assert "re-profile" in result.stdout and "->" in result.stdout
    assert not out.exists()


def test_check_binds_other_weights_that_then_serve_strictly(folder):
    bound = folder / "bound.json"
    before = (folder / "map.json").read_bytes()
    result = headmap("check", folder / "map.json", "builtin:needle-2hop", "-o", bound)
    assert result.returncode == 0, result.stderr
    stored = json.loads(bound.read_text())
    assert len(stored["bound"]) == 1 and stored["bound"][0] in result.stdout
    assert (folder / "map.json").read_bytes() == before
    for model in (NEEDLE, "builtin:needle-2hop"):
        served = headroom("generate", model, "--ids", "1,2,3", "-n", "1", "--head-map", bound,
                          "--quiet")
        assert served.returncode == 0, served.stderr
    again = headmap("check", bound, "builtin:needle-2hop", "-o", folder / "again.json")
    assert "bound to the map" in again.stdout
    assert (folder / "again.json").read_bytes() == bound.read_bytes()


@pytest.mark.parametrize("arguments,message", [
    (("show",), "map: wanted a file"),
    (("show", "none.json"), "none.json: No such file"),
    (("derive", "MAP"), "--out: wanted"),
    (("derive", "MAP", "-o", "x.json"), "--theta: wanted a ratio"),
    (("derive", "MAP", "--theta", "1.5", "-o", "x.json"), "--theta: wanted a ratio"),
    (("export", "MAP", "--format", "gguf"), "--format: got gguf"),
    (("export", "MAP"), "--out: wanted the folder"),
    (("check", "MAP"), "model: wanted"),
    (("check", "MAP", "builtin:tiny"), "another model"),
    (("check", "MAP", NEEDLE, "-o", "none/x.json"), "cannot write none/x.json"),
    (("merge", "MAP"), "did you mean"),
])
def test_faults_end_with_78_and_name_what_is_wrong(folder, arguments, message):
    paths = [folder / "map.json" if argument == "MAP" else argument for argument in arguments]
    result = headmap(*paths)
    assert result.returncode == 78, result.stdout
    assert message in result.stderr


# Copies of the needle model as a Hugging Face folder, its attention weights changed.
SOURCE = ROOT / "tests/data/needle-1hop"
HEADS = {"q_proj": 64, "k_proj": 32, "v_proj": 32}  # output rows of one KV head's group


def changed_copy(folder, change):
    """`change(name, rows)` gets every projection of attention as a list of rows of f16 bytes."""
    data = bytearray((SOURCE / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        if not name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")):
            continue
        assert tensor["dtype"] == "F16"
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        width = tensor["shape"][1] * 2
        rows = [bytes(data[at:at + width]) for at in range(begin, end, width)]
        data[begin:end] = b"".join(change(name, rows))
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_bytes((SOURCE / "config.json").read_bytes())
    return folder


def nudge(name, rows):
    """The lowest bit of one weight, as the smallest possible fine-tuning."""
    if name.endswith("layers.2.self_attn.k_proj.weight"):
        rows[5] = bytes([rows[5][0] ^ 1]) + rows[5][1:]
    return rows


def exchange_heads(name, rows):
    """Both KV heads of every layer change places, with their query heads: the same function."""
    kind = name.split(".")[-2]
    if kind == "o_proj":
        return [row[128:] + row[:128] for row in rows]  # columns of 64 f16 a group
    return rows[HEADS[kind]:] + rows[:HEADS[kind]]


def test_a_nudged_copy_is_refused_until_check_has_kept_the_map(folder):
    copy = changed_copy(folder / "nudged", nudge)
    refused = headroom("generate", copy, "--ids", "1,2", "--head-map", folder / "map.json")
    assert refused.returncode == 78 and "other weights" in refused.stderr
    bound = folder / "nudged.json"
    result = headmap("check", folder / "map.json", copy, "--prompts", folder / "prompts.jsonl",
                     "--quiet", "-o", bound)
    assert result.returncode == 0, result.stdout
    assert "keep the map" in result.stdout
    served = headroom("generate", copy, "--ids", "1,2", "-n", "1", "--head-map", bound, "--quiet")
    assert served.returncode == 0, served.stderr


def test_a_copy_with_exchanged_heads_is_refused_and_its_flips_are_listed(folder):
    copy = changed_copy(folder / "exchanged", exchange_heads)
    for ids in ("510,65,66,67,510,65", "1,2,3,4"):  # the copy computes what the model does
        answers = [headroom("generate", model, "--ids", ids, "-n", "4", "--quiet").stdout
                   for model in (NEEDLE, copy)]
        assert answers[0] == answers[1]
    refused = headroom("generate", copy, "--ids", "1,2", "--head-map", folder / "map.json")
    assert refused.returncode == 78 and "other weights" in refused.stderr
    result = headmap("check", folder / "map.json", copy, "--prompts", folder / "prompts.jsonl",
                     "--quiet")
    assert result.returncode == 1
    assert "re-profile" in result.stdout and "special -> dense" in result.stdout
