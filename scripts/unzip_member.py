#!/usr/bin/env python3
"""Writes the one member of a zip file whose name ends in SUFFIX to OUT.

usage: unzip_member.py FILE.zip SUFFIX OUT
"""
import shutil
import sys
import zipfile


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    path, suffix, out = sys.argv[1:]
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(suffix)]
        if len(names) != 1:
            sys.exit(f"{path}: {len(names)} members end in {suffix}, wanted 1")
        with archive.open(names[0]) as source, open(out, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


if __name__ == "__main__":
    main()
