"""What every generator asks of a site before it learns, and of diagnoses before it samples."""

from __future__ import annotations

import torch
from torch import Tensor

from fcforge.errors import DataError
from fcforge.types import FCBatch

N_CLASSES = 2


def check_site(batch: FCBatch, name: str, min_subjects: int = 4) -> Tensor:
    """Subjects per class (2,), or a `DataError` that says why generator `name` cannot learn.

    A site with one class only is accepted: the generator then makes that class alone and
    `check_y` refuses the other.
    """
    where = f"generator '{name}'"
    if len(batch) < min_subjects:
        raise DataError(
            f"{len(batch)} training subjects are too few (at least {min_subjects}).",
            where=where,
            do="Merge the site with another one or leave it out.",
        )
    if not bool(torch.isfinite(batch.fc).all()):
        bad = (~torch.isfinite(batch.fc)).flatten(1).any(1).nonzero().flatten().tolist()
        raise DataError(
            f"FC of training subjects {bad[:10]} holds NaN or infinity.",
            where=where,
            do="Flat ROIs must be stored as correlation 0; drop the subjects otherwise.",
        )
    if float(batch.fc.abs().max()) > 1.0 + 1e-3:
        raise DataError(
            f"FC reaches {float(batch.fc.abs().max()):.3g}, so it is not a correlation.",
            where=where,
            do="Give Pearson correlations, not Fisher z.",
        )
    require_classes(batch.y, where)
    return torch.bincount(batch.y, minlength=N_CLASSES).to(torch.int64)


def require_classes(y: Tensor, where: str) -> None:
    """Raise `DataError` for diagnoses that are neither 0 (control) nor 1 (patient)."""
    if not bool(((y == 0) | (y == 1)).all()):
        raise DataError(
            "diagnoses other than 0 and 1.", where=where, do="Code control 0, patient 1."
        )


def check_y(y: Tensor, counts: Tensor, name: str) -> Tensor:
    """`y` as int64 on the state's device; `DataError` for a class the site did not have."""
    y = y.to(device=counts.device, dtype=torch.int64)
    require_classes(y, f"generator '{name}'")
    for label in range(N_CLASSES):
        if int(counts[label]) == 0 and bool((y == label).any()):
            raise DataError(
                f"diagnosis {label} was asked for but no training subject had it.",
                where=f"generator '{name}'",
                do="Sample only diagnoses that the site had.",
            )
    return y


def device_rng(rng: torch.Generator, device: torch.device) -> torch.Generator:
    """Generator on `device` continuing `rng`: `rng` itself on its own device."""
    if rng.device.type == device.type:
        return rng
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device=device).manual_seed(seed)
