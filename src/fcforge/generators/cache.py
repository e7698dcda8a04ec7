"""A cache of fitted generators, keyed by the content of settings, subjects and seed.

Equal fits are made once. Several sites may be fitted as lanes: networks that train in parallel.
"""

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
LANES = 32  # sites whose generators train in parallel on a GPU
CHECKSUM = "sha256"  # name in the file's metadata

_memory: dict[str, GeneratorState] = {}


def fit_key(generator: Generator, batch: FCBatch, seed: int) -> str:
    """Return the key of a fit: SHA-256 of generator, settings, FC, diagnoses and seed.

    Parameters
    ----------
    generator : Generator
    batch : FCBatch
        Training subjects.
    seed : int

    Returns
    -------
    str
        64 hexadecimal digits.
    """
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
    # The only setting that JSON does not know is the public subjects, which count by their digest.
    text = json.dumps(head, sort_keys=True, default=lambda public: public.digest)
    return hashlib.sha256(text.encode())


def fit_cached(
    generator: Generator,
    batch: FCBatch,
    seed_names: Sequence[str | int],
    folder: str | os.PathLike[str] | None = None,
) -> GeneratorState:
    """Return the state of `generator` fitted on `batch`, from the cache if possible.

    Parameters
    ----------
    generator : Generator
    batch : FCBatch
        One site's training subjects.
    seed_names : sequence
        A seed and names from which the seed of the fit is derived, as for
        `fcforge.core.randomness.torch_rng`; e.g. ``(0, "NYU")``.
    folder : path, optional
        Folder of the cache, with a file ``<key>.safetensors`` per state, written whole or not at
        all. Without it, states are kept in the memory of this process.
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
    """Return the seed of a fit, derived from ``(seed, *names)``."""
    return derive(int(names[0]), "generator", *names[1:])


def fit_together(
    generator: Generator,
    requests: Sequence[tuple[FCBatch, Sequence[str | int]]],
    folder: str | os.PathLike[str],
    device: torch.device | str,
) -> int:
    """Fit the states that are missing in the cache, `LANES` sites at a time.

    Parameters
    ----------
    generator : Generator
    requests : sequence of (batch, seed_names)
        As for `fit_cached`; equal ones are fitted once.
    folder : path
        Folder of the cache.
    device : torch.device or str
        Device that trains.

    Returns
    -------
    int
        Number of states fitted.
    """
    missing = {}  # by file, subjects and seed
    for batch, names in requests:
        path = Path(folder) / f"{fit_key(generator, batch, _seed(names))}.safetensors"
        if not is_stored(path):
            missing[path] = batch, _seed(names)
    paths = list(missing)
    for group in (paths[i : i + LANES] for i in range(0, len(paths), LANES)):
        fits = [missing[path] for path in group]
        batches = [batch.to(device) for batch, _ in fits]
        rngs = [torch.Generator().manual_seed(seed) for _, seed in fits]
        for path, state in zip(group, generator.fit_lanes(batches, rngs), strict=True):
            write_tensors(path, state.named())
    return len(paths)


def read_state(
    generator: Generator, path: Path, device: torch.device | str = "cpu"
) -> GeneratorState:
    """Read a state that `fit_together` wrote.

    Parameters
    ----------
    generator : Generator
    path : Path
    device : torch.device or str

    Raises
    ------
    StoreError
        If the file is damaged or lacks a tensor.
    """
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
    """Read tensors by name, written by `write_tensors`; raise `StoreError` if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = path.read_bytes()
    try:
        tensors = load(data)
        # `load` drops the metadata. The file begins with the size of its JSON header in 8 bytes.
        size = int.from_bytes(data[:8], "little")
        written = json.loads(data[8 : 8 + size])["__metadata__"][CHECKSUM]
        if written != _checksum(tensors):
            raise ValueError("its content does not have the checksum of its header")
    except (SafetensorError, ValueError, KeyError) as error:
        raise StoreError(
            f"the tensors are damaged ({error}).", where=path, do="Delete the file."
        ) from error
    # the file's order is arbitrary
    return {name: value.to(device) for name, value in sorted(tensors.items())}


def is_stored(path: Path) -> bool:
    """Return whether a file holds intact tensors; a damaged file is deleted, to be made again."""
    if not path.exists():
        return False
    try:
        read_tensors(path)
    except StoreError:
        path.unlink(missing_ok=True)
        return False
    return True


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and values of tensors."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
