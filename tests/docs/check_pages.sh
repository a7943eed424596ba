#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pages against the tree: files that README.md and docs/*.md link to and files of docs/ that anything
# names exist; messages in the tables of docs/debugging.md are those of the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."

failed=0
complain() {
  echo "$*"
  failed=1
}

while IFS=: read -r page link; do
  file=${link#*](}
  file=${file%%[)#]*}
  [[ -z $file || $file == http* || -e $(dirname "$page")/$file ]] ||
    complain "$page: links to $file, which is not there"
done < <(grep -oE '\]\([^)]+\)' README.md docs/*.md data/text/README.md)

while IFS=: read -r place page; do
  [[ -e $page ]] || complain "$place: names $page, which is not there"
done < <(grep -roE '\bdocs/[a-z_]+\.md' README.md docs cmd trainer model parallel data kernels \
  configs scripts --include='*.md' --include='*.cpp' --include='*.h' --include='*.yaml' \
  --include='*.sh' | sort -u)

# Literals that stand side by side are one text.
texts=$(find cmd trainer model parallel data kernels \( -name '*.cpp' -o -name '*.h' \) \
  -exec cat {} + | perl -0pe 's/"\s*\n\s*"//g')
messages=0
while IFS= read -r message; do
  ((messages += 1))
  while IFS= read -r part; do
    [[ -z $part ]] || grep -qF -- "$part" <<<"$texts" ||
      complain "docs/debugging.md: no message has '$part' (of '$message')"
  done < <(sed 's/\.\.\.\.*/\n/g' <<<"$message" | sed 's/^ *//; s/ *$//')
done < <(grep -oP '^\| `\K[^`]+(?=`)' docs/debugging.md)
((messages > 0)) || complain "docs/debugging.md: no messages found"

exit $failed
