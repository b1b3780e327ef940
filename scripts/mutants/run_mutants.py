#!/usr/bin/env python3
"""Runs the mutants of mutants.toml in a scratch copy; called by scripts/mutants.sh.

usage: run_mutants.py SOURCE BUILD [--only TEXT] [--jobs N]
"""
import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib

TEST_TIMEOUT_S = 300
TABLE = pathlib.Path(__file__).with_name("mutants.toml")


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str
    filter: str


class Copy:
    """The scratch copy, its build and the tests in it."""

    def __init__(self, source, build, jobs):
        self.source = source
        self.build = build
        self.jobs = jobs
        self.commands = {}  # test -> (command, working directory)

    def run(self, command, **options):
        return subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, **options)

    def configure(self):
        done = self.run(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Release", "-DHEADROOM_TESTS=ON"])
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\nerror: the copy does not configure")
        listed = self.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"])
        for test in json.loads(listed.stdout)["tests"]:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            # Not built yet, a test has no command; its binary is found by its name then.
            self.commands[test["name"]] = (test.get("command"),
                                           properties.get("WORKING_DIRECTORY", self.source))

    def build_targets(self, targets):
        """The compiler's output where it fails, else nothing."""
        done = self.run(["ninja", "-C", self.build, f"-j{self.jobs}", *targets])
        return None if done.returncode == 0 else done.stdout

    def binary(self, test):
        command, folder = self.commands[test]
        return command[0], folder

    def digest(self, test):
        return hashlib.sha256(pathlib.Path(self.binary(test)[0]).read_bytes()).hexdigest()

    def run_test(self, test, test_filter):
        """(exit status or None on a timeout, output)"""
        binary, folder = self.binary(test)
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("GTEST_")}
        try:
            done = self.run([binary, f"--gtest_filter={test_filter}"], cwd=folder,
                            env=environment, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout


def compiler_errors(output):
    """The lines that name an error; the notes around them may be thousands."""
    lines = output.splitlines()
    errors = [line for line in lines if "error" in line.lower() or line.startswith("FAILED")]
    return "\n".join(errors[:20] or lines[-20:])


def num_passed(output):
    found = re.search(r"\[  PASSED  \] (\d+) test", output)
    return int(found.group(1)) if found else 0


def failed_case(output):
    """The first case that failed; the one that ran last where the process died."""
    failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", output, re.MULTILINE)
    if failed:
        return failed.group(1)
    started = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    return f"{started[-1]} (aborted)" if started else "no case"


def mutate(path, mutant):
    # Whole lines: the line feeds around them belong to what is looked for.
    text = f"\n{path.read_text()}\n"
    old = f"\n{mutant.old}\n"
    found = text.count(old)
    if found != 1:
        raise ValueError(f"{mutant.file}: the line is there {found} times, wanted once: "
                         f"{mutant.old.strip()}")
    path.write_text(text.replace(old, f"\n{mutant.new}\n")[1:-1])


def check_mutant(copy, mutant, clean_digest):
    """(whether it was killed, by what or why not)"""
    path = copy.source / mutant.file
    original = path.read_text()
    try:
        mutate(path, mutant)
    except (ValueError, OSError) as error:
        return False, str(error)
    try:
        errors = copy.build_targets([mutant.test])
        if errors is not None:
            print(compiler_errors(errors), file=sys.stderr)
            return False, "does not compile"
        if copy.digest(mutant.test) == clean_digest:
            return False, f"{mutant.test} does not depend on the line"
        status, output = copy.run_test(mutant.test, mutant.filter)
    finally:
        path.write_text(original)
    if status is None:
        return False, f"{mutant.test}: no end within {TEST_TIMEOUT_S} s"
    if status == 0:
        return False, f"{mutant.test} --gtest_filter={mutant.filter} passes"
    return True, failed_case(output)


def check_clean(copy, mutants):
    """Builds and runs what is named; leaves when a test does not pass unmutated."""
    targets = sorted({mutant.test for mutant in mutants})
    for target in targets:
        if target not in copy.commands:
            sys.exit(f"error: ctest knows no test {target}")
    started = time.monotonic()
    errors = copy.build_targets(targets)
    if errors is not None:
        sys.exit(f"{compiler_errors(errors)}\nerror: the unmutated copy does not build")
    print(f"built {', '.join(targets)} in {time.monotonic() - started:.0f} s", flush=True)
    copy.configure()  # now every test has its command
    for test, test_filter in sorted({(mutant.test, mutant.filter) for mutant in mutants}):
        status, output = copy.run_test(test, test_filter)
        if status != 0 or num_passed(output) == 0:
            sys.exit(f"{output[-6000:]}\nerror: {test} --gtest_filter={test_filter} does not pass "
                     "unmutated")
    print("the named tests pass unmutated", flush=True)
    return {target: copy.digest(target) for target in targets}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    table = tomllib.loads(TABLE.read_text())["mutant"]
    mutants = [Mutant(**row) for row in table if args.only in row["name"]]
    if not mutants:
        sys.exit(f"error: no mutant's name contains '{args.only}'")
    copy = Copy(args.source, args.build, args.jobs)
    copy.configure()
    digests = check_clean(copy, mutants)
    num_killed = 0
    for mutant in mutants:
        started = time.monotonic()
        killed, by = check_mutant(copy, mutant, digests[mutant.test])
        num_killed += killed
        print(f"{'killed  ' if killed else 'SURVIVED'}  {mutant.name:<42} {by}  "
              f"({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{num_killed} of {len(mutants)} killed")
    return 0 if num_killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
