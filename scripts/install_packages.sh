#!/usr/bin/env bash
# Installs the Debian packages of scripts/packages.txt that are missing; removes nothing.
#
# usage: install_packages.sh [--tests]
#   --tests  also those that only the tests need
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

with_tests=false
case "${1:-}" in
  "") ;;
  --tests) with_tests=true ;;
  *) die "unknown argument '$1' (usage: install_packages.sh [--tests])" ;;
esac

# Package names of the list, without comments and, unless asked for, without those of the tests.
listed_packages() {
  awk -v tests="$with_tests" '
    /^\[tests\]$/ { in_tests = 1; next }
    /^#/ || NF == 0 { next }
    !in_tests || tests == "true" { print $1 }' "$REPO/scripts/packages.txt"
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

command -v dpkg-query >/dev/null || die "this is not a Debian system: install the equivalents of
scripts/packages.txt by hand"
missing=()
while read -r package; do
  is_installed "$package" || missing+=("$package")
done < <(listed_packages)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "these packages are missing, and neither root nor sudo is at
hand to install them: ${missing[*]}"
  as_root=(sudo)
fi
for old in libboost1.74-dev libboost-dev; do
  if is_installed "$old" && [[ " ${missing[*]} " == *" libboost1.81-dev "* ]]; then
    die "$old (Boost 1.74) is installed and conflicts with libboost1.81-dev, which Headroom needs.
Nothing was changed. If nothing else of yours needs it, remove it and run this again:
  ${as_root[*]:+${as_root[*]} }apt-get remove libboost-dev libboost1.74-dev"
  fi
done

say "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-remove --no-install-recommends "${missing[@]}" >&2 ||
  die "apt-get could not install: ${missing[*]} (with --no-remove: nothing was removed)"
