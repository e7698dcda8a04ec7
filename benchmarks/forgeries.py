"""All forgeries of both kinds of file: none accepted with a false statement, no traceback, memory.

Run: ``python benchmarks/forgeries.py`` (a few minutes). Exit code 1 where one got through.
"""

import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE / "tests" / "exchange"))

from forging import accepted, forgeries, knowing  # noqa: E402
from test_forgeries import chained, released  # noqa: E402


def main() -> int:
    """Try them all and say how many there were, how long it took and what got through."""
    place = Path(tempfile.mkdtemp()) / "forged.fcx"
    wrong: list[str] = []
    tracebacks: Counter[str] = Counter()
    tried = 0
    begun = time.perf_counter()
    for make in (released, chained):
        exchange = make()
        trust = knowing(exchange)
        for forgery in forgeries(exchange):
            tried += 1
            try:
                wrong.append(accepted(forgery, exchange, trust, place))
            except Exception as error:  # noqa: BLE001 (that is what is looked for)
                tracebacks[f"{type(error).__name__}: {forgery.what}"] += 1
    through = [what for what in wrong if what]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - begun
    print(f"{tried} forgeries in {seconds:.0f} s, at most {memory:.0f} MB of memory")
    print(f"accepted with a false statement: {len(through)}", *through[:20], sep="\n  ")
    print(f"tracebacks: {sum(tracebacks.values())}", *list(tracebacks)[:20], sep="\n  ")
    return 1 if through or tracebacks else 0


if __name__ == "__main__":
    sys.exit(main())
