#!/usr/bin/env bash
# Builds everything and runs every test layer; the last line is `N passed, N failed, N skipped`.
#
# usage: test.sh [--quick]
#   --quick  release build only, without the slow tests, sanitizers and fuzz targets (< 10 minutes)
#
# Layers: unit, property, golden, integration (C++ and Python), include order and lone headers, the
# unit tests again under AddressSanitizer + UBSan, those that use threads under ThreadSanitizer, 32
# concurrent clients against the server of both builds, and every fuzz target for some seconds. Exit
# status 1 when anything failed.
# With CI=true warnings are errors, and a skip fails unless its message starts with "hardware:".
# Everything is built below build/, results lie in build/results.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FUZZ_SECONDS_PER_TARGET=15

quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  *) die "unknown argument '$1' (usage: test.sh [--quick])" ;;
esac
is_ci=false
[ "${CI:-}" = true ] && is_ci=true

results="$REPO/build/results"
rm -rf "$results"
mkdir -p "$results"

# record STAGE OUTCOME NAME [WHY]: one case of a stage that no test runner counts.
record() {
  mkdir -p "$results/$1"
  printf '%s %s: %s\n' "$2" "$3" "${4:-}" >>"$results/$1/cases.txt"
}

# Prints the total and leaves with its exit status.
finish() {
  local flags=()
  $is_ci && flags=(--strict-skips)
  say "Finished after $SECONDS seconds."
  python3 "$REPO/scripts/count_tests.py" "${flags[@]}" "$results"
  exit $?
}

# run_build STAGE PRESET [TARGET...]: builds; a failure is one failed case.
run_build() {
  local stage="$1"
  shift
  say "== build $*"
  build_target "$@" || {
    record "$stage" failed "build of $*" "see the compiler's output above"
    return 1
  }
}

# run_ctest STAGE PRESET [CTEST ARGUMENT...]
run_ctest() {
  local stage="$1" build="$REPO/build/$2"
  shift 2
  say "== test $stage"
  rm -rf "$build/test_results"
  mkdir -p "$results/$stage"
  ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --no-tests=ignore \
    --output-junit "$results/$stage/ctest.xml" "$@"
  if [ -d "$build/test_results" ]; then
    mv "$build/test_results" "$results/$stage/gtest"
  fi
}

run_release_tests() {
  local werror=OFF
  $is_ci && werror=ON
  CMAKE_ARGS="-DHEADROOM_TESTS=ON -DHEADROOM_WERROR=$werror" run_build release release || return
  local exclude=()
  $quick && exclude=(-LE slow)
  run_ctest release release "${exclude[@]}"
}

# run_pytest STAGE BUILD PATH [ARGUMENT...]: Python tests that drive the binary of build/BUILD
# through HTTP and the command line.
run_pytest() {
  local stage="$1" build="$2"
  shift 2
  say "== test $stage"
  [ -n "$venv" ] || {
    record "$stage" skipped "Python tests" "their packages cannot be installed without network"
    return
  }
  mkdir -p "$results/$stage"
  HEADROOM_BINARY="$REPO/build/$build/server/headroom" \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider \
    --junitxml="$results/$stage/pytest.xml" "$@"
  local status=$?
  # 0: all passed, 1: some failed (counted one by one), 5: no tests collected.
  [ $status -le 1 ] || [ $status -eq 5 ] || record "$stage" failed pytest "exit status $status"
}

run_python_tests() {
  local select=()
  $quick && select=(-m "not slow")
  run_pytest python release "$REPO/tests/integration" "${select[@]}"
}

run_sanitizer_tests() {
  local clients="$REPO/tests/integration/concurrency_test.py"
  run_build asan asan headroom_tests_unit headroom && {
    run_ctest asan asan -L unit -LE slow
    run_pytest asan-clients asan "$clients"
  }
  run_build tsan tsan headroom_tests_threads headroom && {
    run_ctest tsan tsan -L threads -LE slow
    run_pytest tsan-clients tsan "$clients"
  }
}

run_fuzz_smoke() {
  [ -f "$REPO/tests/fuzz/CMakeLists.txt" ] || return 0
  run_build fuzz fuzz headroom_fuzz_targets || return
  local target name corpus seeds
  for target in "$REPO"/build/fuzz/fuzz/*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name="$(basename "$target")"
    say "== fuzz $name"
    corpus="$(mktemp -d)" # libFuzzer writes what it finds into the first folder
    seeds=("$REPO/tests/fuzz/corpus/$name")
    [ -d "${seeds[0]}" ] || seeds=()
    if "$target" -max_total_time="$FUZZ_SECONDS_PER_TARGET" -rss_limit_mb=2048 -verbosity=0 \
      -artifact_prefix="$results/fuzz-" "$corpus" "${seeds[@]}" >"$results/$name.log" 2>&1; then
      record fuzz passed "$name"
    else
      tail -n 40 "$results/$name.log"
      record fuzz failed "$name" "the input lies in build/results"
    fi
    rm -rf "$corpus"
  done
}

"$REPO/scripts/install_packages.sh" --tests || {
  record setup failed packages "scripts/install_packages.sh failed"
  finish
}
if fetch_smollm2; then
  export HEADROOM_SMOLLM2_GGUF="$SMOLLM2_GGUF"
fi
venv="$REPO/build/venv"
ensure_venv "$venv" "$REPO/scripts/requirements.txt" || venv=""

run_release_tests
run_python_tests
if ! $quick; then
  run_sanitizer_tests
  run_fuzz_smoke
fi
finish
