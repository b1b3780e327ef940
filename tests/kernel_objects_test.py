"""The per-ISA kernel objects share nothing with other units through the linker.

A weak symbol (an inline function or template with linkage) compiled for AVX-512 could replace its
baseline twin and crash machines without AVX-512. Usage: kernel_objects_test.py NM OBJECT...
"""
import subprocess
import sys


def main() -> int:
    nm, objects = sys.argv[1], [path for arg in sys.argv[2:] for path in arg.split(";")]
    if len(objects) < 6:
        print(f"got {len(objects)} objects, want at least linear and attention of three ISAs")
        return 1
    num_shared = 0
    for path in objects:
        listing = subprocess.run([nm, "--defined-only", "-C", path], check=True,
                                 capture_output=True, text=True).stdout
        for line in listing.splitlines():
            kind = line.split(maxsplit=2)[1]
            if kind in "WVuBDC":
                print(f"{path}: {line} is shared or writable, want static functions and constants")
                num_shared += 1
    return 1 if num_shared else 0


if __name__ == "__main__":
    sys.exit(main())
