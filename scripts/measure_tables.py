#!/usr/bin/env python3
"""Turns the output of the golden and fidelity tests into Markdown tables; used by measure.sh.

usage: measure_tables.py golden|fidelity < OUTPUT
"""
import re
import sys

import paired_bench

BACKENDS = {"ReferenceBackendFollowsTransformers": "ref", "CpuBackendDiffersOnlyNearTies": "cpu"}


def golden_table(lines):
    """Per prompt and backend: the largest logit error and where greedy tokens first differ."""
    backend = None
    errors = {}
    differences = {}
    for line in lines:
        if started := re.match(r"\[ RUN      \] \w+\.(\w+)", line):
            backend = BACKENDS.get(started.group(1))
        elif error := re.match(r"(.+): max logit error (\S+)", line):
            errors.setdefault(error.group(1), {})[backend] = error.group(2)
        elif first := re.match(r"(.+): first difference at step (\d+), golden gap (\S+)", line):
            differences[first.group(1), backend] = f"step {first.group(2)}, gap {first.group(3)}"
    rows = []
    for prompt, by_backend in errors.items():
        row = [prompt]
        for name in ("ref", "cpu"):
            row.append(by_backend.get(name, "not run"))
            row.append(differences.get((prompt, name), "none") if name in by_backend else "not run")
        rows.append(row)
    return paired_bench.markdown_table(
        ["prompt", "ref: logit error", "ref: first difference", "cpu: logit error",
         "cpu: first difference"], rows), len(rows)


def fidelity_table(lines):
    rows = []
    for line in lines:
        if found := re.match(r"(core \w, KV \w+), (\d+) chunks: mean KL (\S+), top-1 (\S+ %)", line):
            rows.append(list(found.groups()))
    return paired_bench.markdown_table(["", "chunks of 512", "mean KL", "top-1"], rows), len(rows)


def main():
    tables = {"golden": golden_table, "fidelity": fidelity_table}
    if len(sys.argv) != 2 or sys.argv[1] not in tables:
        sys.exit(__doc__)
    table, num_rows = tables[sys.argv[1]](sys.stdin.read().splitlines())
    if num_rows == 0:
        sys.exit("error: the test printed no results")
    print(table)


if __name__ == "__main__":
    main()
