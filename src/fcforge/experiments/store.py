"""The run folder: one sub-folder per node, written whole or not at all.

Layout::

    OUT/experiment.json          what was asked for
    OUT/nodes/<key>/meta.json    spec, seconds, memory, addresses of remembered subjects
    OUT/nodes/<key>/scores.npz   P(patient) of every test subject of every site
    OUT/nodes/<key>/lane.safetensors   parameters, batch-norm statistics, method state; only
                                       while a later node of the plan is still to start from it
    OUT/generators/              fitted generators by content hash

A node is written into a temporary folder and renamed: kill -9 at any moment leaves either the
whole node or a name with a dot, which nobody reads, and the same command again continues with
the nodes that are missing.
"""

import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from fcforge import __version__
from fcforge.core.errors import StoreError
from fcforge.core.files import whole_folder, write_text

if TYPE_CHECKING:
    from torch import Tensor

LANE = "lane.safetensors"
FORMAT = 5  # bump when a change of code makes states or numbers of old nodes others
MADE_BY = f"{__version__}, run folders {FORMAT}"
SUBJECTS = "subjects-"  # beginning of the names of files with synthetic subjects
MAKE_ROOM = "Make room, or see to the folder; the same command again continues."
REDO = "Delete its folder and run the same command again: only that node is redone."
# what reading a file that was cut or changed may raise
BROKEN = (ValueError, KeyError, OSError, EOFError, BadZipFile, zlib.error)


class Store:
    """Run folder at `root`; created on the first write."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def generators(self) -> Path:
        """Folder of fitted generators."""
        return self.root / "generators"

    def folder(self, key: str) -> Path:
        """Folder of a node."""
        return self.root / "nodes" / key

    def has(self, key: str) -> bool:
        """Whether a node is complete."""
        return self.folder(key).is_dir()

    def is_foreign(self) -> bool:
        """Whether it is a file, or a folder with other things than a run."""
        if not self.root.is_dir():
            return self.root.exists()
        visible = [path.name for path in self.root.glob("[!.]*")]
        return bool(visible) and "nodes" not in visible

    def done(self) -> set[str]:
        """Keys of all complete nodes (one directory listing, cheap on a network drive)."""
        return {path.name for path in (self.root / "nodes").glob("[!.]*")}

    def write_node(
        self,
        key: str,
        meta: Mapping[str, Any],
        scores: Mapping[str, np.ndarray],
        tensors: "Mapping[str, Tensor] | None" = None,
    ) -> None:
        """Write a node. A node that is already there (another worker was faster) stays."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        # numbered arrays: a site may have any name
        numbered = {f"site{i}": values for i, values in enumerate(scores.values())}
        facts = json.dumps({**meta, "sites": list(scores)}, indent=1, sort_keys=True)
        try:
            with whole_folder(self.folder(key)) as folder:
                np.savez(folder / "scores.npz", allow_pickle=False, **numbered)
                (folder / "meta.json").write_text(facts)
                if tensors is not None:
                    on_cpu = {n: v.contiguous().cpu() for n, v in tensors.items()}
                    save_file(on_cpu, folder / LANE)
        except (OSError, SafetensorError) as error:
            if not self.has(key):
                what = f"what was trained cannot be written ({error})."
                raise StoreError(what, where=self.root, do=MAKE_ROOM) from error

    def read_meta(self, key: str) -> dict[str, Any]:
        """Spec, seconds, memory and addresses of a node."""
        with self._reading(key, "meta.json") as path:
            return json.loads(path.read_bytes())

    def read_scores(self, key: str) -> dict[str, np.ndarray]:
        """Scores by site."""
        sites = self.read_meta(key)["sites"]
        with (
            self._reading(key, "scores.npz") as path,
            path.open("rb") as stream,
            np.load(stream) as data,
        ):
            return {site: data[f"site{i}"] for i, site in enumerate(sites)}

    def read_lane(self, key: str) -> "dict[str, Tensor]":
        """Tensors of a node's lane."""
        from safetensors.torch import load_file

        with self._reading(key, LANE) as path:
            return load_file(path)

    def has_lane(self, key: str) -> bool:
        """Whether a node's state is (still) stored."""
        return (self.folder(key) / LANE).is_file()

    def drop(self, key: str) -> None:
        """Delete a node that is to be trained again, if it is there."""
        shutil.rmtree(self.folder(key), ignore_errors=True)

    def drop_lane(self, key: str) -> None:
        """Delete a node's state; its scores stay."""
        (self.folder(key) / LANE).unlink(missing_ok=True)

    def drop_subjects(self) -> None:
        """Delete synthetic subjects: their generators can draw them again."""
        for path in self.generators.glob(f"{SUBJECTS}*"):
            path.unlink(missing_ok=True)

    def write_experiment(self, data: Mapping[str, Any]) -> None:
        """Write what was asked for, for `status` and `report`."""
        write_text(
            self.root / "experiment.json", json.dumps(data, indent=1, sort_keys=True)
        )

    def read_experiment(self) -> dict[str, Any]:
        """What was asked for; `ValueError` where the file is damaged."""
        path = self.root / "experiment.json"
        if not path.is_file():
            raise StoreError(
                "this is not a run folder (no experiment.json).",
                where=self.root,
                do="Run it first, or give the folder that was --out of `fcforge run`.",
            )
        return json.loads(path.read_bytes())

    def unreadable(self, error: Exception) -> StoreError:
        """The error for an experiment.json that makes no sense."""
        reason = f"no {error}" if isinstance(error, KeyError) else error
        return StoreError(
            f"damaged, or written by another version of fcforge ({reason}).",
            where=str(self.root / "experiment.json"),
            do="Delete this file and run the same command again if it is only damaged (nothing is "
            "trained twice); else choose another --out.",
        )

    def size(self) -> int:
        """Bytes on disk."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)

    @contextmanager
    def _reading(self, key: str, name: str) -> Iterator[Path]:
        """Path of a node's file; whatever is wrong with it while it is read says so."""
        from safetensors import SafetensorError

        path = self.folder(key) / name
        if not path.is_file():
            raise StoreError(f"node {key} has no {name}.", where=path.parent, do=REDO)
        try:
            yield path
        except (*BROKEN, SafetensorError) as error:
            what = f"damaged file ({error})."
            raise StoreError(what, where=path, do=REDO) from error
