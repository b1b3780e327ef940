#!/usr/bin/env bash
# Measures what a release states: goldens, fidelity, and what a budget buys. Prints Markdown.
#
# usage: measure.sh [--parts golden,fidelity,budget] [--quick] [--build DIR]
#   --parts LIST  only these
#   --quick       the nine short prompts, one chunk, a depth of 1,000 and two pairs: shows that it
#                 works, its numbers mean little
#   --build DIR   an existing build folder instead of build/release
#
# golden: greedy tokens and logits of all twelve prompts, ref and cpu. fidelity: KL divergence and
# top-1 agreement with the reference over 20 chunks. budget: fastkv (tau 0.2, rho 0.1) against the
# full cache at 7,500 tokens. Takes an hour on two cores, which it wants for itself. Speed against
# llama.cpp is measured by compare_llama.py. Exit status 1 when a bound of a test is not met.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=golden,fidelity,budget
golden_prompts=all
chunks=20
depth=7500
pairs=4
build=""
while [ $# -gt 0 ]; do
  case "$1" in
    --parts | --build)
      [ $# -ge 2 ] || die "$1 needs a value"
      if [ "$1" = --parts ]; then parts="$2"; else build="$2"; fi
      shift
      ;;
    --quick)
      golden_prompts=short
      chunks=1
      depth=1000
      pairs=2
      ;;
    *) die "unknown argument '$1' (usage: measure.sh [--parts LIST] [--quick] [--build DIR])" ;;
  esac
  shift
done
[[ ",$parts," =~ ^(,(golden|fidelity|budget))+,$ ]] ||
  die "--parts: got '$parts', wanted some of golden,fidelity,budget"
has_part() { [[ ",$parts," == *",$1,"* ]]; }

if [ -z "$build" ]; then
  build="$REPO/build/release"
  build_target release smollm2_golden_test fidelity_test headroom >&2 || die "the build failed"
fi
fetch_smollm2 || die "needs the SmolLM2 GGUF file"
export HEADROOM_SMOLLM2_GGUF="$SMOLLM2_GGUF"
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
failed=false

# run_tests PART BINARY FILTER: prints the part's table; a failed bound is shown below it.
run_tests() {
  local part="$1" log="$logs/$1.log" status=0
  "$2" --gtest_filter="$3" >"$log" 2>&1 || status=$?
  python3 "$REPO/scripts/measure_tables.py" "$part" <"$log" || status=1
  if [ $status -ne 0 ] || grep -q '^\[  SKIPPED \]' "$log"; then
    failed=true
    printf '\n```\n%s\n```\n' "$(grep -E 'Failure|Expected|actual|SKIPPED|needs' "$log" | head -n 40)"
  fi
  printf '\n'
}

commit="$(git -C "$REPO" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
[ -z "$(git -C "$REPO" status --porcelain --untracked-files=no 2>/dev/null)" ] || commit="$commit, changed"
cpu="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
printf 'Commit %s, %s CPUs (%s), %s.\n\n' "$commit" "$(nproc)" "$cpu" "$(date -u +%Y-%m-%d)"

if has_part golden; then
  printf '### Goldens of SmolLM2-135M (Q4_1), KV f32\n\n'
  if [ $golden_prompts = all ]; then export HEADROOM_GOLDEN_ALL=1; else unset HEADROOM_GOLDEN_ALL; fi
  run_tests golden "$build/tests/golden/smollm2_golden_test" '*'
fi
if has_part fidelity; then
  printf '### Fidelity of the cpu backend to ref\n\n'
  bf16="$HEADROOM_CACHE/SmolLM2-135M-Instruct.BF16.gguf"
  if [ ! -f "$bf16" ]; then
    python3 "$REPO/scripts/requantize.py" "$SMOLLM2_GGUF" "$bf16" bf16 >&2 ||
      die "scripts/requantize.py failed"
  fi
  export HEADROOM_SMOLLM2_BF16_GGUF="$bf16" HEADROOM_FIDELITY_CHUNKS="$chunks"
  run_tests fidelity "$build/tests/golden/fidelity_test" '*'
fi
if has_part budget; then
  printf '### What a budget buys\n\n'
  python3 "$REPO/scripts/compare_budget.py" --headroom "$build/server/headroom" "$SMOLLM2_GGUF" \
    --depth "$depth" --pairs "$pairs" || failed=true
  printf '\n'
fi
! $failed
