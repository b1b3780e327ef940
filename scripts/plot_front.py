#!/usr/bin/env python3
"""Draws a head map's front: answers against delta-NLL, one panel per retention, as SVG.

usage: plot_front.py MAP.json > FRONT.svg

Of `validation` in the map: lines are the dense shares of `adaptive` that were measured, with no local
quotas, full dots the question unseen, hollow ones seen; rings the shares that plans name; squares
uniform policies at the same retention, unseen.
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 210, 48, 34, 26
INK, FAINT, SEEN, UNSEEN = "#222222", "#d0d0d0", "#b35900", "#1f5fa8"


class Panel:
    """One retention, its axes and marks."""

    def __init__(self, left, top, rows, uniform, chosen):
        self.left, self.top = left, top
        self.rows, self.uniform, self.chosen = rows, uniform, chosen
        self.most = max([row["delta_nll"] for row in rows + uniform] + [0.01]) * 1.08
        self.out = []

    def at(self, row, protocol):
        x = self.left + max(0.0, row["delta_nll"]) / self.most * WIDTH
        return x, self.top + HEIGHT * (1 - row[protocol] / 1.05)

    def text(self, x, y, words, anchor="middle", color=INK):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">'
                        f"{escape(words)}</text>")

    def axes(self, title):
        self.text(self.left + WIDTH / 2, self.top - 10, title)
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = self.top + HEIGHT * (1 - share / 1.05)
            self.out.append(f'<line x1="{self.left}" x2="{self.left + WIDTH}" y1="{y:.1f}" '
                            f'y2="{y:.1f}" stroke="{FAINT}"/>')
            self.text(self.left - 6, y + 4, f"{100 * share:.0f} %", "end")
        for part in (0, 0.5, 1):
            self.text(self.left + part * WIDTH, self.top + HEIGHT + 16, f"{part * self.most:.3f}")

    def line(self, protocol, color, fill):
        rows = [row for row in self.rows if row[protocol] is not None]
        points = " ".join("{:.1f},{:.1f}".format(*self.at(row, protocol)) for row in rows)
        self.out.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        for row in rows:
            x, y = self.at(row, protocol)
            self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" stroke="{color}" '
                            f'fill="{fill}"><title>dense share {row["dense_share"]:g}</title></circle>')

    def marks(self):
        names = {}
        for prefer, share in self.chosen:
            names.setdefault(share, []).append(prefer)
        below = 0  # labels lie under each other: points of two plans may be close
        for row in self.rows:
            if row["dense_share"] in names:
                x, y = self.at(row, "unseen")
                self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" '
                                f'stroke="{INK}"/>')
                right = x > self.left + 0.6 * WIDTH
                words = f'{row["dense_share"]:g}: ' + ", ".join(names[row["dense_share"]])
                self.text(x - 10 if right else x + 10, y + 18 + 14 * below, words,
                          "end" if right else "start")
                below += 1
        for row in self.uniform:
            x, y = self.at(row, "unseen")
            self.out.append(f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" '
                            f'fill="{INK}"><title>{escape(row["policy"])}</title></rect>')
        if self.uniform:
            x, y = self.at(max(self.uniform, key=lambda row: row["delta_nll"]), "unseen")
            self.text(x, y - 8, "uniform policies")

    def draw(self, retention):
        self.axes(f"retention {retention:g}")
        self.line("seen", SEEN, "white")
        self.line("unseen", UNSEEN, UNSEEN)
        self.marks()
        return "\n".join(self.out)


def draw(head_map):
    """The SVG of a map; None where validation asked no needles."""
    validation = head_map["validation"]
    front = [row for row in validation["front"]
             if not row["local_share"] and row["unseen"] is not None]
    retentions = sorted({row["retention"] for row in front})
    if not retentions:
        return None
    panels = []
    for index, retention in enumerate(retentions):
        chosen = [(plan["prefer"], share) for plan in head_map["spend"]
                  for at, share in plan["points"] if at == retention]
        panels.append(Panel(
            LEFT + index % 2 * (WIDTH + LEFT + GAP), TOP + index // 2 * (HEIGHT + TOP + GAP),
            sorted((row for row in front if row["retention"] == retention),
                   key=lambda row: row["dense_share"]),
            [row for row in validation["rows"]
             if row["retention"] == retention and row["policy"] != "adaptive"],
            chosen).draw(retention))
    width = 2 * (WIDTH + LEFT + GAP)
    height = (len(retentions) + 1) // 2 * (HEIGHT + TOP + GAP) + 30
    legend = ("answers of what the full cache answers (blue: question unseen, orange: seen) "
              "against delta-NLL in nats a token")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="11">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(panels) +
            f'\n<text x="{width / 2:.0f}" y="{height - 10}" text-anchor="middle" fill="{INK}">'
            f"{legend}</text>\n</svg>\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        svg = draw(json.load(file))
    if svg is None:
        sys.exit(f"{sys.argv[1]}: the map has no front with needles; profile without --no-validate")
    sys.stdout.write(svg)


if __name__ == "__main__":
    main()
