#!/usr/bin/env python3
"""Prefill speed, decode speed and KV pages of fastkv with a budget against the full cache.

usage: compare_budget.py --headroom BINARY MODEL [--depth 7500] [--pairs 4]

Both are Headroom, on one thread and, unless --cpu is -1, on the same CPU, in the order A B B A; the
median of the ratios within a pair counts. Prints Markdown.
"""
import argparse
import pathlib
import sys

import paired_bench


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", type=pathlib.Path, required=True, metavar="BINARY")
    parser.add_argument("model", metavar="MODEL", help="GGUF file, directory or builtin:NAME")
    parser.add_argument("--depth", type=int, default=7500, help="prompt tokens (default: 7500)")
    parser.add_argument("--decode", type=int, default=64, help="generated tokens (default: 64)")
    parser.add_argument("--tsp-ratio", default="0.2")
    parser.add_argument("--kv-retention", default="0.1")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of runs (default: 4)")
    parser.add_argument("--repeat", type=int, default=1,
                        help="repetitions within a run, after a warm-up (default: 1)")
    parser.add_argument("--cpu", type=int, default=0,
                        help="the CPU that both run on; -1: wherever (default: 0)")
    args = parser.parse_args()
    if not args.headroom.exists():
        parser.error(f"{args.headroom}: no such file")
    if args.pairs < 1:
        parser.error(f"--pairs: got {args.pairs}, wanted 1 or more")
    return args


def main():
    args = parse_arguments()
    cpu = None if args.cpu < 0 else args.cpu
    full = [args.headroom, "bench", "engine", args.model, "--prefill", args.depth, "--depth",
            args.depth, "--decode", args.decode, "--batch", 1, "--threads", 1, "--repeat",
            args.repeat, "--json", "-"]
    budget = [*full, "--kv-policy", "fastkv", "--tsp-ratio", args.tsp_ratio, "--kv-retention",
              args.kv_retention, "--kv-min-prompt", 0, "--tsp-min-prompt", 0]
    pages = {}

    def run(name, command):
        report = paired_bench.run_json(command, cpu)
        rates, held = paired_bench.headroom_rates(report)
        pages[name] = held["prefill"]
        return rates

    load_before = paired_bench.load_average()
    pairs = paired_bench.run_pairs(args.pairs, lambda: run("fastkv", budget),
                                   lambda: run("full", full))
    rows = []
    for key, what in (("prefill", f"prefill {args.depth}, tokens/s"),
                      ("decode", f"decode {args.decode} behind {args.depth}, tokens/s")):
        a, b, ratio, low, high = paired_bench.summary(pairs, key)
        rows.append([what, f"{a:.1f}", f"{b:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"])
    rows.append(["KV pages after prefill", str(pages["fastkv"]), str(pages["full"]),
                 f"{pages['fastkv'] / pages['full']:.3f}", "exact"])
    name = f"fastkv (tau {args.tsp_ratio}, rho {args.kv_retention})"
    print(f"{pathlib.Path(args.model).name}, one thread, {args.pairs} pair(s) in the order A B B A, "
          f"medians, on {paired_bench.cpu_name()}; load average {load_before} before, "
          f"{paired_bench.load_average()} after.\n")
    print(paired_bench.markdown_table(["", name, "full", "ratio", "ratios of the pairs"], rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except paired_bench.BenchError as error:
        sys.exit(f"error: {error}")
