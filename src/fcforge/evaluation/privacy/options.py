"""Options of ``fcforge audit``, which attacks generators on a hospital's data."""

from dataclasses import dataclass
from pathlib import Path

from fcforge.core.options import JsonRequest, PeopleRequest, option


@dataclass(frozen=True)
class GeneratorAuditRequest(PeopleRequest, JsonRequest):
    """Generators to be attacked on a hospital's data."""

    data: Path = option(help="The hospital's data: .npz file or folder.")
    site: list[str] = option(help="Site of the data; repeat to audit several as one.")
    generator: list[str] = option(help="Generator, e.g. corr_gauss; may be repeated.")
    halves: Path | None = option(
        None, "Two halves of each run (.npz), for fingerprinting."
    )
    seed: int = option(0, "Seed of splits and generators.")
    device: str = option("cpu", "Where to fit generators: cpu or cuda.")
    out: Path | None = option(None, "Folder for audit.json.")
