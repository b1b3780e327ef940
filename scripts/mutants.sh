#!/usr/bin/env bash
# Breaks one line of the code at a time and checks that the test named for it fails.
#
# usage: mutants.sh [--working-tree] [--only TEXT] [--jobs N] [--keep]
#   --working-tree  take the files as they lie here; the default is the last commit
#   --only TEXT     only mutants whose names contain TEXT
#   --jobs N        compile jobs at once (default: all CPUs)
#   --keep          leave the scratch copy, to look at
#
# The table is scripts/mutants/mutants.toml. Everything happens in a scratch copy below the cache
# folder, with a build folder of its own; ccache makes a second run quick. First every named test
# has to pass unmutated. A mutant that does not compile, whose test times out or whose line is not
# found exactly once is not killed. Ends with `N of N killed`; exit status 1 when one survived.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

from_tree=false
keep=false
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --working-tree) from_tree=true ;;
    --keep) keep=true ;;
    --only | --jobs)
      [ $# -ge 2 ] || die "$1 needs a value"
      arguments+=("$1" "$2")
      shift
      ;;
    *) die "unknown argument '$1' (usage: mutants.sh [--working-tree] [--only TEXT] [--jobs N] [--keep])" ;;
  esac
  shift
done

# A fixed place: tests are compiled with the path of their sources.
work="$HEADROOM_CACHE/mutants"
mkdir -p "$work"
exec 9>"$work/lock"
flock --nonblock 9 || die "another run uses $work"
rm -rf "$work/source" "$work/build"
mkdir "$work/source"
clean_up() { $keep || rm -rf "$work/source" "$work/build"; }
trap clean_up EXIT

cd "$REPO"
if $from_tree; then
  # Deleted but tracked files are listed too and left out.
  git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
  done | tar --create --null --files-from=- | tar --extract --directory="$work/source"
else
  git archive HEAD | tar --extract --directory="$work/source"
fi

# Tests look for data beside the repository; the copy lies elsewhere.
if [ -z "${HEADROOM_SHARED_DATA:-}" ] && [ -d "$REPO/../shared/data" ]; then
  HEADROOM_SHARED_DATA="$(cd "$REPO/../shared/data" && pwd)"
  export HEADROOM_SHARED_DATA
fi
export CCACHE_BASEDIR="$work"
python3 "$work/source/scripts/mutants/run_mutants.py" "$work/source" "$work/build" "${arguments[@]}"
