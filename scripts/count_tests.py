#!/usr/bin/env python3
"""Adds up the test cases of a run and prints `N passed, N failed, N skipped` as its last line.

usage: count_tests.py [--strict-skips] RESULTS_FOLDER

RESULTS_FOLDER holds one folder per stage of scripts/test.sh, each with any of
  ctest.xml   ctest --output-junit: what ran, crashes and time-outs
  gtest/*.xml one file per GoogleTest binary, named after the ctest test
  pytest.xml  pytest --junitxml
  cases.txt   lines "passed NAME", "failed NAME: why", "skipped NAME: why"
A ctest test without a gtest file counts as one case. Exit status 1 when a case failed or none ran.
--strict-skips makes a skip a failure, unless its message starts with "hardware:".
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
HARDWARE = "hardware:"


def gtest_cases(path):
    """(outcome, name, message) of each case of one GoogleTest or pytest file."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name')}"
        failures = case.findall("failure") + case.findall("error")
        skips = case.findall("skipped")
        if failures:
            yield FAILED, name, failures[0].get("message", "")
        elif skips or case.get("result") == "skipped":
            yield SKIPPED, name, skip_message(skips)
        elif case.get("status", "run") == "run" or case.get("result") == "completed":
            yield PASSED, name, ""


def skip_message(skips):
    """The first line of the message; GoogleTest puts a line "file:line" before it."""
    text = (skips[0].get("message") or skips[0].text or "") if skips else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and re.search(r"\.(cc|cu|h):\d+$", lines[0]):
        del lines[0]
    return lines[0].removeprefix("Skipped: ") if lines else ""


def ctest_cases(stage):
    for case in ElementTree.parse(stage / "ctest.xml").iter("testcase"):
        name = case.get("name")
        ran_well = case.get("status") == "run" and case.find("failure") is None
        inner = list(read_gtest(stage / "gtest" / f"{name}.xml"))
        yield from inner
        if case.find("skipped") is not None and not inner:
            yield FAILED, name, "ctest could not run it"
        elif not inner:
            yield PASSED if ran_well else FAILED, name, "" if ran_well else "see its output above"
        elif not ran_well and all(outcome != FAILED for outcome, _, _ in inner):
            yield FAILED, name, "the binary failed outside its cases"


def read_gtest(path):
    """Cases of a file, none where it is absent or was cut off by a crash."""
    try:
        yield from gtest_cases(path)
    except (FileNotFoundError, ElementTree.ParseError):
        return


def text_cases(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        outcome, _, rest = line.partition(" ")
        name, _, message = rest.partition(": ")
        yield outcome, name, message


def stage_cases(stage):
    if (stage / "ctest.xml").exists():
        yield from ctest_cases(stage)
    if (stage / "pytest.xml").exists():
        yield from gtest_cases(stage / "pytest.xml")
    if (stage / "cases.txt").exists():
        yield from text_cases(stage / "cases.txt")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strict-skips", action="store_true")
    parser.add_argument("results", type=pathlib.Path)
    args = parser.parse_args()
    counts = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for stage in sorted(path for path in args.results.iterdir() if path.is_dir()):
        for outcome, name, message in stage_cases(stage):
            if outcome == SKIPPED and args.strict_skips and not message.startswith(HARDWARE):
                outcome, message = FAILED, f"skipped ({message}), which CI does not accept"
            counts[outcome] += 1
            if outcome != PASSED:
                print(f"{outcome}: {stage.name}: {name}: {message}")
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped")
    sys.exit(1 if counts[FAILED] or not counts[PASSED] else 0)


if __name__ == "__main__":
    main()
