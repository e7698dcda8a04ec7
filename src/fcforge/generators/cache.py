"""Fit a generator once per (generator, subjects, seed): a cache keyed by content."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch

from fcforge.core.errors import StoreError
from fcforge.core.files import write_bytes
from fcforge.core.randomness import derive
from fcforge.generators.base import FCBatch, Generator, GeneratorState

# Bump when a change of code makes old states wrong.
VERSION = 1
LANES = 32  # trained side by side on a GPU

_memory: dict[str, GeneratorState] = {}


def fit_key(generator: Generator, batch: FCBatch, seed: int) -> str:
    """SHA-256 over generator name, parameters, FC, diagnoses and seed (64 hex digits)."""
    head = {
        "version": VERSION,
        "name": generator.name,
        "params": {f.name: getattr(generator, f.name) for f in fields(generator)},
        "seed": seed,
        "shape": list(batch.fc.shape),
    }
    digest = hashlib.sha256(
        json.dumps(head, sort_keys=True, default=lambda public: public.digest).encode()
    )
    for part in (batch.fc, batch.y):
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())

    return digest.hexdigest()


def fit_cached(
    generator: Generator,
    batch: FCBatch,
    seed_names: Sequence[str | int],
    folder: str | os.PathLike[str] | None = None,
) -> GeneratorState:
    """State of `generator` fitted on `batch`, from the cache where it has been fitted before.

    Parameters
    ----------
    generator : Generator
    batch : FCBatch
        One site's training subjects.
    seed_names : sequence
        ``(seed, *names)`` as for `fcforge.core.randomness.torch_rng`, e.g. ``(0, "NYU")``.
    folder : path, optional
        Where states are kept as ``<key>.safetensors``, written whole or not at all; without
        it they live in this process.
    """
    seed = _seed(seed_names)
    key = fit_key(generator, batch, seed)
    if folder is not None:
        device = batch.fc.device
        fit_together(generator, [(batch, seed_names)], folder, device)
        return read_state(Path(folder) / f"{key}.safetensors", device)
    if key not in _memory:
        _memory[key] = generator.fit(batch, torch.Generator().manual_seed(seed))
    return dict(_memory[key])


def _seed(names: Sequence[str | int]) -> int:
    return derive(int(names[0]), "generator", *names[1:])


def fit_together(
    generator: Generator,
    asked: Sequence[tuple[FCBatch, Sequence[str | int]]],
    folder: str | os.PathLike[str],
    device: torch.device | str,
) -> int:
    """Fit on `device`, as lanes, what `fit_cached` would not find in the folder.

    Parameters
    ----------
    generator : Generator
    asked : sequence of (batch, seed_names)
        As of `fit_cached`; equal ones are fitted once.
    folder : path

    Returns
    -------
    int
        How many were fitted.
    """
    missing = {}
    for batch, names in asked:
        path = Path(folder) / f"{fit_key(generator, batch, _seed(names))}.safetensors"
        if not path.exists():
            missing[path] = batch, _seed(names)
    paths = list(missing)
    for group in (paths[i : i + LANES] for i in range(0, len(paths), LANES)):
        found = [missing[path] for path in group]
        batches = [batch.to(device) for batch, _ in found]
        rngs = [torch.Generator().manual_seed(seed) for _, seed in found]
        for path, state in zip(group, generator.fit_lanes(batches, rngs), strict=True):
            write_state(path, state)
    return len(paths)


def write_state(path: Path, state: GeneratorState) -> None:
    """Write a state as safetensors, whole or not at all."""
    from safetensors.torch import save

    tensors = {}
    for name, value in state.items():
        tensors[name] = value.detach().cpu().contiguous().clone()
    write_bytes(path, save(tensors))


def read_state(path: Path, device: torch.device | str = "cpu") -> GeneratorState:
    """State written by `write_state`; `StoreError` when the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        state = load(path.read_bytes())
    except (SafetensorError, ValueError) as error:
        raise StoreError(
            f"damaged generator state ({error}).",
            where=str(path),
            do="Delete the file.",
        ) from error
    return {
        k: v.to(device) for k, v in sorted(state.items())
    }  # the file's order is arbitrary
