"""Small records of every kind, for tests of modules that read or store them."""

from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fcforge_consortium.aggregation.aggregators import card_of
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.keys import public_hex
from fcforge_consortium.records.policy import Policy

SHA = "ab" * 32
BUDGET = {
    "mechanism": "gaussian",
    "epsilon": 1.0,
    "delta": 1e-6,
    "spent_epsilon": 1.0,
    "spent_delta": 1e-6,
}


@cache
def key_of(name: str) -> Ed25519PrivateKey:
    """Return the private key of a name, the same in every test."""
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).encode()[:32])


def public_of(name: str) -> str:
    return public_hex(key_of(name))


POLICY = Policy(
    disorder="autism",
    aggregators=tuple(card_of(n, key_of(n)) for n in ("University", "Ministry")),
)
ARRAYS = save_arrays({"numbers": np.arange(18, dtype=np.int64)})
START = {
    "payload": sha256(ARRAYS),
    "dataset": "simulated",
    "people_sha256": SHA,
    "people": 3,
    "patients": 1,
    "sites": {"PITT": 3},
    "ids": ("1", "2", "3"),
    "left_out": (),
    "n_rois": 4,
    "roi_names": (),
    "removes": ("age",),
    "ranges": {"age": (8.0, 40.5)},
    "settings": {"axes": 2, "shrink": 0.1, "directions": "pca"},
    "limits": records.BaseModelLimits(size=2.0, likeness=0.5, site=0.3),
    "expected": records.ExpectedQuality(
        people=3, majority=0.5, accuracy=None, auroc=None
    ),
    "policy": POLICY,
}
PART = records.SplitCounts(controls=20, patients=None)
CONTENT = {
    records.BaseModelRecord: START,
    records.Chain: {
        "settings": {"seed": 0, "learner": {"name": "ewc"}},
        "policy": POLICY,
    },
    records.Contribution: {
        **BUDGET,
        "payload": SHA,
        "grid": 2.0**-20,
        "variance": "1/3",
        "commitment": SHA,
    },
    records.Step: {
        "payload": SHA,
        "counts": records.StepCounts(learning=PART, test=PART),
        "held_out": {"NYU": 0.75},
        "own_test": None,
        "temperature": 1.5,
        "reference": records.ScanLimits(inside=None, outside=None, pattern=None),
        "flags": (),
        "commitment": SHA,
    },
    records.Notice: {
        **BUDGET,
        "round": "R1",
        "shares": tuple(
            records.GivenShare(aggregator=n, sha256=SHA)
            for n in ("University", "Ministry")
        ),
        "commitment": SHA,
    },
    records.Closing: {
        "round": "R1",
        "hospitals": tuple(
            records.ClosedMember(site=n, notice=SHA, number=1, commitment=SHA)
            for n in ("NYU", "UM", "USM")
        ),
    },
    records.AggregateShare: {
        "payload": SHA,
        "closings": (SHA, "cd" * 32),
        "round": "R1",
        "hospitals": tuple(
            records.RoundMember(site=n, notice=SHA, share=SHA)
            for n in ("NYU", "UM", "USM")
        ),
        "mechanism": "gaussian",
        "epsilon": 1.0,
        "delta": 1e-6,
        "grid": 2.0**-20,
        "variance": "12",
    },
    records.Withdrawal: {
        "takes": (records.Withdrawn(kind="contribution", number=1, commitment=SHA),),
        "gone": (),
    },
    records.Rotation: {"new_key": public_of("new"), "vouches": (), "proof": "0" * 128},
}


def record(kind, site="NYU", number=1, parents=(SHA,), signer="", **changes):
    """Return a record of a kind, with some fields changed."""
    if kind.is_root:
        number, parents = 0, ()
    key = key_of(signer) if signer else None
    content = {**CONTENT[kind], **changes}
    if kind is records.Rotation:
        key = key_of(signer or site)
        agreed = records.agreement(site, public_hex(key), content["vouches"])
        content["proof"] = key_of("new").sign(agreed).hex()
    return records.make(kind, site, number, parents, key, **content)
