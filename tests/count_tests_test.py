#!/usr/bin/env python3
"""Tests of scripts/count_tests.py on made-up results."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "scripts/count_tests.py"

GTEST = """<testsuites><testsuite name="A">
<testcase name="P" status="run" result="completed" classname="A"/>
<testcase name="F" status="run" result="completed" classname="A"><failure message="a.cc:3&#10;why"/>
</testcase>
<testcase name="S" status="run" result="skipped" classname="A">
<skipped message="a.cc:5&#10;no data"/></testcase>
<testcase name="H" status="run" result="skipped" classname="A">
<skipped message="a.cc:6&#10;hardware: no AVX-512"/></testcase>
<testcase name="D" status="notrun" result="suppressed" classname="A"/>
</testsuite></testsuites>"""
GTEST_PASSED = '<testsuites><testcase name="P" status="run" classname="A"/></testsuites>'


def ctest(*cases):
    rows = (f'<testcase name="{name}" status="{status}">{inner}</testcase>'
            for name, status, inner in cases)
    return f"<testsuite>{''.join(rows)}</testsuite>"


class CountTestsTest(unittest.TestCase):
    def count(self, files, *flags):
        """(exit status, last line) for the results {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, SCRIPT, *flags, folder],
                                 capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines()[-1]

    def test_gtest_cases_are_counted_one_by_one(self):
        files = {"a/ctest.xml": ctest(("t", "fail", "<failure/>")), "a/gtest/t.xml": GTEST}
        self.assertEqual((1, "1 passed, 1 failed, 2 skipped"), self.count(files))

    def test_strict_skips_accept_only_hardware(self):
        files = {"a/ctest.xml": ctest(("t", "fail", "<failure/>")), "a/gtest/t.xml": GTEST}
        self.assertEqual((1, "1 passed, 2 failed, 1 skipped"),
                         self.count(files, "--strict-skips"))

    def test_a_crash_without_results_is_one_failure(self):
        files = {"a/ctest.xml": ctest(("t", "fail", "<failure/>"), ("u", "run", ""))}
        self.assertEqual((1, "1 passed, 1 failed, 0 skipped"), self.count(files))

    def test_a_failure_outside_the_cases_counts(self):
        files = {"a/ctest.xml": ctest(("t", "fail", "<failure/>")), "a/gtest/t.xml": GTEST_PASSED}
        self.assertEqual((1, "1 passed, 1 failed, 0 skipped"), self.count(files))

    def test_a_binary_that_was_not_built_is_a_failure(self):
        files = {"a/ctest.xml": ctest(("t", "notrun", "<skipped/>"))}
        self.assertEqual((1, "0 passed, 1 failed, 0 skipped"), self.count(files))

    def test_stages_pytest_and_plain_cases_add_up(self):
        files = {
            "a/ctest.xml": ctest(("layering", "run", "")),
            "b/pytest.xml": '<testsuites><testcase name="x" classname="m"/>'
                            '<testcase name="y" classname="m"><skipped message="slow"/></testcase>'
                            "</testsuites>",
            "c/cases.txt": "passed fuzz_gguf: \n",
        }
        self.assertEqual((0, "3 passed, 0 failed, 1 skipped"), self.count(files))

    def test_no_case_at_all_is_a_failure(self):
        self.assertEqual((1, "0 passed, 0 failed, 0 skipped"), self.count({"a/cases.txt": ""}))


if __name__ == "__main__":
    unittest.main()
