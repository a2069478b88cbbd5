#!/usr/bin/env bash
# Takes the data files of `docs/results/measure.sh` (a folder, or its data.tar.gz) over, and computes the tables of all pages again:
#
#     docs/results/fill.sh OUT        # without OUT: from the data files that are in the tree
set -euo pipefail
cd "$(dirname "$0")/../.."
data=docs/results/data
case ${1:-} in
  '') ;;
  *.tar.gz) mkdir -p "$data" && tar -C "$data" -xzf "$1" --wildcards '*.json.gz' ;;
  *) mkdir -p "$data" && cp "$1"/*.json.gz "$data"/ ;;
esac
mapfile -t pages < <(grep -l '^<!-- table:' README.md docs/results/*.md docs/guides/*.md)
"${DOORBELL:-doorbell}" report --fill "${pages[@]}"
