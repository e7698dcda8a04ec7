#!/usr/bin/env bash
# Run portions of run_tables.toml on a machine with a GPU, torch and numpy:
#   on_gpu.sh FOLDER SECONDS PORTION...
# FOLDER holds tables/ (run_tables.py write) and data/ (abide1_aal116.npz, abide1_aal116_dparsf.npz). Archives go to $OUT. The same
# command continues where runs/ is still there.
set -uo pipefail
cd "$(dirname "$0")/../.."
folder=$1; seconds=$2; shift 2
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONUNBUFFERED=1
export FCFORGE_DATA=$(realpath "$folder/data") PYTHONPATH=$PWD/src
# entry points of the packages, which are not installed there
mkdir -p /tmp/meta/fcforge-0.dist-info
python3 - <<'PY'
import pathlib, tomllib
groups = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["entry-points"]
lines = [x for g, found in groups.items() for x in (f"[{g}]", *(f"{k} = {v}" for k, v in found.items()))]
folder = pathlib.Path("/tmp/meta/fcforge-0.dist-info")
(folder / "entry_points.txt").write_text("\n".join(lines))
(folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fcforge\nVersion: 0\n")
PY
export PYTHONPATH=$PYTHONPATH:/tmp/meta
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps
device=${DEVICE:-cuda}
if [ "$device" = cuda ]; then mkdir -p /tmp/mps; nvidia-cuda-mps-control -d || true; fi
python3 paper/benchmarks/run_tables.py run "$folder/tables" --portions "$@" --root runs/tables \
  --out "${OUT:-out}" --device "$device" --processes "${PROCESSES:-12}" --limit "$seconds"
code=$?
if [ "$device" = cuda ]; then echo quit | nvidia-cuda-mps-control; fi
exit $code
