"""People of a hospital as its ledger lists them, identified by id and by scan.

A *sketch* is a short code of a scan. Two scans of one person have similar sketches
(`fcforge.data.sketches`), so that a person is recognised under another id.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy import ndarray as Array
from pydantic import Field, ValidationError

from fcforge.core.errors import DataError
from fcforge.data.cohort import Cohort
from fcforge.data.sketches import SIZE, same_scans, sketches_of
from fcforge.data.subject_ids import person_keys
from fcforge_consortium.records.canonical import sha256, validation_message
from fcforge_consortium.records.fields import Closed, Name, Sha256, Text

Sketch = Annotated[str, Field(pattern=f"^[01][A-Za-z0-9+/]{{{SIZE * 4 // 3}}}$")]


class Person(Closed):
    """A person in a ledger.

    Attributes
    ----------
    id : str
        Id in the hospital's data; empty if unknown.
    scan : str
        SHA-256 of the FC matrix.
    diagnosis : str
        Diagnosis, or scaled value of a numeric target.
    sketch : str
        Sketch of the scan, which recognises duplicate scans.
    """

    id: Text
    scan: Sha256
    diagnosis: Name
    sketch: Sketch


People = tuple[Person, ...]


def people_of(fc: Array, ids: Sequence[str], y: Array) -> People:
    """Return the people behind FC matrices, ids and diagnoses.

    Parameters
    ----------
    fc : ndarray of shape (n, R, R)
        FC matrices of n people, for R ROIs.
    ids : sequence of str
    y : ndarray of shape (n,)
        Diagnoses as integers, or scaled values of a numeric target.

    Returns
    -------
    tuple of Person
        In the order of the scans.
    """
    scans = np.ascontiguousarray(fc, dtype="<f4")
    people = []
    for subject_id, scan, sketch, label in zip(
        ids, scans, sketches_of(fc), y, strict=True
    ):
        digest = sha256(scan.tobytes())
        diagnosis = f"{label:.6f}" if y.dtype.kind == "f" else str(int(label))
        try:
            person = Person(
                id=str(subject_id), scan=digest, diagnosis=diagnosis, sketch=sketch
            )
        except ValidationError as error:
            message = f"a subject {validation_message(error)}."
            raise DataError(message, do="Use shorter or plainer ids.") from error
        people.append(person)
    return tuple(people)


def people_in(cohort: Cohort) -> People:
    """Return the people of a cohort, in order.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    tuple of Person
    """
    return people_of(cohort.fc, cohort.subject_id.tolist(), cohort.y)


def same_people(people: People, others: People) -> Array:
    """Return which people are among others, by id or by scan.

    Ids of one person in two spellings are one id (`fcforge.data.subject_ids`): both lists are one
    hospital's, which numbers its people in one way.

    Parameters
    ----------
    people, others : tuple of Person

    Returns
    -------
    ndarray of bool, shape (n,)
        True for those of the n `people` who are among `others`.
    """
    keys, other_keys = person_keys([p.id for p in people], [p.id for p in others])
    known = set(other_keys) - {""}
    same_id = np.array([key in known for key in keys], dtype=bool)
    same_scan = same_scans([p.sketch for p in people], [p.sketch for p in others])
    return same_id | same_scan.any(axis=1)
