#!/usr/bin/env python3
"""Holds the needle rates of `headroom eval` against those of another implementation. Markdown.

usage: measure_needles.py --headroom BINARY [--data DIR] [--threads N]

The figures are an independent fp32 program's, on needle prompts of its own (512 tokens; 64 of one
hop, 48 of two). Headroom answers 1hop-512.jsonl and 2hop-512.jsonl of DIR/needle, 64 prompts each,
once with that program's settings (KV in f32, average pooling, no sinks but for streaming's four,
h2o's budget all heavy hitters but for the last 8 tokens) and once with its own defaults. Both are
rates of independent prompts: the difference has a 95 % interval after Newcombe (1998, method 10),
from the Wilson intervals (l, u) of the two rates p, q:
p - q - sqrt((p - l_p)^2 + (u_q - q)^2) to p - q + sqrt((u_p - p)^2 + (q - l_q)^2).
Exit status 1 when the interval of a snapkv or streaming row leaves 0 out.
"""
import argparse
import math
import os
import pathlib
import sys

import paired_bench

REPO = pathlib.Path(__file__).resolve().parent.parent
NORMAL_95 = 1.959963984540054
RETENTIONS = [0.5, 0.2, 0.1, 0.05]
# task -> prompts, policy -> protocol -> share of right answers at RETENTIONS.
FIGURES = {
    "1hop": (64, {
        "snapkv": {"aware": [.984, 1, 1, 1], "agnostic": [.5, .125, .078, .062]},
        "streaming": {"aware": [.531, .266, .094, .047], "agnostic": [.531, .266, .094, .047]},
        "h2o": {"aware": [.781, .016, 0, 0], "agnostic": [.781, .031, .016, .016]},
        "random": {"aware": [.109, .031, 0, 0], "agnostic": [.156, .047, .016, .016]},
    }),
    "2hop": (48, {
        "snapkv": {"aware": [.354, .062, 0], "agnostic": [.125, .021, 0]},
        "streaming": {"aware": [.083, 0, 0], "agnostic": [.083, 0, 0]},
        "h2o": {"aware": [.479, 0, 0], "agnostic": [.458, 0, 0]},
        "random": {"aware": [.062, 0, 0], "agnostic": [.062, 0, 0]},
    }),
}
HELD = ["snapkv", "streaming"]  # to their figures; h2o and random are shown
OWN_ROWS = ["snapkv", "fastkv", "streaming", "h2o", "random"]
WINDOW = 8
PROMPT_TOKENS = {"1hop": 509, "2hop": 507}  # 512 without the answer


def wilson(right, count):
    share, z = right / count, NORMAL_95
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(
        share * (1 - share) / count + z * z / (4 * count * count))
    return middle - half, middle + half


def newcombe(right_a, count_a, right_b, count_b):
    """(difference a - b, low, high) of two independent rates."""
    a, b = right_a / count_a, right_b / count_b
    low_a, high_a = wilson(right_a, count_a)
    low_b, high_b = wilson(right_b, count_b)
    return (a - b, a - b - math.hypot(a - low_a, high_b - b),
            a - b + math.hypot(high_a - a, b - low_b))


def rates(args, task, policies, retentions, *flags):
    """(policy, protocol, rho) -> right answers; and the number of prompts."""
    command = [args.headroom, "eval", f"builtin:needle-{task}", "--needles",
               args.data / f"needle/{task}-512.jsonl", "--needle-count", "64", "--policies",
               f"full,{policies}", "--retention", ",".join(map(str, retentions)),
               "--rank-candidates", "0", "--threads", args.threads, "--quiet", "--json", "-"]
    report = paired_bench.run_json([*command, *flags])
    found, count = {}, 0
    for needles in report["needles"]:
        count = len(needles["prompts"])
        for scores in needles["scores"]:
            row = report["rows"][scores["row"]]
            # Of fastkv's rows the one at its default tau, of the others' the one without.
            if (row["policy"] == "fastkv") == (row["tsp"] == 1):
                continue
            found[row["policy"], needles["protocol"], row["retention"]] = sum(
                prompt["right"] for prompt in scores["prompts"])
    return found, count


def rates_like_the_figures(args, task):
    like = ["--kv-dtype", "f32", "--kv-pool", "avg", "--kv-window", str(WINDOW)]
    found, count = rates(args, task, "snapkv,random", RETENTIONS, *like, "--kv-sink-tokens", "0")
    found.update(rates(args, task, "streaming", RETENTIONS, *like, "--kv-sink-tokens", "4")[0])
    for rho in RETENTIONS:
        # The share whose floor is WINDOW tokens of the budget.
        recent = (WINDOW + 0.5) / int(rho * PROMPT_TOKENS[task])
        found.update(rates(args, task, "h2o", [rho], *like, "--kv-sink-tokens", "0",
                           "--kv-options", f'{{"recent_share": {recent:.6f}}}')[0])
    return found, count


def figure_rows(task, found, count):
    """Cells `Headroom (figure) [interval]`, and how many of the rows held leave 0 out."""
    figure_count, figures = FIGURES[task]
    rows, missed = [], 0
    for policy, by_protocol in figures.items():
        for protocol, shares in by_protocol.items():
            row = [policy, protocol]
            for rho, share in zip(RETENTIONS, shares):
                right = found[policy, protocol, rho]
                # A figure is a rounded share of figure_count prompts.
                _, low, high = newcombe(right, count, round(share * figure_count), figure_count)
                inside = low <= 0 <= high
                missed += policy in HELD and not inside
                cell = f"{right / count:.3f} ({share:.3f}) [{low:+.2f}, {high:+.2f}]"
                row.append(cell if inside else f"**{cell}**")
            rows.append(row)
    return rows, missed


def own_rows(args, task):
    found, count = rates(args, task, ",".join(OWN_ROWS), RETENTIONS, "--kv-dtype", "bf16", "--tsp",
                         "1,0.2")
    rows = []
    for protocol in ("aware", "agnostic"):
        full = f"{found['full', protocol, 1] / count:.3f}"
        rows.append(["full", protocol, full] + ["-"] * len(RETENTIONS))
        rows += [[policy, protocol, "-"] +
                 [f"{found[policy, protocol, rho] / count:.3f}" for rho in RETENTIONS]
                 for policy in OWN_ROWS]
    return rows


def print_task(args, task):
    found, count = rates_like_the_figures(args, task)
    rows, missed = figure_rows(task, found, count)
    figure_count, figures = FIGURES[task]
    num_columns = len(figures["snapkv"]["aware"])
    print(f"### {task}-512: beside the figures\n\n{count} prompts, the figures (in brackets) of "
          f"{figure_count}; then the interval of the difference, bold where it leaves 0 out.\n")
    print(paired_bench.markdown_table(
        ["policy", "question"] + [f"rho {rho:g}" for rho in RETENTIONS[:num_columns]], rows))
    print(f"\n### {task}-512: Headroom's defaults\n")
    print(paired_bench.markdown_table(
        ["policy", "question", "all"] + [f"rho {rho:g}" for rho in RETENTIONS],
        own_rows(args, task)) + "\n")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", type=pathlib.Path, required=True, metavar="BINARY")
    shared = os.environ.get("HEADROOM_SHARED_DATA", REPO.parent / "shared/data")
    parser.add_argument("--data", type=pathlib.Path, default=shared)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    args.headroom = args.headroom.resolve()
    try:
        missed = sum(print_task(args, task) for task in FIGURES)
    except paired_bench.BenchError as error:
        sys.exit(str(error))
    print(f"{missed} cells of {' and '.join(HELD)} leave 0 out.", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
