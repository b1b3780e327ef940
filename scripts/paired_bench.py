"""What the comparisons of this folder share: runs in the order A B B A, medians and ratios.

Two programs that run one after the other on a shared machine see different machines. Runs are
therefore paired: A B, B A, A B, ... A ratio is taken within a pair, and the median of the ratios
counts.
"""
import json
import os
import statistics
import subprocess
import sys


class BenchError(Exception):
    """A measured program failed or printed something else than expected."""


def run_json(command, cpu=None):
    """Runs a program, on one CPU where `cpu` is a number, and reads its standard output as JSON."""
    pin = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, preexec_fn=pin, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                         f"{done.stderr[-2000:]}")
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise BenchError(f"{command[0]}: no JSON on standard output: {error}") from error


def run_pairs(num_pairs, run_a, run_b):
    """[(what run_a gave, what run_b gave)]; the order within a pair alternates."""
    pairs = []
    for index in range(num_pairs):
        if index % 2 == 0:
            a = run_a()
            b = run_b()
        else:
            b = run_b()
            a = run_a()
        pairs.append((a, b))
        print(f"pair {index + 1} of {num_pairs} done", file=sys.stderr, flush=True)
    return pairs


def headroom_rates(report):
    """{"prefill": tokens/s, "decode": tokens/s, ...} and KV pages of `headroom bench engine`."""
    rates = {row["test"]: row["tokens_per_s_median"] for row in report["results"]}
    pages = {row["test"]: row["kv_pages"] for row in report["results"]}
    return rates, pages


def summary(pairs, key):
    """(median of a, median of b, median of a / b, smallest and largest ratio) of pairs of rates."""
    a = [pair[0][key] for pair in pairs]
    b = [pair[1][key] for pair in pairs]
    ratios = [x / y for x, y in zip(a, b)]
    return (statistics.median(a), statistics.median(b), statistics.median(ratios), min(ratios),
            max(ratios))


def markdown_table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown CPU"


def load_average():
    return f"{os.getloadavg()[0]:.1f}"
