#!/usr/bin/env bash
# Prepare a folder for on_gpu.sh: prepare_gpu.sh FOLDER [COMMIT]
# Training code and configs are those of COMMIT (today's by default), so that tables trained on several days are of one commit; the
# driver is today's. Learners whose runs paper/results holds of that commit are not asked for again. Needs $FCFORGE_DATA.
# FOLDER is what travels: name it in .git/info/exclude if it lies in the checkout. There:
#   bash FOLDER/code/paper/benchmarks/on_gpu.sh FOLDER 575 1700 PORTION...
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$1; commit=$(git rev-parse "${2:-HEAD}")
mkdir -p "$folder/code/paper" "$folder/data"
git archive "$commit" src pyproject.toml paper/experiments | tar -x -C "$folder/code"
cp -r paper/benchmarks "$folder/code/paper"
# summary.py of older commits imports pandas, which the GPU machine may lack. Today's reads the paper's numbers without it, and computes the same.
cp src/fcforge/evaluation/generator_quality/summary.py "$folder/code/src/fcforge/evaluation/generator_quality/"
rm -rf "$folder/code/paper/benchmarks/plots"
find "$folder/code" -name __pycache__ -prune -exec rm -r {} +
cp "$FCFORGE_DATA/abide1_aal116.npz" "$FCFORGE_DATA/abide1_aal116_dparsf.npz" "$folder/data"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$folder/code/src ${PYTHON:-.venv/bin/python} "$folder/code/paper/benchmarks/run_tables.py" write \
  "$folder/tables" --precision tf32 --commit "$commit" --results paper/results
du -sh "$folder"
