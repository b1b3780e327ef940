#!/usr/bin/env python3
"""Checks that includes follow the folder order and that third-party code stays confined.

usage: layering_test.py [unittest arguments]

The rules are those of docs/architecture.md: a folder includes only itself and folders to its left;
each third-party library has the places named in CONFINED; nothing uses std::regex. A self-test
runs the same checker on a made-up tree, so that a rule which cannot fail is found.
"""
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = ["base", "kernels", "models", "engine", "profiler", "server"]
ALLOWED = {folder: set(ORDER[: i + 1]) for i, folder in enumerate(ORDER)}
ALLOWED["server"].add("proto")
ALLOWED["proto"] = {"proto"}
ALLOWED["tests"] = set(ORDER) | {"proto", "tests"}
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}

# (library, pattern of an included path, patterns of the files that may include it)
CONFINED = [
    ("Boost", r"boost/", [r"server/http/"]),
    ("gRPC", r"(grpc|grpcpp)/", [r"server/grpc/"]),
    ("JSON", r"nlohmann/", [r".*_json\.(cc|h)$", r"server/http/openai_[^/]*$"]),
    ("PCRE2", r"pcre2", [r"models/tokenizer/"]),
    ("CUDA", r"(cuda|cublas|cudnn|nccl|nv)[A-Za-z0-9_]*\.h(pp)?$|cuda/|cub/|thrust/",
     [r"kernels/cuda/"]),
    ("intrinsics", r"([a-z0-9]*intrin|arm_neon|arm_sve|cpuid)\.h$", [r"kernels/cpu/"]),
    ("spdlog", r"spdlog/", [r"base/log\.(cc|h)$"]),
    ("CLI11", r"CLI/", [r"server/cli/"]),
]

# Inside server: (files, folders that they do not include). The service knows no protocol.
SERVER_INNER = [
    (r"server/http/", r"server/(grpc|cli)/"),
    (r"server/grpc/", r"server/(http|cli)/"),
    (r"server/generation_service[^/]*$", r"server/(http|grpc|cli)/"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STD_REGEX = re.compile(r"std::(w?regex|w?smatch|w?cmatch)\b|<regex>")


def source_files(root):
    for folder in sorted(ALLOWED):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root).as_posix(), path


def check_include(name, quote, included):
    """Problems of one #include in the file `name`."""
    folder = name.split("/")[0]
    first = included.split("/")[0]
    if first in ALLOWED and "/" in included:
        if first not in ALLOWED[folder]:
            yield f"{folder}/ must not include {first}/: {included}"
        for files, forbidden in SERVER_INNER:
            if re.match(files, name) and re.match(forbidden, included):
                yield f"{name} must not include {included}"
    elif quote == '"' and first != "absl":
        yield f"include is not written from the root: {included}"
    if folder == "tests":
        return
    for library, pattern, places in CONFINED:
        if re.match(pattern, included) and not any(re.match(p, name) for p in places):
            yield f"{library} is confined to {', '.join(places)}: {included}"


def problems(root):
    """All broken rules of the tree at `root`, as "file:line: what"."""
    found = []
    for name, path in source_files(root):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if STD_REGEX.search(line.split("//")[0]):
                found.append(f"{name}:{number}: std::regex is not used in this project")
            match = INCLUDE.match(line)
            if match:
                for what in check_include(name, match[1], match[2]):
                    found.append(f"{name}:{number}: {what}")
    return found


class LayeringTest(unittest.TestCase):
    def test_this_tree_follows_the_rules(self):
        self.assertGreater(sum(1 for _ in source_files(ROOT)), 10, "the tree has source files")
        self.assertEqual([], problems(ROOT))


class CheckerTest(unittest.TestCase):
    """The checker itself, on a made-up tree of one file."""

    def problems_of(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            return problems(pathlib.Path(folder))

    def test_legal_includes_pass(self):
        for name, include in [
            ("engine/a.cc", '"models/b.h"'),
            ("engine/a.cc", '"engine/kv/b.h"'),
            ("engine/a.cc", "<vector>"),
            ("base/a.h", '"absl/status/status.h"'),
            ("base/log.cc", "<spdlog/spdlog.h>"),
            ("server/a.cc", '"proto/headroom/v1/inference.pb.h"'),
            ("server/http/a.cc", "<boost/asio.hpp>"),
            ("server/http/openai_chat.cc", "<nlohmann/json.hpp>"),
            ("models/config_json.cc", "<nlohmann/json.hpp>"),
            ("kernels/cpu/a.cc", "<immintrin.h>"),
            ("tests/unit/a_test.cc", "<nlohmann/json.hpp>"),
            ("tests/unit/a_test.cc", '"server/http/a.h"'),
        ]:
            with self.subTest(name=name, include=include):
                self.assertEqual([], self.problems_of(name, f"#include {include}\n"))

    def test_upward_includes_fail(self):
        for name, include in [
            ("base/a.h", '"kernels/b.h"'),
            ("kernels/ref/a.cc", '"models/b.h"'),
            ("models/a.cc", '"engine/b.h"'),
            ("engine/kv/a.cc", '"server/b.h"'),
            ("engine/a.cc", '"profiler/b.h"'),
            ("profiler/a.cc", '"server/b.h"'),
            ("models/a.cc", '"proto/b.h"'),
            ("models/a.cc", '"tests/support/b.h"'),
            ("models/a.cc", "<engine/b.h>"),
        ]:
            with self.subTest(name=name, include=include):
                found = self.problems_of(name, f"// one line\n  #  include {include}\n")
                self.assertEqual(1, len(found), found)
                self.assertIn(f"{name}:2: ", found[0])
                self.assertIn("must not include", found[0])

    def test_third_party_code_outside_its_place_fails(self):
        for name, include, library in [
            ("server/a.cc", "<boost/asio.hpp>", "Boost"),
            ("server/http/a.cc", "<grpcpp/grpcpp.h>", "gRPC"),
            ("models/a.cc", "<nlohmann/json.hpp>", "JSON"),
            ("server/http/session.cc", "<nlohmann/json.hpp>", "JSON"),
            ("models/a.cc", "<pcre2.h>", "PCRE2"),
            ("kernels/cpu/a.cc", "<cuda_runtime.h>", "CUDA"),
            ("engine/a.cc", "<immintrin.h>", "intrinsics"),
            ("server/a.cc", "<spdlog/spdlog.h>", "spdlog"),
            ("server/a.cc", "<CLI/CLI.hpp>", "CLI11"),
        ]:
            with self.subTest(name=name, include=include):
                found = self.problems_of(name, f"#include {include}\n")
                self.assertEqual(1, len(found), found)
                self.assertIn(f"{library} is confined to", found[0])

    def test_protocols_do_not_know_each_other(self):
        for name, include in [
            ("server/http/a.cc", '"server/grpc/b.h"'),
            ("server/grpc/a.cc", '"server/http/b.h"'),
            ("server/generation_service.cc", '"server/http/b.h"'),
        ]:
            with self.subTest(name=name):
                self.assertEqual(1, len(self.problems_of(name, f"#include {include}\n")))

    def test_includes_not_written_from_the_root_fail(self):
        self.assertEqual(1, len(self.problems_of("base/a.cc", '#include "a.h"\n')))

    def test_std_regex_fails_and_a_comment_about_it_does_not(self):
        self.assertEqual(1, len(self.problems_of("base/a.cc", "std::regex pattern;\n")))
        self.assertEqual(1, len(self.problems_of("tests/a.cc", "#include <regex>\n")))
        self.assertEqual([], self.problems_of("base/a.cc", "// no std::regex here\n"))


if __name__ == "__main__":
    unittest.main()
