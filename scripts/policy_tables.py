#!/usr/bin/env python3
"""Turns a report of `headroom eval --json` into Markdown tables; used by measure_policies.sh.

usage: policy_tables.py REPORT.json
"""
import json
import sys

import paired_bench

NONE = "-"


def budget(row):
    parts = []
    if row["theta"] is not None:
        parts.append(f"theta {row['theta']:g}")
    elif row["retention"] != 1:
        parts.append(f"rho {row['retention']:g}")
    if row["tsp"] != 1:
        parts.append(f"tau {row['tsp']:g}")
    return ", ".join(parts) or NONE


def value(interval, form, scale=1):
    return NONE if interval is None else format(interval["value"] * scale, form)


def with_interval(interval, form, scale=1):
    if interval is None:
        return NONE
    low, high = (format(interval[end] * scale, form) for end in ("low", "high"))
    return f"{value(interval, form, scale)} [{low}, {high}]"


def names(report, summary):
    """What every table begins with: the row and its bytes against the reference's."""
    row = report["rows"][summary["row"]]
    return [row["policy"], budget(row), row["kv_dtype"], f"{100 * summary['physical_share']:.1f}"]


NAMES = ["policy", "budget", "KV", "bytes, % of reference"]


def fidelity_tables(report):
    fidelity = report["fidelity"]
    for group in fidelity["groups"]:
        sources = sorted({fidelity["documents"][d]["source"] for d in group["documents"]})
        length = "all lengths" if group["tokens"] is None else f"{group['tokens']:,} tokens"
        rows = [names(report, row) +
                [with_interval(row["delta_nll"], "+.4f"), value(row["kl_mean"], ".4f"),
                 value(row["top1"], ".1f", 100), value(row["key_delta_nll"], "+.3f"),
                 value(row["key_top1"], ".1f", 100)] for row in group["rows"]]
        yield (f"### Fidelity: {len(group['documents'])} documents of {length}",
               f"{', '.join(sources)}; the last {fidelity['continuation_tokens']} tokens fed, "
               f"{group['key_tokens']} key tokens, perplexity of the reference "
               f"{group['full_ppl']:.3f}.",
               NAMES + ["dNLL [95 %]", "KL", "top-1 %", "key dNLL", "key top-1 %"], rows)


def needle_tables(report):
    for needles in report["needles"]:
        is_exact = needles["kind"] == "exact"
        where = ("in the compressed prompt" if needles["protocol"] == "aware"
                 else "fed behind the compressed context")
        rows = [names(report, row) +
                [with_interval(row["right"], ".1f", 100),
                 with_interval(row["difference"], "+.1f", 100), f"{row['holm_p']:.3f}"] +
                ([value(row["right_after_first"], ".1f", 100)] if is_exact else []) +
                [value(row["rank_accuracy"], ".1f", 100), value(row["reciprocal_rank"], ".3f")]
                for row in needles["rows"]]
        yield (f"### Needles: {needles['task']}, {needles['protocol']}",
               f"{len(needles['prompts'])} prompts, question {where}.",
               NAMES + ["right % [95 %]", "points [95 %]", "Holm p"] +
               (["after 1st %"] if is_exact else []) + ["rank 1 %", "MRR"], rows)


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    settings = report["settings"]
    tables = list(fidelity_tables(report)) if report["fidelity"] else []
    for title, text, header, rows in tables + list(needle_tables(report)):
        print(f"{title}\n\n{settings['model']} ({settings['backend']}), reference "
              f"{report['rows'][0]['label']}. {text}\n\n"
              f"{paired_bench.markdown_table(header, rows)}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
