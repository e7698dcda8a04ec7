"""Fit a generator once per (generator, subjects, seed): a cache keyed by content."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcforge.core.errors import StoreError
from fcforge.core.files import write_bytes
from fcforge.core.randomness import derive
from fcforge.generators.base import FCBatch, Generator, GeneratorState

# Bump when a change of code makes old states wrong.
VERSION = 2
LANES = 32  # trained side by side on a GPU
CHECKSUM = "sha256"  # name in the file's metadata

_memory: dict[str, GeneratorState] = {}


def fit_key(generator: Generator, batch: FCBatch, seed: int) -> str:
    """Return the SHA-256 of generator, settings, FC, diagnoses and seed (64 hex digits)."""
    digest = _settings_digest(generator, seed=seed, shape=list(batch.fc.shape))
    for part in (batch.fc, batch.y):
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())

    return digest.hexdigest()


def generator_key(generator: Generator) -> str:
    """Return the SHA-256 of a generator and all its settings, defaults included."""
    return _settings_digest(generator).hexdigest()


def _settings_digest(generator: Generator, **more: Any) -> Any:
    """Return the SHA-256 object of a generator, its settings and further plain values."""
    head = {
        "version": VERSION,
        "name": generator.name,
        "variant": generator.variant,
        "params": {f.name: getattr(generator, f.name) for f in fields(generator)},
        **more,
    }
    text = json.dumps(head, sort_keys=True, default=lambda public: public.digest)
    return hashlib.sha256(text.encode())


def fit_cached(
    generator: Generator,
    batch: FCBatch,
    seed_names: Sequence[str | int],
    folder: str | os.PathLike[str] | None = None,
) -> GeneratorState:
    """Return the state of `generator` fitted on `batch`, from the cache where it is there.

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
        path = Path(folder) / f"{key}.safetensors"
        return read_state(generator, path, device)
    if key not in _memory:
        _memory[key] = generator.fit(batch, torch.Generator().manual_seed(seed))
    return _memory[key]


def _seed(names: Sequence[str | int]) -> int:
    """Return the seed of a fit with these ``(seed, *names)``."""
    return derive(int(names[0]), "generator", *names[1:])


def fit_together(
    generator: Generator,
    requests: Sequence[tuple[FCBatch, Sequence[str | int]]],
    folder: str | os.PathLike[str],
    device: torch.device | str,
) -> int:
    """Fit on `device`, as lanes, the states that `fit_cached` would not find in the folder.

    Parameters
    ----------
    generator : Generator
    requests : sequence of (batch, seed_names)
        As for `fit_cached`; equal ones are fitted once.
    folder : path

    Returns
    -------
    int
        Number of states fitted.
    """
    missing = {}
    for batch, names in requests:
        path = Path(folder) / f"{fit_key(generator, batch, _seed(names))}.safetensors"
        if not is_stored(path):
            missing[path] = batch, _seed(names)
    paths = list(missing)
    for group in (paths[i : i + LANES] for i in range(0, len(paths), LANES)):
        work = [missing[path] for path in group]
        batches = [batch.to(device) for batch, _ in work]
        rngs = [torch.Generator().manual_seed(seed) for _, seed in work]
        for path, state in zip(group, generator.fit_lanes(batches, rngs), strict=True):
            write_tensors(path, state.named())
    return len(paths)


def read_state(
    generator: Generator, path: Path, device: torch.device | str = "cpu"
) -> GeneratorState:
    """Read a state that `fit_together` wrote; `StoreError` if the file is damaged."""
    named = read_tensors(path, device)
    try:
        return generator.read_state(named)
    except KeyError as missing:
        raise StoreError(
            f"the tensor {missing} is missing.", where=path, do="Delete the file."
        ) from missing


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as safetensors with their checksum, whole or not at all.

    Parameters
    ----------
    path : Path
    tensors : mapping of name to Tensor
    metadata : mapping of str to str, optional
        Further entries of the file's header.
    """
    from safetensors.torch import save

    copies = {}
    for name, value in tensors.items():
        copies[name] = value.detach().cpu().contiguous().clone()
    write_bytes(
        path, save(copies, metadata={**(metadata or {}), CHECKSUM: _checksum(copies)})
    )


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read tensors written by `write_tensors`; `StoreError` if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = path.read_bytes()
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        written = json.loads(data[8 : 8 + size])["__metadata__"][CHECKSUM]
        if written != _checksum(tensors):
            raise ValueError("its content is not what was written")
    except (SafetensorError, ValueError, KeyError) as error:
        raise StoreError(
            f"damaged tensors ({error}).", where=path, do="Delete the file."
        ) from error
    # the file's order is arbitrary
    return {name: value.to(device) for name, value in sorted(tensors.items())}


def is_stored(path: Path) -> bool:
    """Return whether tensors are stored; a damaged file is deleted, to be made again."""
    if not path.exists():
        return False
    try:
        read_tensors(path)
    except StoreError:
        path.unlink(missing_ok=True)
        return False
    return True


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
