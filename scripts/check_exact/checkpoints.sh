# SPDX-License-Identifier: Apache-2.0
# Point 3 of check_exact.sh: save on one topology, resume on another, and after kill -9.
source scripts/check_exact/model_runs.sh
saved_at=24

save() {  # model, topology, zero: run of 30 steps into $saved
  words "$2"
  saved=$work/$1-$2-zero-$3
  train "$1" "$n" --set "run.folder=$saved" "${words[@]}" --set "parallel.zero=$3" \
    --set checkpoint.every=$saved_at
  compare "30 steps saved at $saved_at, $1: $2, zero $3" "$1" "$saved"
}
# of every tensor and moment; the last one is the manifest's own, which holds the folder's name
hashes() { grep -hoE '"xxh64": ?"[0-9a-f]+"' "$1"/checkpoints/step_00000030/manifest.json | head -n -1; }
resume() {  # what of it is other, model, topology, zero: goes on from the checkpoint in $saved
  words "$3"
  local folder="$saved-on-$3-$4"
  train "$2" "$n" --set "run.folder=$folder" "${words[@]}" --set "parallel.zero=$4" \
    --resume "$saved/checkpoints/step_$(printf %08d $saved_at)"
  compare "  $1: on $3, zero $4" "$2" "$folder" $((saved_at + 1))
  [[ $1 == same ]] || { rm -rf "$folder"; return; }
  if diff <(steps "$saved" | awk -v s=$saved_at '$1 > s') <(steps "$folder") && [[ -s $work/steps ]] &&
    diff <(hashes "$saved") <(hashes "$folder") && [[ $(hashes "$folder") ]]; then
    row "  the same to the last bit, losses and weights" "$(hashes "$folder" | wc -l)" 0 0 ok
  else
    row "  the same to the last bit, losses and weights" - differs 0 FAILED
  fi
  rm -rf "$folder"
}

# Four ranks, from where every axis grows, alone or with the data axis that has to make room.
save moe "1x2x2(1)x2x1" 1
resume same moe "1x2x2(1)x2x1" 1
if ((quick)); then
  resume "tensor, csbp, pipeline smaller" moe "1x1x1(1)x1x1" 1
  resume "all but tensor, pipeline larger" moe "2x2x2(2)x4x1" 3
else
  resume "tensor larger" moe "1x4x2(1)x2x1" 1
  resume "csbp larger" moe "2x2x2(1)x2x1" 1
  resume "csbp 3" moe "3x1x1(1)x1x1" 1
  resume "pipeline larger" moe "1x2x4(1)x2x1" 1
  resume "virtual stages more" moe "1x2x2(2)x2x1" 1
  resume "experts over more" moe "1x2x2(1)x4x2" 1
  resume "data larger" moe "1x2x2(1)x2x2" 1
  resume "zero 3" moe "1x2x2(1)x2x1" 3
  resume "tensor and experts smaller" moe "1x1x2(1)x1x1" 1
  resume "pipeline smaller" moe "1x2x1(1)x2x1" 1
  resume "one rank" moe "1x1x1(1)x1x1" 1
  save moe "2x1x2(2)x4x2" 3
  resume same moe "2x1x2(2)x4x2" 3
  resume "csbp smaller" moe "1x1x2(2)x2x2" 3
  resume "data smaller" moe "2x1x2(2)x2x1" 3
  resume "virtual stages fewer" moe "2x1x2(1)x4x2" 3
  resume "experts over fewer" moe "2x1x2(2)x2x2" 3
  resume "zero 1" moe "2x1x2(2)x4x2" 1
  resume "zero 2, no axis as it was" moe "1x4x1(1)x8x2" 2
fi
save tied "2x2x2(1)x1x1" 3
((quick)) || resume same tied "2x2x2(1)x1x1" 3
resume "all on one stage" tied "2x2x1(1)x1x1" 2
((quick)) || resume "more stages" tied "1x1x4(1)x1x2" 1
((quick)) || resume "one rank" tied "1x1x1(1)x1x1" 1

# kill -9 of mpirun and its ranks while a save is under way; then the run goes on to its end.
descendants() {
  local child
  for child in $(pgrep -P "$1"); do echo "$child"; descendants "$child"; done
}
killed=$work/killed halves=0
words "1x1x2(1)x1x1"
for at in 5 12 20; do
  train tied "$n" "${words[@]}" --set "run.folder=$killed" --set checkpoint.every=1 &>/dev/null &
  launcher=$!
  reached=0
  until ((reached >= at)) || ! kill -0 $launcher 2>/dev/null; do
    sleep 0.05
    reached=$(grep -c . "$killed/metrics.jsonl" 2>/dev/null)
  done
  mapfile -t processes < <(descendants $launcher)
  # Without a subshell and so without delay, while a save lasts a few milliseconds.
  until compgen -G "$killed/checkpoints/*.partial/shard*" >/dev/null; do kill -0 $launcher || break; done
  kill -9 "${processes[@]}" 2>/dev/null
  wait $launcher 2>/dev/null
  compgen -G "$killed/checkpoints/*.partial" >/dev/null && ((halves += 1))
done
train tied "$n" "${words[@]}" --set "run.folder=$killed" --set checkpoint.every=1
grep -q '^resumed .* at step' "$work/log" || { echo "the killed run was not resumed"; failed=1; }
compare "killed with -9, $halves of 3 times amid a save, and resumed" tied "$killed"
