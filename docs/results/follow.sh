#!/usr/bin/env bash
# Programs that start others, bare and recorded: the same result, every process that uses the GPU on the recording, nothing lost.
#   docs/results/follow.sh OUT [PATTERN]
# PATTERN (an extended regular expression) picks cases. Needs python3 with PyTorch; JAX, busybox and two GPUs where a case
# asks for them. DOORBELL names the binary (default: cargo's release build), GPU=soft runs what can run without a GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: follow.sh OUT [PATTERN]}
pattern=${2:-.}
export D=${DOORBELL:-$here/../../target/release/doorbell}
gpu=${GPU:-real}
mkdir -p "$out"
tape=$(mktemp -d)
trap 'rm -rf "$tape"' EXIT
export CUBLAS_WORKSPACE_CONFIG=:4096:8
python=$(command -v python3)

# As pyenv's shims are: a script that execs the program it stands for.
printf '#!/usr/bin/env bash\nset -e\nexec "%s" "$@"\n' "$python" > "$tape/shim"
chmod +x "$tape/shim"

echo "| case | recorded processes | ranks | submissions | lost | complete | bare s | recorded s | result as bare |"
echo "|---|--:|---|--:|--:|---|--:|--:|---|"
one() {
  name=$1; shift
  [[ $name =~ $pattern ]] || return 0
  local t0 t1 t2 rc1 rc2
  t0=$(date +%s.%N)
  timeout 180 "$@" > "$out/$name.bare" 2> "$out/$name.bare.err"; rc1=$?
  t1=$(date +%s.%N)
  timeout 180 "$D" record -q --force --gpu "$gpu" -o "$tape/$name.doorbell" -- "$@" > "$out/$name.recorded" 2> "$out/$name.recorded.err"; rc2=$?
  t2=$(date +%s.%N)
  "$D" show --summary --json "$tape/$name.doorbell" > "$out/$name.json" 2> "$out/$name.show.err"
  "$D" show "$tape/$name.doorbell" > "$out/$name.txt" 2>> "$out/$name.show.err"
  python3 - "$out/$name.json" "$name" "$(tail -n 1 "$out/$name.bare")" "$(tail -n 1 "$out/$name.recorded")" $rc1 $rc2 "$t0" "$t1" "$t2" <<'P'
import json, sys
f, name, bare, recorded, rc1, rc2, t0, t1, t2 = sys.argv[1:]
try:
    s = json.load(open(f))
except Exception as e:
    print(f"| {name} | no summary: {e} | | | | | | | {'same' if (bare, rc1) == (recorded, rc2) else 'DIFFERENT'} |")
    sys.exit()
p = s.get("processes", [])
used = [x for x in p if x.get("submissions")]
ranks = ", ".join(f"{x['rank']['rank']} of {x['rank']['world_size']}" for x in p if x.get("rank") and x in used)
same = "same" if (bare, rc1) == (recorded, rc2) else f"DIFFERENT {rc1}/{rc2}"
print(f"| {name} | {len(used)} of {len(p)} | {ranks} | {s.get('submissions')} | {s.get('lost')} | {s.get('complete')} "
      f"{'; '.join(s.get('incomplete_because', []))} | {float(t1)-float(t0):.1f} | {float(t2)-float(t1):.1f} | {same} |")
P
}
sample="$D sample copies launches --gpu $gpu"
one plain $sample
one sh-c sh -c "$sample; true"
one env-i env -i PATH="$PATH" $sample
one wrappers timeout 100 nice -n 1 taskset -c 0 env A=1 $sample
command -v busybox > /dev/null && one busybox busybox sh -c "busybox env -i $(command -v busybox) env A=1 $sample"
# (As root Open MPI wants to be told twice.)
command -v uv > /dev/null && one uv-run uv run --no-project --no-config --offline $sample
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v mpirun > /dev/null && one mpirun mpirun --oversubscribe --bind-to none -np 2 $sample
one three sh -c "$sample & $sample & wait; $sample | tail -n 1"
one exec sh -c "exec $sample"
# Slurm's daemon starts the tasks: one doorbell, and one recording, each. The row of srun itself must say that they are not in it.
if command -v srun > /dev/null && timeout 20 srun -n 2 true 2> /dev/null; then
  one srun srun -n 2 $sample
  if [[ srun-each =~ $pattern ]]; then
    timeout 180 srun -n 2 "$D" record -q --force --gpu "$gpu" -o "$tape/srun.doorbell" -- $sample > "$out/srun-each.recorded" 2> "$out/srun-each.recorded.err"
    status=$?
    for rank in 0 1; do
      "$D" show --summary --json "$tape/srun.rank$rank.doorbell" | python3 -c '
import json, sys
s = json.load(sys.stdin)
used = [p for p in s["processes"] if p.get("submissions")]
print("| srun doorbell record, status", sys.argv[1], "|", len(used), "of", len(s["processes"]), "|", [p["rank"]["rank"] for p in used],
      "|", s["submissions"], "|", s["lost"], "|", s["complete"], "| | | |")' "$status"
    done
  fi
fi
if [ "$gpu" = real ]; then
  one shim "$tape/shim" "$here/follow/loader.py" fork
  one loader-fork "$python" "$here/follow/loader.py" fork
  one loader-spawn "$python" "$here/follow/loader.py" spawn
  one loader-spawn-gpu "$python" "$here/follow/loader.py" spawn gpu
  one jax "$python" "$here/follow/jaxed.py"
  n=$(nvidia-smi -L 2> /dev/null | wc -l)
  [ "$n" -ge 2 ] && one torchrun timeout 160 torchrun --nproc-per-node 2 "$here/follow/ddp.py"
fi
echo; echo "Xid in the kernel log: $(dmesg 2> /dev/null | grep -c 'NVRM: Xid')"
