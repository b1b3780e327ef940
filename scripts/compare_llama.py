#!/usr/bin/env python3
"""Prefill and decode speed of Headroom against llama.cpp's llama-bench on the same GGUF file.

usage: compare_llama.py --headroom BINARY --llama-bench BINARY MODEL.gguf [--pairs 6]

Both run on one thread and, unless --cpu is -1, on the same CPU, in the order A B B A; the median of
the ratios within a pair counts. Prints Markdown. A busy machine spoils the numbers: the load
average is printed beside them.
"""
import argparse
import pathlib
import statistics
import sys

import paired_bench


def llama_rates(runs, prompt_tokens, decode_tokens):
    """Tokens per second of llama-bench's two tests: the median of its repetitions."""
    rates = {}
    for run in runs:
        if run["n_prompt"] == prompt_tokens and run["n_gen"] == 0:
            rates["prefill"] = statistics.median(run["samples_ts"])
        elif run["n_gen"] == decode_tokens and run["n_prompt"] == 0:
            rates["decode"] = statistics.median(run["samples_ts"])
    if len(rates) != 2:
        raise paired_bench.BenchError(
            f"llama-bench: wanted a test of {prompt_tokens} prompt tokens and one of "
            f"{decode_tokens} generated tokens, got {[(r['n_prompt'], r['n_gen']) for r in runs]}")
    return rates


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", type=pathlib.Path, required=True, metavar="BINARY")
    parser.add_argument("--llama-bench", type=pathlib.Path, required=True, metavar="BINARY")
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL.gguf")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of runs (default: 6)")
    parser.add_argument("--prefill", type=int, default=512, help="prompt tokens (default: 512)")
    parser.add_argument("--decode", type=int, default=64, help="generated tokens (default: 64)")
    parser.add_argument("--repeat", type=int, default=3,
                        help="repetitions within a run, after a warm-up (default: 3)")
    parser.add_argument("--cpu", type=int, default=0,
                        help="the CPU that both run on; -1: wherever (default: 0)")
    args = parser.parse_args()
    for path in (args.headroom, args.llama_bench, args.model):
        if not path.exists():
            parser.error(f"{path}: no such file")
    if args.pairs < 1:
        parser.error(f"--pairs: got {args.pairs}, wanted 1 or more")
    return args


def main():
    args = parse_arguments()
    cpu = None if args.cpu < 0 else args.cpu
    ours = [args.headroom, "bench", "engine", args.model, "--prefill", args.prefill, "--decode",
            args.decode, "--depth", 0, "--batch", 1, "--threads", 1, "--repeat", args.repeat,
            "--json", "-"]
    theirs = [args.llama_bench, "-m", args.model, "-p", args.prefill, "-n", args.decode, "-t", 1,
              "-r", args.repeat, "-o", "json"]
    described = {}

    def run_ours():
        report = paired_bench.run_json(ours, cpu)
        described["headroom"] = f"{report['backend']} ({report['isa']})"
        return paired_bench.headroom_rates(report)[0]

    def run_theirs():
        runs = paired_bench.run_json(theirs, cpu)
        described["llama"] = f"build {runs[0]['build_commit']} ({runs[0]['build_number']})"
        return llama_rates(runs, args.prefill, args.decode)

    load_before = paired_bench.load_average()
    pairs = paired_bench.run_pairs(args.pairs, run_ours, run_theirs)
    rows = []
    for key, what in (("prefill", f"prefill {args.prefill}"), ("decode", f"decode {args.decode}")):
        a, b, ratio, low, high = paired_bench.summary(pairs, key)
        rows.append([what, f"{a:.1f}", f"{b:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"])
    print(f"{args.model.name}, one thread, {args.pairs} pair(s) in the order A B B A, medians, on "
          f"{paired_bench.cpu_name()}; Headroom {described['headroom']}, llama.cpp "
          f"{described['llama']}; load average {load_before} before, "
          f"{paired_bench.load_average()} after.\n")
    print(paired_bench.markdown_table(
        ["test", "Headroom tokens/s", "llama.cpp tokens/s", "ratio", "ratios of the pairs"], rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except paired_bench.BenchError as error:
        sys.exit(f"error: {error}")
