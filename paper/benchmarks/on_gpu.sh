#!/usr/bin/env bash
# Run portions of run_tables.toml on a machine with a GPU, torch and numpy (and scipy for tables of generators):
#   on_gpu.sh FOLDER SECONDS LIMIT PORTION...
# FOLDER holds tables/ (run_tables.py write) and data/ (abide1_aal116.npz, abide1_aal116_dparsf.npz). The first call copies the
# code and FOLDER to $ROOT and starts the driver there, in a session of its own: it runs on between calls, up to LIMIT seconds
# in all, and no later copy of the working tree disturbs it. Every call shows its log for SECONDS, or until it has ended, and
# packs the scores there are into $OUT. A call after the driver has ended starts it again, if there is something left to do.
set -uo pipefail
folder=$(realpath "$1"); out=$(realpath -m "${OUT:-out}"); seconds=$2; limit=$3; shift 3
cd "$(dirname "$0")/../.."
device=${DEVICE:-cuda} root=${ROOT:-/tmp/fcforge_tables}
mkdir -p "$root"
if [ ! -d "$root/code" ]; then
  mkdir -p "$root/code/paper" "$root/meta/fcforge-0.dist-info"
  cp -r src pyproject.toml "$root/code"
  cp -r paper/experiments paper/benchmarks "$root/code/paper"
  cp -r "$folder/tables" "$folder/data" "$root"
  # entry points of the packages, which are not installed there
  (cd "$root/meta/fcforge-0.dist-info" && python3 - "$root/code/pyproject.toml" <<'PY'
import pathlib, sys, tomllib
groups = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]["entry-points"]
lines = [x for g, found in groups.items() for x in (f"[{g}]", *(f"{k} = {v}" for k, v in found.items()))]
pathlib.Path("entry_points.txt").write_text("\n".join(lines))
pathlib.Path("METADATA").write_text("Metadata-Version: 2.1\nName: fcforge\nVersion: 0\n")
PY
  )
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONUNBUFFERED=1
export FCFORGE_DATA=$root/data PYTHONPATH=$root/code/src:$root/meta
export CUDA_MPS_PIPE_DIRECTORY=$root/mps CUDA_MPS_LOG_DIRECTORY=$root/mps
if ! diff -rq "$folder/tables" "$root/tables" > /dev/null; then
  echo "$root holds the tables of another folder, or of a copy that broke off. Remove it, or set ROOT to another one." >&2
  exit 1
fi
if ! kill -0 "$(cat "$root/driver.pid" 2> /dev/null)" 2> /dev/null; then
  if [ "$device" = cuda ]; then mkdir -p "$root/mps"; setsid nvidia-cuda-mps-control -d || true; fi
  cd "$root/code"
  touch "$root/log"
  setsid python3 paper/benchmarks/run_tables.py run "$root/tables" --portions "$@" --root "$root/runs" --out "$root/out" \
    --device "$device" --processes "${PROCESSES:-14}" --limit "$limit" >> "$root/log" 2>&1 < /dev/null &
  echo $! > "$root/driver.pid"
fi
timeout "$seconds" tail -n +1 -f --pid "$(cat "$root/driver.pid")" "$root/log"
cd "$root/code" && python3 paper/benchmarks/run_tables.py pack "$root/runs" --out "$out"
