#!/usr/bin/env python3
"""Writes models/tokenizer/unicode_table.inc: the character classes that pre-tokenizers ask for.

Run it with a Python whose unicodedata is recent; the version is named in the output. Each entry is
(first code point << 3) | class and holds up to the next entry; the classes are those of
models/tokenizer/unicode.h.
"""

import pathlib
import sys
import unicodedata

# White_Space of the Unicode standard: what \s means to the regular expressions of tokenizers.
WHITE_SPACE = (
    set(range(0x09, 0x0E))
    | set(range(0x2000, 0x200B))
    | {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
)
OTHER, LETTER, NUMBER, MARK, PUNCTUATION, SYMBOL, SPACE = range(7)
MAJOR = {"L": LETTER, "N": NUMBER, "M": MARK, "P": PUNCTUATION, "S": SYMBOL}


def char_class(code_point):
    if code_point in WHITE_SPACE:
        return SPACE
    return MAJOR.get(unicodedata.category(chr(code_point))[0], OTHER)


def main():
    entries = []
    previous = None
    for code_point in range(0x110000):
        current = char_class(code_point)
        if current != previous:
            entries.append((code_point << 3) | current)
            previous = current
    lines = [
        f"// Made by scripts/make_unicode_tables.py from Unicode {unicodedata.unidata_version}.",
        "// (first code point << 3) | class; an entry holds up to the next one.",
    ]
    for start in range(0, len(entries), 9):
        lines.append(" ".join(f"0x{entry:06x}," for entry in entries[start : start + 9]))
    out = pathlib.Path(__file__).resolve().parent.parent / "models/tokenizer/unicode_table.inc"
    out.write_text("\n".join(lines) + "\n")
    print(f"{out.name}: {len(entries)} entries, Unicode {unicodedata.unidata_version}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
