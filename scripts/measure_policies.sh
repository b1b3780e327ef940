#!/usr/bin/env bash
# Measures the quality of every KV policy with `headroom eval`. Prints Markdown.
#
# usage: measure_policies.sh [--parts LIST] [--kv-dtype LIST] [--threads N] [--out DIR]
#                            [--build DIR] [--quick]
#   --parts LIST     some of fidelity-1500, fidelity-2048, fidelity-4096, fidelity-7500, text-1000,
#                    text-2000, 1hop-512, 2hop-512; all when not named
#   --threads N      compute threads; 0, the default: the CPUs at hand
#   --kv-dtype LIST  KV types of all parts, the reference's first, instead of bf16,int8 for
#                    fidelity and bf16 for needles
#   --out DIR        keep every part's JSON and HTML there
#   --build DIR      an existing build folder instead of build/release
#   --quick          tiny documents, one of each text, and few prompts: shows that it works, its
#                    numbers mean nothing
#
# fidelity: SmolLM2-135M on 6 documents of each length (3 of 7,500 tokens), as many of WikiText-2 as
# of War and Peace and of this repository's C++. text: codes hidden in a novel, SmolLM2. 1hop, 2hop:
# the built-in needle models. Texts and prompts come from the shared data folder ($HEADROOM_SHARED_DATA, else
# ../shared/data beside the repository). All parts together take hours on two cores. Exit status 1
# when a part fails.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: measure_policies.sh [--parts LIST] [--kv-dtype LIST] [--threads N] [--out DIR] [--build DIR] [--quick]"
all_parts=fidelity-1500,fidelity-2048,fidelity-4096,fidelity-7500,text-1000,text-2000,1hop-512,2hop-512
policies=full,streaming,h2o,scissorhands,snapkv,adakv,pyramidinfer,gemfilter,fastkv,fastgen,random
parts="$all_parts"
dtypes=""
threads=0
out=""
build=""
quick=false
while [ $# -gt 0 ]; do
  case "$1" in
    --parts | --kv-dtype | --threads | --out | --build)
      [ $# -ge 2 ] || die "$1 needs a value"
      case "$1" in
        --parts) parts="$2" ;;
        --kv-dtype) dtypes="$2" ;;
        --threads) threads="$2" ;;
        --out) out="$2" ;;
        --build) build="$2" ;;
      esac
      shift
      ;;
    --quick) quick=true ;;
    *) die "unknown argument '$1' ($usage)" ;;
  esac
  shift
done
IFS=, read -r -a part_list <<<"$parts"
[ ${#part_list[@]} -gt 0 ] || die "--parts: wanted some of $all_parts"
for part in "${part_list[@]}"; do
  [[ ",$all_parts," == *",$part,"* ]] || die "--parts: got '$part', wanted some of $all_parts"
done
data="${HEADROOM_SHARED_DATA:-$REPO/../shared/data}"
[ -d "$data/text" ] && [ -d "$data/needle" ] ||
  die "$data: wanted the shared data folder with text/ and needle/ (HEADROOM_SHARED_DATA)"

if [ -z "$build" ]; then
  build="$REPO/build/release"
  build_target release headroom >&2 || die "the build failed"
fi
headroom="$build/server/headroom"
[ -x "$headroom" ] || die "$headroom: wanted the built program"
if [[ "$parts" == *fidelity* || "$parts" == *text* ]]; then
  fetch_smollm2 || die "needs the SmolLM2 GGUF file"
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
[ -n "$out" ] || out="$work"
mkdir -p "$out" || die "cannot make the folder $out"

# The third text: the C++ of the engine, the kernels and the models, in one order everywhere.
write_sources() {
  (cd "$REPO" && find engine kernels models -name '*.cc' -o -name '*.h' | LC_ALL=C sort |
    xargs cat) >"$work/headroom-cpp.txt"
}

# run_part PART: measures it, keeps its reports, prints its tables.
run_part() {
  local part="$1" kind="${1%-*}" length="${1##*-}" model retention=0.2,0.1 theta=0.9,0.95,0.98
  local inputs=()
  if [ "$kind" = fidelity ]; then
    local docs=2 tokens="$length" continuation=256
    retention=0.5,0.2,0.1
    [ "$length" = 7500 ] && docs=1
    $quick && docs=1 tokens=$((256 + length / 32)) continuation=32
    model="$SMOLLM2_GGUF"
    inputs=(--text "$data/text/wiki.test.raw" --text "$data/text/war-and-peace.txt"
      --text "$work/headroom-cpp.txt" --doc-tokens "$tokens" --docs "$docs"
      --continuation "$continuation" --kv-dtype "${dtypes:-bf16,int8}")
  else
    local count=64
    $quick && count=1
    model="builtin:needle-$kind"
    [ "$kind" = text ] && model="$SMOLLM2_GGUF"
    inputs=(--needles "$data/needle/$part.jsonl" --needle-count "$count"
      --kv-dtype "${dtypes:-bf16}")
  fi
  $quick && retention=0.2 theta=0.95
  say "== $part"
  "$headroom" eval "$model" "${inputs[@]}" --policies "$policies" --retention "$retention" \
    --theta "$theta" --tsp 1,0.2 --threads "$threads" --json "$out/$part.json" --html "$out/$part.html" >/dev/null ||
    return 1
  python3 "$REPO/scripts/policy_tables.py" "$out/$part.json"
}

commit="$(git -C "$REPO" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
[ -z "$(git -C "$REPO" status --porcelain --untracked-files=no 2>/dev/null)" ] || commit="$commit, changed"
printf 'Commit %s, %s.%s\n\n' "$commit" "$(date -u +%Y-%m-%d)" \
  "$($quick && echo ' Tiny (--quick): the numbers mean nothing.')"
write_sources
failed=false
for part in "${part_list[@]}"; do
  run_part "$part" || {
    say "$part failed"
    failed=true
  }
done
! $failed
