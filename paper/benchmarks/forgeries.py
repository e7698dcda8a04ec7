"""All forgeries of both kinds of file, and `learn` killed at random moments or run twice at once.

Run: ``python paper/benchmarks/forgeries.py`` (some minutes; ``--every 20 --kills 3 --pairs 2``:
half of one). Exit code 1 where something got through.
"""

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[2]
sys.path[:0] = [str(HERE / "tests"), str(HERE / "tests" / "consortium")]

import small_exchange as small  # noqa: E402
from forging import accepted, forgeries, knowing  # noqa: E402
from test_forgeries import chained, released  # noqa: E402

from fcforge_consortium.ledger.known import KnownLedgers  # noqa: E402
from fcforge_consortium.ledger.ledger import Ledger  # noqa: E402
from fcforge_consortium.records import archive  # noqa: E402
from fcforge_consortium.records.exchange import save  # noqa: E402
from fcforge_consortium.records.keys import read_private, write_keys  # noqa: E402

SECONDS = 20  # a file that takes longer hangs
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def forged(folder: Path, every: int) -> bool:
    """Try all forgeries, or one in `every`, and say what got through; whether nothing did."""
    wrong: list[str] = []
    tracebacks: Counter[str] = Counter()
    tried = 0
    begun = time.perf_counter()
    signal.signal(signal.SIGALRM, _hangs)
    for make in (released, chained):
        exchange, forger = make()
        trust = knowing(exchange)
        for forgery in islice(forgeries(exchange, forger), 0, None, every):
            tried += 1
            signal.alarm(SECONDS)
            try:
                given = (forgery, exchange, forger, trust, folder / "forged.fcx")
                wrong.append(accepted(*given))
            except Exception as error:  # noqa: BLE001 (that is what is looked for)
                tracebacks[f"{type(error).__name__}: {forgery.what}"] += 1
            signal.alarm(0)
    through = [name for name in wrong if name]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - begun
    print(f"{tried} forgeries in {seconds:.0f} s, at most {memory:.0f} MB of memory")
    print(f"accepted with a false statement: {len(through)}", *through[:20], sep="\n  ")
    total = sum(tracebacks.values())
    print(f"tracebacks or hanging: {total}", *list(tracebacks)[:20], sep="\n  ")
    return not through and not tracebacks


def _hangs(*_: Any) -> None:
    raise TimeoutError("hangs")


class Hospital:
    """A hospital with a folder of its own, about to learn."""

    def __init__(self, above: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=above))
        self.site = small.sites()[2]
        self.data = small.data_file(self.folder)
        write_keys(self.folder / "key")

    def learning(self, out: str) -> "subprocess.Popen[bytes]":
        """``fcforge consortium contribute``, running."""
        arguments = ["consortium", "contribute", "--site", self.site]
        arguments += ["--data", self.data, "--yes", "--sign", self.folder / "key"]
        arguments += ["--new-ledger"]
        arguments += [
            "--state",
            self.folder.parent / "start.fcx",
            "--out",
            self.folder / out,
        ]
        command = [sys.executable, "-m", "fcforge.cli", *map(str, arguments)]
        return subprocess.Popen(command, **SILENT)  # type: ignore[call-overload]

    def releases(self) -> int:
        """Return the number of contributions; raise `AssertionError` unless ledger, list and files agree."""
        key = read_private(self.folder / "key")
        path = self.folder / "fcforge.private"
        begun = path.exists() and path.read_bytes().count(b"\n") > 1
        new = None if begun else Ledger.new(self.site, key)
        with Ledger.of_key(path, key, self.folder / "key", new) as private:
            entries = {entry.commitment for entry in private.entries}
            head = private.heads[-1]
        with KnownLedgers.open(self.folder / "key", key) as known:
            assert [one.head for one in known.ledgers.values()] == [head]
        given = set()
        for path in self.folder.glob("*.fcx"):
            mine = [r for r in archive.read(path).records if r.site == self.site]
            given |= {record.committed for record in mine}
        assert entries == given, (entries, given)
        hidden = [p.name for p in self.folder.iterdir() if p.name.startswith(".")]
        assert hidden == []
        return len(entries)


def killed(folder: Path, times: int) -> Counter[int]:
    """Releases after `learn` was killed at random moments."""
    begun = time.perf_counter()
    assert Hospital(folder).learning("a.fcx").wait() == 0
    whole = time.perf_counter() - begun
    results: Counter[int] = Counter()
    for moment in np.random.default_rng(0).uniform(0.4, 1.1, times) * whole:
        hospital = Hospital(folder)
        running = hospital.learning("a.fcx")
        time.sleep(moment)
        running.kill()
        running.wait()
        results[hospital.releases()] += 1
    return results


def twice(folder: Path, times: int) -> Counter[int]:
    """Releases after two `learn` of the same people at once."""
    results: Counter[int] = Counter()
    for _ in range(times):
        hospital = Hospital(folder)
        both = [hospital.learning(name) for name in ("a.fcx", "b.fcx")]
        codes = [running.wait() for running in both]
        assert sorted(codes) == [0, 2], codes
        results[hospital.releases()] += 1
    return results


def main() -> int:
    """Everything, in a folder that goes afterwards."""
    asked = argparse.ArgumentParser(description="Forgeries, and learn interrupted.")
    asked.add_argument("--every", type=int, default=1, help="Try one forgery in N.")
    asked.add_argument("--kills", type=int, default=30, help="Times learn is killed.")
    asked.add_argument("--pairs", type=int, default=20, help="Times two run at once.")
    args = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = forged(folder, args.every)
        save(small.start(), folder / "start.fcx")
        results = dict(killed(folder, args.kills))
        print(f"killed {args.kills} times: {results} releases: times; all agree")
        results = dict(twice(folder, args.pairs))
        print(f"two at once {args.pairs} times: {results}; all agree")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
