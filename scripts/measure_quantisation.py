#!/usr/bin/env python3
"""Does quantising the weights hurt more under a compressed KV cache? Prints Markdown.

usage: measure_quantisation.py --headroom BINARY --smollm2 Q4_1.gguf --needle FOLDER
                               --text FILE [--text FILE] [--docs 12] [--threads N] [--work DIR]

Weights in BF16, Q8_0 and Q4_1, KV in bf16 and int8, under fastkv (tau 0.2, rho 0.2) and adakv
(rho 0.2), on --docs documents of 1,000 tokens of each text, the last 128 fed. The needle model of
FOLDER reads the texts' bytes, and once more the same with records hidden in them that the fed part
asks for. Per document the interaction dNLL(both) - dNLL(weights) - dNLL(KV): what the two cost
together beyond what each costs alone, against BF16 weights with the whole cache in bf16. 95 %
intervals of a paired bootstrap over documents. `ok`: the interval holds 0 or lies within 0.02 of
it. Reports and models stay in DIR; reports found there are used again. Exit status 1 when a row is
not ok.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import make_needle_prompts as needles
import paired_bench

REPO = pathlib.Path(__file__).resolve().parent.parent
RESAMPLES = 10_000
MARGIN = 0.02
DOCUMENT_TOKENS = 1000
FED_TOKENS = 128
# Case -> model, weight types beside BF16. SmolLM2 is at hand in Q4_1 alone (its embedding in Q8_0),
# and BF16 holds what that stands for: Q4_1 here loses in the embedding only.
CASES = {
    "needle-1hop, text": ("needle-1hop", ["q8_0", "q4_1"]),
    "needle-1hop, records": ("needle-1hop", ["q8_0", "q4_1"]),
    "SmolLM2-135M": ("SmolLM2-135M", ["q8_0", "q4_1"]),
}
TSP = {"fastkv": "0.2", "adakv": "1"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", type=pathlib.Path, required=True, metavar="BINARY")
    parser.add_argument("--smollm2", type=pathlib.Path, required=True)
    parser.add_argument("--needle", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--text", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--docs", type=int, default=12, help="documents of each text")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/quantisation"))
    return parser.parse_args()


def run_script(name, *arguments):
    subprocess.run([sys.executable, REPO / "scripts" / name, *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def make_files(args):
    """(model, weight type) -> file, BF16 first."""
    needle_f32 = args.work / "needle-1hop.f32.gguf"
    run_script("hf_to_gguf.py", args.needle, needle_f32)
    sources = {"needle-1hop": needle_f32, "SmolLM2-135M": args.smollm2}
    files = {}
    for model, kinds in CASES.values():
        for kind in ["bf16", *kinds]:
            target = args.work / f"{model}.{kind}.gguf"
            if not target.exists():
                run_script("requantize.py", sources[model], target, kind)
            files[model, kind] = target
    return files


def write_record_documents(text_file, count, path):
    """Documents whose fed part asks for the records hidden before: text, [QRY key v v v], text."""
    rng = random.Random(1)
    text = needles.read_text(text_file)
    # make_prompt's length counts a question and an answer, which stand in the fed part here.
    prefix_tokens = DOCUMENT_TOKENS - FED_TOKENS + 5
    lines = []
    for _ in range(count):
        ids = needles.make_prompt(rng, text, "1hop", prefix_tokens)["context"]
        records = [ids[at:at + 4] for at, token in enumerate(ids)
                   if needles.FIRST_KEY <= token < needles.FIRST_KEY + needles.NUM_KEYS]
        while len(ids) < DOCUMENT_TOKENS:
            start = rng.randrange(len(text) - 11)
            ids += text[start:start + 11] + [needles.QUERY] + rng.choice(records)
        lines.append(json.dumps(ids[:DOCUMENT_TOKENS]))
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def document_flags(args, case):
    if case == "needle-1hop, records":
        files = [args.work / f"records-{index}.jsonl" for index in range(len(args.text))]
        for text, path in zip(args.text, files):
            write_record_documents(text, args.docs, path)
        return [part for path in files for part in ("--ids", path)]
    # The needle models have no tokenizer: their ids are bytes.
    flag = "--text-bytes" if case == "needle-1hop, text" else "--text"
    return [part for text in args.text for part in (flag, text)]


def run_eval(args, case, kind, file, policy):
    report = args.work / f"{case.replace(', ', '-')}.{kind}.{policy}.json"
    if not report.exists():
        command = [args.headroom, "eval", file, "--policies", policy, "--retention", "0.2", "--tsp",
                   TSP[policy], "--kv-dtype", "bf16,int8", "--doc-tokens", DOCUMENT_TOKENS,
                   "--docs", args.docs, "--continuation", FED_TOKENS, "--threads", args.threads,
                   "--json", report, "--quiet", *document_flags(args, case)]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text(encoding="utf-8"))


def nll_by_row(report):
    """(policy, KV type) -> NLL of each document."""
    fidelity = report["fidelity"]
    full = [document["full_nll"] for document in fidelity["documents"]]
    rows = {}
    for scores in fidelity["scores"]:
        row = report["rows"][scores["row"]]
        rows[row["policy"], row["kv_dtype"]] = [
            base + document["delta_nll"] for base, document in zip(full, scores["documents"])]
    return rows


def mean(values):
    return sum(values) / len(values)


def interval(values):
    draws = random.Random(1)
    means = sorted(mean(draws.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def less(a, b):
    return [x - y for x, y in zip(a, b)]


def table_row(nll, case, kind, policy, dtype):
    base = nll[case, "bf16"]["full", "bf16"]
    weights = less(nll[case, kind]["full", "bf16"], base)
    kv = less(nll[case, "bf16"][policy, dtype], base)
    both = less(nll[case, kind][policy, dtype], base)
    rest = less(less(both, weights), kv)
    low, high = interval(rest)
    ok = low <= 0 <= high or max(abs(low), abs(high)) <= MARGIN
    return [case, kind.upper(), policy, dtype, f"{mean(weights):+.4f}", f"{mean(kv):+.4f}",
            f"{mean(both):+.4f}", f"{mean(rest):+.4f} [{low:+.4f}, {high:+.4f}]",
            "ok" if ok else "no"]


def main():
    args = parse_arguments()
    args.headroom = args.headroom.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    files = make_files(args)
    nll = {}
    for case, (model, kinds) in CASES.items():
        for kind in ["bf16", *kinds]:
            print(f"{case} {kind}", file=sys.stderr, flush=True)
            nll[case, kind] = {}
            for policy in TSP:
                report = run_eval(args, case, kind, files[model, kind], policy)
                nll[case, kind].update(nll_by_row(report))
    rows = [table_row(nll, case, kind, policy, dtype) for case, (_, kinds) in CASES.items()
            for kind in kinds for policy in TSP for dtype in ("bf16", "int8")]
    documents = len(next(iter(nll.values()))["full", "bf16"])
    print(f"{documents} documents of 1,000 tokens.\n")
    print(paired_bench.markdown_table(
        ["case", "weights", "policy", "KV", "dNLL weights", "dNLL KV", "dNLL both",
         "interaction [95 %]", ""], rows))
    sys.exit(0 if all(row[-1] == "ok" for row in rows) else 1)


if __name__ == "__main__":
    main()
