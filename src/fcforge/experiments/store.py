"""The run folder: one sub-folder per node, written whole or not at all, and verified.

A node is one site training of the prefix tree (`fcforge.experiments.plan`); its lane is the network trained
there, with the state of its method. Layout::

    OUT/experiment.json          the experiment, its sites and the keys of its runs
    OUT/nodes/<key>/meta.json    spec, seconds, memory, addresses of remembered subjects;
                                 size and SHA-256 of the node's other files, and of itself
    OUT/nodes/<key>/scores.npz   P(patient) of every test subject of every site
    OUT/nodes/<key>/lane.safetensors   parameters, batch-norm statistics, method state; only
                                       while a later node of the plan is still to start from it
    OUT/nodes/<key>/network.safetensors    with `--keep-networks`, after the last site of a run
    OUT/nodes/<key>/log.json     with `fcforge run --log`: losses, accuracy and quotas by epoch
    OUT/generators/              fitted generators by content hash
    OUT/.lock                    held by the command that trains into the folder

A node is written into a temporary folder, synchronised with the disk and renamed: a process that is
killed leaves the whole node or a temporary name, which the next run deletes. A node that was damaged
later (a full disk, a broken copy) is detected by its checksums and trained again.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fcforge.core.errors import StoreError
from fcforge.core.files import locked, sweep, whole_folder, write_text
from fcforge.core.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

META = "meta.json"
SCORES = "scores.npz"
LANE = "lane.safetensors"
LOG = "log.json"
NETWORK = "network.safetensors"
FORMAT = 6  # raise it when a change of code makes states or numbers of old nodes others
MADE_BY = f"{__version__}, run folders {FORMAT}"
SUBJECTS = "subjects-"  # beginning of the names of files with synthetic subjects
MAKE_ROOM = (
    "Free some disk space, or check the folder; the same command again continues."
)
RETRAIN = "Run the same command again: it trains what is damaged or missing."
# errors of reading a file that was truncated or changed
BROKEN = (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile, zlib.error)


class NodeFiles(NamedTuple):
    """State of a node's files.

    Attributes
    ----------
    scores : bool
        Whether the scores, the facts and, if written, log and network are unchanged.
    lane : bool
        Whether the lane is there and unchanged.
    """

    scores: bool
    lane: bool


MISSING = NodeFiles(False, False)


class Store:
    """Run folder at a path, which is created on the first write.

    Parameters
    ----------
    root : path
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def generators(self) -> Path:
        """Folder of fitted generators."""
        return self.root / "generators"

    def folder(self, key: str) -> Path:
        """Return the folder of a node."""
        return self.root / "nodes" / key

    def has(self, key: str) -> bool:
        """Return whether a node's folder exists."""
        return self.folder(key).is_dir()

    def is_foreign(self) -> bool:
        """Return whether the path is a file, or a folder that is no run folder."""
        if not self.root.is_dir():
            return self.root.exists()
        visible = [path.name for path in self.root.glob("[!.]*")]
        return bool(visible) and "nodes" not in visible

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the run folder for the time of the block, and delete temporary files of killed runs.

        Raises
        ------
        StoreError
            If another command is training into the folder.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        lock = self.root / ".lock"
        holder = lock.read_text() if lock.is_file() else ""
        busy = StoreError(
            f"another command is training into this folder ({holder or 'unknown process'}).",
            where=self.root,
            do="Wait until it has ended (`fcforge status` shows its progress); the same command "
            "then continues. To train both at once, choose another --out.",
        )
        with locked(lock, busy):
            lock.write_text(f"process {os.getpid()} on {platform.node()}")
            for folder in (self.root, self.root / "nodes", self.generators):
                sweep(folder)
            yield

    def done(self) -> set[str]:
        """Return the keys of all nodes that were written, without a check of their content."""
        return {path.name for path in (self.root / "nodes").glob("[!.]*")}

    # -- writing -------------------------------------------------------------------------------
    def write_node(
        self,
        key: str,
        meta: Mapping[str, Any],
        scores: Mapping[str, np.ndarray],
        tensors: "Mapping[str, Tensor] | None" = None,
        log: Any = None,
        network: bytes | None = None,
    ) -> None:
        """Write a node. A node that exists already, because another worker was faster, is kept.

        Parameters
        ----------
        key : str
        meta : mapping
            Facts of the node, as JSON.
        scores : mapping of site to ndarray of shape (n_test, ...)
            Scores of each site's test subjects.
        tensors : mapping of str to Tensor, optional
            The node's lane, if a later node starts from it.
        log : optional
            Log of the node's training, as JSON.
        network : bytes, optional
            File of the trained network.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        # numbered arrays: a site may have any name
        numbered = {f"site{i}": values for i, values in enumerate(scores.values())}
        try:
            with whole_folder(self.folder(key)) as folder:
                np.savez(folder / SCORES, allow_pickle=False, **numbered)
                if tensors is not None:
                    # copies, because safetensors refuses tensors that share memory, such as
                    # a network and its anchor
                    copies = {}
                    for name, value in tensors.items():
                        copies[name] = value.detach().cpu().contiguous().clone()
                    save_file(copies, folder / LANE)
                if log is not None:
                    (folder / LOG).write_text(json.dumps(log))
                if network is not None:
                    (folder / NETWORK).write_bytes(network)
                files = {path.name: _fingerprint(path) for path in folder.iterdir()}
                facts = {**meta, "sites": list(scores), "files": files}
                text = json.dumps(_signed(facts), indent=1, sort_keys=True)
                (folder / META).write_text(text)
        except (OSError, SafetensorError) as error:
            if not self.has(key):
                message = f"what was trained cannot be written ({error})."
                raise StoreError(message, where=self.root, do=MAKE_ROOM) from error

    def drop(self, key: str) -> None:
        """Delete a node, if it exists, so that it can be trained again."""
        shutil.rmtree(self.folder(key), ignore_errors=True)

    def drop_lane(self, key: str) -> None:
        """Delete a node's lane, if it exists, and keep its scores."""
        (self.folder(key) / LANE).unlink(missing_ok=True)

    def drop_subjects(self) -> None:
        """Delete synthetic subjects: their generators can draw them again."""
        for path in self.generators.glob(f"{SUBJECTS}*"):
            path.unlink(missing_ok=True)

    # -- reading -------------------------------------------------------------------------------
    def read_meta(self, key: str) -> dict[str, Any]:
        """Return the facts of a node: spec, seconds, memory and addresses."""
        return self._meta(key)[0]

    def read_scores(self, key: str) -> dict[str, np.ndarray]:
        """Return the scores of a node by site."""
        meta, files = self._meta(key)
        with self._reading(key, SCORES, files) as data, np.load(data) as arrays:
            sites = meta["sites"]
            return {site: arrays[f"site{i}"] for i, site in enumerate(sites)}

    def read_lane(self, key: str) -> "dict[str, Tensor]":
        """Return the tensors of a node's lane by name.

        They are sorted by name, because a file has no order and lanes are stacked in a fixed one.
        """
        from safetensors.torch import load

        _, files = self._meta(key)
        with self._reading(key, LANE, files) as data:
            return dict(sorted(load(data.getvalue()).items()))

    def read_log(self, key: str) -> Any:
        """Return the log of a node's training, or None if it was trained without one."""
        _, files = self._meta(key)
        if LOG not in files:
            return None
        with self._reading(key, LOG, files) as data:
            return json.loads(data.getvalue())

    def has_lane(self, key: str) -> bool:
        """Return whether a node's lane is stored."""
        return (self.folder(key) / LANE).is_file()

    def verify(self, key: str, *, checksums: bool = True) -> NodeFiles:
        """Return which files of a node are unchanged since they were written.

        Parameters
        ----------
        key : str
        checksums : bool
            Whether to compare the SHA-256 of contents. Else only sizes are compared, and no file but meta.json
            is read.
        """
        if not self.has(key):
            return MISSING
        try:
            _, files = self._meta(key)
        except StoreError:
            return MISSING
        whole = {}
        for name in (SCORES, LANE):
            path = self.folder(key) / name
            whole[name] = _is_whole(path, files.get(name), checksums)
        for name in files.keys() & {LOG, NETWORK}:
            path = self.folder(key) / name
            whole[SCORES] &= _is_whole(path, files[name], checksums)
        return NodeFiles(whole[SCORES], whole[LANE])

    def complete(
        self, keys: Iterable[str], *, checksums: bool = True
    ) -> tuple[set[str], set[str]]:
        """Return the keys of nodes with intact scores, and the keys of damaged nodes.

        Parameters
        ----------
        keys : iterable of str
            Nodes to check; those that were never written are in neither set.
        checksums : bool
            As for `verify`.

        Returns
        -------
        intact, damaged : set of str
        """
        written = self.done()
        present = [key for key in keys if key in written]
        whole = {key for key in present if self.verify(key, checksums=checksums).scores}
        return whole, {*present} - whole

    def _meta(self, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read meta.json of a node.

        Returns
        -------
        facts : dict
        files : dict of str to dict
            Size and SHA-256 of the node's other files by name; empty in folders of old versions.
        """
        with self._reading(key, META, {}) as data:
            facts = json.loads(data.getvalue())
            files = facts.pop("files", {})
            checksum = facts.pop("sha256", None)
            signed = _signed({**facts, "files": files}) if files else {}
            if signed and signed["sha256"] != checksum:
                raise ValueError("its content is not what was written")
            return facts, files

    @contextmanager
    def _reading(
        self, key: str, name: str, files: Mapping[str, Any]
    ) -> Iterator[io.BytesIO]:
        """Yield the content of a node's file, and convert errors of reading it in the block.

        Parameters
        ----------
        key, name : str
            Node and name of the file.
        files : mapping of str to dict
            Size and SHA-256 of files, which are checked.

        Raises
        ------
        StoreError
            If the file is missing or damaged.
        """
        from safetensors import SafetensorError

        path = self.folder(key) / name
        if not path.is_file():
            message = f"node {key} has no {name}."
            raise StoreError(message, where=path.parent, do=RETRAIN)
        try:
            data = path.read_bytes()
            if name in files and _fingerprint_of(data) != files[name]:
                raise ValueError("its content is not what was written")
            yield io.BytesIO(data)
        except (*BROKEN, SafetensorError) as error:
            message = f"damaged file ({error})."
            raise StoreError(message, where=path, do=RETRAIN) from error

    # -- the experiment ------------------------------------------------------------------------
    def write_experiment(self, data: Mapping[str, Any]) -> None:
        """Write experiment.json, which `status` and `report` read."""
        write_text(
            self.root / "experiment.json", json.dumps(data, indent=1, sort_keys=True)
        )

    def read_experiment(self) -> dict[str, Any]:
        """Return the content of experiment.json.

        Raises
        ------
        StoreError
            If there is none.
        ValueError
            If the file is damaged.
        """
        path = self.root / "experiment.json"
        if not path.is_file():
            raise StoreError(
                "this is not a run folder (no experiment.json).",
                where=self.root,
                do="Run it first, or give the folder that was --out of `fcforge run`.",
            )
        return json.loads(path.read_bytes())

    def unreadable(self, error: Exception) -> StoreError:
        """Return the error for an experiment.json that cannot be read."""
        reason = f"no {error}" if isinstance(error, KeyError) else error
        return StoreError(
            f"damaged, or written by another version of fcforge ({reason}).",
            where=str(self.root / "experiment.json"),
            do="Delete this file and run the same command again if it is only damaged (nothing is "
            "trained twice); else choose another --out.",
        )

    def size(self) -> int:
        """Return the number of bytes on disk."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


def _signed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with the SHA-256 of their canonical JSON."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    plain = json.loads(text)
    return {**plain, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _fingerprint(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file."""
    return _fingerprint_of(path.read_bytes())


def _fingerprint_of(data: bytes) -> dict[str, Any]:
    """Return size and SHA-256 of the content of a file."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _is_whole(path: Path, written: Mapping[str, Any] | None, checksums: bool) -> bool:
    """Return whether a file exists and is unchanged, as far as its size or checksum can tell.

    Parameters
    ----------
    path : Path
    written : mapping or None
        Size and SHA-256 at the time of writing; None if unknown.
    checksums : bool
        Whether to compare the SHA-256, too.
    """
    try:
        if written is None:  # a folder of an old version has no fingerprints
            return path.stat().st_size > 0
        if not checksums:
            return path.stat().st_size == written["size"]
        return _fingerprint(path) == written
    except OSError:
        return False
