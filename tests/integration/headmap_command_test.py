"""headroom headmap: show, diff, derive, check and export, their outputs, statuses and files."""
import json
import math

import pytest

import make_needle_prompts
from head_map_test import NEEDLE, headroom, make_map


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
