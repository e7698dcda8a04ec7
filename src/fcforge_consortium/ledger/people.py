"""People of a hospital by id and by scan."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy import ndarray as Array
from pydantic import Field, ValidationError

from fcforge.core.errors import DataError
from fcforge.data.cohort import Cohort
from fcforge.data.sketches import SIZE, same_scans, sketches_of
from fcforge_consortium.records.canonical import sha256, validation_message
from fcforge_consortium.records.fields import Closed, Name, Sha256, Text

Sketch = Annotated[str, Field(pattern=f"^[01][A-Za-z0-9+/]{{{SIZE * 4 // 3}}}$")]


# -- people, receipts, thresholds ------------------------------------------------------------------
class Person(Closed):
    """Somebody who was given: id, SHA-256 and sketch of the scan, diagnosis (or scaled number)."""

    id: Text
    scan: Sha256
    diagnosis: Name
    sketch: Sketch


People = tuple[Person, ...]


def people_of(fc: Array, ids: Sequence[str], y: Array) -> People:
    """People by id, scan and diagnosis, in order; `fc` is (n, R, R)."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    found = []
    for who, scan, sketch, label in zip(ids, scans, sketches_of(fc), y, strict=True):
        digest = sha256(scan.tobytes())
        said = f"{label:.6f}" if y.dtype.kind == "f" else str(int(label))
        try:
            person = Person(id=str(who), scan=digest, diagnosis=said, sketch=sketch)
        except ValidationError as error:
            what = f"a subject {validation_message(error)}."
            raise DataError(what, do="Give people shorter or plainer ids.") from error
        found.append(person)
    return tuple(found)


def people_in(cohort: Cohort) -> People:
    """The people of a cohort, in order."""
    return people_of(cohort.fc, cohort.subject_id.tolist(), cohort.y)


def same_people(people: People, others: People) -> Array:
    """(n,): which of `people` are among `others`, by id or by scan."""
    ids = {person.id for person in others} - {""}
    named = np.array([person.id in ids for person in people], dtype=bool)
    known = same_scans([p.sketch for p in people], [p.sketch for p in others])
    return named | known.any(axis=1)
