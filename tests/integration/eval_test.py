"""headroom eval: what its numbers must satisfy on the needle model, its outputs and its errors."""
import json
import os
import signal
import subprocess
import xml.etree.ElementTree

import pytest

import make_needle_prompts
from headroom_server import ROOT, binary

NEEDLE = "builtin:needle-1hop"
TEXT = ROOT / "tests/data/text/excerpt.txt"
GRID = ["--policies", "full,streaming,fastkv", "--retention", "1,0.2", "--kv-dtype", "f32"]


def run(*arguments, **environment):
    return subprocess.run([binary(), "eval", *map(str, arguments)], capture_output=True, text=True,
                          timeout=570, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One run with both kinds of input; the JSON, the page and the table."""
    folder = tmp_path_factory.mktemp("eval")
    prompts = folder / "prompts.jsonl"
    text = make_needle_prompts.read_text(make_needle_prompts.DEFAULT_TEXT)
    with open(prompts, "w", encoding="ascii") as lines:
        for prompt in make_needle_prompts.make_prompts(text, "1hop", 512, 16, seed=11):
            lines.write(json.dumps(prompt) + "\n")
    result = run(NEEDLE, *GRID, "--tsp", "1,0.5", "--text-bytes", TEXT, "--doc-tokens", 384,
                 "--docs", 3, "--continuation", 64, "--needles", prompts, "--rank-candidates", 4,
                 "--json", folder / "r.json", "--html", folder / "r.html", "--resamples", 500)
    assert result.returncode == 0, result.stderr
    return {"folder": folder, "table": result.stdout, "stderr": result.stderr,
            "json": json.loads((folder / "r.json").read_text()),
            "html": (folder / "r.html").read_text()}


def rows_of(report, **wanted):
    return [index for index, row in enumerate(report["json"]["rows"])
            if all(row[key] == value for key, value in wanted.items())]


def test_whole_budgets_equal_the_full_cache_exactly(report):
    whole = rows_of(report, retention=1.0, tsp=1.0)
    assert {report["json"]["rows"][index]["policy"] for index in whole} == {
        "full", "streaming", "fastkv"}
    for scores in report["json"]["fidelity"]["scores"]:
        if scores["row"] in whole:
            for document in scores["documents"]:
                assert document["delta_nll"] == 0 and document["kl_mean"] == 0
                assert document["kl_p99"] == 0 and document["top1"] == 1


def test_budgets_move_predictions_and_cost_what_they_say(report):
    group = report["json"]["fidelity"]["groups"][0]
    by_row = {row["row"]: row for row in group["rows"]}
    for index in rows_of(report, retention=0.2, refused=None):
        row = by_row[index]
        assert row["kl_mean"]["value"] > 0
        # 320 tokens of prefix fill 20 pages, the 64 that stay 4.
        assert row["physical_share"] == pytest.approx(4 / 20)
        assert row["delta_nll"]["low"] <= row["delta_nll"]["value"] <= row["delta_nll"]["high"]


def test_fastkv_keeps_needles_that_streaming_loses(report):
    aware = next(part for part in report["json"]["needles"] if part["protocol"] == "aware")
    right = {row["row"]: row["right"]["value"] for row in aware["rows"]}
    full = right[0]
    fastkv, = rows_of(report, policy="fastkv", retention=0.2, tsp=1.0)
    streaming, = rows_of(report, policy="streaming", retention=0.2, tsp=1.0)
    assert full >= 0.9
    assert right[fastkv] >= full - 1 / 16
    assert right[streaming] <= 0.5
    by_row = {row["row"]: row for row in aware["rows"]}
    assert by_row[fastkv]["physical_bytes"] == by_row[streaming]["physical_bytes"]
    assert sum(map(sum, aware["totals"])) == 16


def test_refused_cells_are_shown_with_their_reason(report):
    refused = rows_of(report, policy="streaming", tsp=0.5)
    assert len(refused) == 2
    for index in refused:
        assert "tsp_ratio" in report["json"]["rows"][index]["refused"]
    assert "Refused:" in report["table"] and "runs every row" in report["table"]
    assert "Refused" in report["html"]


def test_the_page_is_well_formed_and_stands_alone(report):
    root = xml.etree.ElementTree.fromstring(report["html"])
    tags = [element.tag.rsplit("}")[-1] for element in root.iter()]
    assert tags.count("svg") >= 3 and tags.count("table") == 3
    assert not {"script", "link", "img", "iframe"} & set(tags)


def test_progress_is_a_line_a_document_where_no_terminal_is(report):
    assert "3/3 excerpt.txt#384-" in report["stderr"]
    assert "\r" not in report["stderr"]


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    common = [NEEDLE, *GRID, "--make-needles", "1hop", "--haystack", TEXT, "--needle-length", 128,
              "--needle-count", 4, "--rank-candidates", 3, "--protocols", "agnostic", "--quiet"]
    outputs = []
    for threads in (1, 2):
        html = tmp_path / f"{threads}.html"
        result = run(*common, "--threads", threads, "--json", "-", "--html", html)
        assert result.returncode == 0 and result.stderr == ""
        outputs.append((result.stdout, html.read_text()))
    assert outputs[0] == outputs[1]


def test_every_policy_runs_at_its_own_budget_and_options_reach_those_that_have_them():
    policies = ["streaming", "h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer", "gemfilter",
                "fastkv", "random"]
    common = [NEEDLE, "--text-bytes", TEXT, "--doc-tokens", 384, "--docs", 2, "--continuation", 64,
              "--kv-dtype", "f32", "--json", "-", "--quiet"]
    result = run(*common, "--policies", ",".join(["full", *policies, "fastgen"]), "--retention",
                 "0.25", "--theta", "0.5,0.95", "--kv-options", '{"recent_share": 0.25}')
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [row["refused"] for row in report["rows"]] == [None] * 12
    assert [row["theta"] for row in report["rows"]] == [None] * 10 + [0.5, 0.95]
    group, = report["fidelity"]["groups"]
    full, *rest, low, high = group["rows"]
    # 80 of 320 entries a head are 5 of 20 pages; heads of adakv and layers of pyramidinfer share
    # them unevenly and round up to pages on their own.
    for policy, row in zip(policies, rest):
        share = row["physical_share"]
        assert share == 0.25 or policy in ("adakv", "pyramidinfer") and 0.2 < share < 0.3, policy
        assert row["kl_mean"]["value"] > 0, policy
    assert low["physical_share"] <= high["physical_share"] < full["physical_share"]
    # The same row without its companions, which it shares a prefill with.
    alone = json.loads(run(*common, "--policies", "h2o", "--retention", "0.25", "--kv-options",
                           '{"recent_share": 0.25}').stdout)
    assert alone["fidelity"]["groups"][0]["rows"][1]["kl_mean"] == rest[1]["kl_mean"]
    other = json.loads(run(*common, "--policies", "h2o", "--retention", "0.25").stdout)
    assert other["fidelity"]["groups"][0]["rows"][1]["kl_mean"] != rest[1]["kl_mean"]


def test_kv_types_are_rows_of_their_own():
    result = run(NEEDLE, "--policies", "full", "--kv-dtype", "f32,bf16,int8", "--text-bytes", TEXT,
                 "--doc-tokens", 128, "--docs", 1, "--continuation", 32, "--json", "-", "--quiet")
    report = json.loads(result.stdout)
    assert [row["label"] for row in report["rows"]] == ["full, f32", "full, bf16", "full, int8"]
    rows = report["fidelity"]["groups"][0]["rows"]
    assert rows[1]["physical_share"] == 0.5 and 0 < rows[1]["kl_mean"]["value"] < 0.01
    # An entry is 32 numbers for K and for V, and in int8 a scale of four bytes for each.
    assert rows[2]["physical_share"] == (64 + 8) / (4 * 64)
    assert 0 < rows[2]["kl_mean"]["value"] < 0.01


def test_policies_compress_an_int8_cache_from_its_own_prefill():
    result = run(NEEDLE, "--policies", "full,snapkv,h2o", "--retention", "0.2", "--kv-dtype",
                 "bf16,int8", "--text-bytes", TEXT, "--doc-tokens", 384, "--docs", 2,
                 "--continuation", 64, "--json", "-", "--quiet")
    report = json.loads(result.stdout)
    assert [(row["policy"], row["kv_dtype"]) for row in report["rows"]] == [
        ("full", "bf16"), ("snapkv", "bf16"), ("h2o", "bf16"),
        ("full", "int8"), ("snapkv", "int8"), ("h2o", "int8")]
    rows = report["fidelity"]["groups"][0]["rows"]
    for plain, quantised in zip(rows[:3], rows[3:]):
        assert quantised["physical_bytes"] * (2 * 64) == plain["physical_bytes"] * (64 + 8)
        assert quantised["kl_mean"]["value"] != plain["kl_mean"]["value"]


@pytest.mark.parametrize("arguments, fault", [
    ([], "nothing to measure on"),
    (["--text", TEXT], "--text: needle-1hop has no tokenizer"),
    (["--text-bytes", "/no/such/file"], "--text-bytes: cannot read /no/such/file"),
    (["--text-bytes", TEXT, "--policies", "fulll"], "unknown policy, wanted one of full"),
    (["--text-bytes", TEXT, "--policies", "full,full"], "--policies: full is named twice"),
    (["--text-bytes", TEXT, "--retention", "0.5,2"], "--retention: got 2"),
    (["--text-bytes", TEXT, "--retention", "0.5,0.50"], "--retention: 0.5 is named twice"),
    (["--text-bytes", TEXT, "--kv-dtype", "auto,bf16"], "--kv-dtype: bf16 is named twice"),
    (["--text-bytes", TEXT, "--retention", ""], "--retention: got \"\""),
    (["--text-bytes", TEXT, "--kv-dtype", "f64"], "wanted auto, f32, bf16 or int8"),
    (["--text-bytes", TEXT, "--kv-pool-width", "2"], "odd number"),
    (["--text-bytes", TEXT, "--policies", "fastgen", "--theta", "1"], "wanted a ratio in (0, 1)"),
    (["--text-bytes", TEXT, "--kv-options", '{"alpha": 0.5}'], "none of the policies full"),
    (["--text-bytes", TEXT, "--policies", "gemfilter", "--kv-options", '{"filter_layer": 6}'],
     "filter_layer"),
    (["--make-needles", "1hop", "--haystack", TEXT, "--policies", "gemfilter", "--kv-options",
      '{"filter_layer": 2147483647}'], "filter_layer"),
    (["--text-bytes", TEXT, "--doc-tokens", "100"], "--doc-tokens: got 100, wanted more than"),
    (["--text-bytes", TEXT, "--doc-tokens", "100000000"], "and at most 16777216"),
    (["--text-bytes", TEXT, "--html", "-"], "--html: got -, wanted a file"),
    (["--text-bytes", TEXT, "--doc-tokens", "512,600", "--docs", "1,2,3"], "--docs: got 3 numbers"),
    (["--text-bytes", TEXT, "--doc-tokens", "999999"], "wanted at least one document"),
    (["--make-needles", "1hop"], "wanted --haystack FILE"),
    (["--make-needles", "3hop", "--haystack", TEXT], "--make-needles: got 3hop"),
    (["--make-needles", "text", "--haystack", TEXT], "has no tokenizer"),
    (["--make-needles", "1hop", "--haystack", TEXT, "--needle-length", "63"], "at least 64"),
    (["--make-needles", "1hop", "--haystack", TEXT, "--protocols", "both"], "--protocols: got both"),
    (["--text-bytes", TEXT, "--json", "/no/such/folder/x"], "cannot write /no/such/folder/x"),
    (["--text-bytes", TEXT, "--continuation", "1"], "--continuation"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_nonsense_is_78_with_the_reason(arguments, fault):
    result = run(NEEDLE, *arguments)
    assert result.returncode == 78 and fault in result.stderr, result.stderr
    assert result.stdout == ""


def test_a_line_that_is_not_ids_is_named(tmp_path):
    (tmp_path / "d.jsonl").write_text("[1, 2]\n[1, 512]\n")
    result = run(NEEDLE, "--ids", tmp_path / "d.jsonl")
    assert result.returncode == 78
    assert "d.jsonl:2: entry 1: wanted a token id from 0 to 511" in result.stderr


def test_flags_come_from_the_environment_and_the_file_too(tmp_path):
    (tmp_path / "c.ini").write_text(f"[eval]\ntext-bytes = {TEXT}\ndoc-tokens = 300\n"
                                    "policies = full\ncontinuation = 20\n")
    result = run(NEEDLE, "--config", tmp_path / "c.ini", HEADROOM_DOCS="2")
    assert result.returncode == 0, result.stderr
    assert "2 documents of 300 tokens, 19 tokens scored each" in result.stdout


def test_an_interrupt_leaves_no_file(tmp_path):
    with subprocess.Popen([binary(), "eval", NEEDLE, "--text-bytes", TEXT, "--doc-tokens", "1000",
                           "--docs", "200", "--json", str(tmp_path / "r.json")],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stderr.readline()  # the first document is done
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in stderr and stdout == ""
    assert list(tmp_path.iterdir()) == []
