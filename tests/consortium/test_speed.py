"""What a consortium costs: seconds and bytes, with limits far above what was measured."""

import time
from dataclasses import replace
from functools import cache

import numpy as np
from small_consortium import empty

from fcforge.capsule.sealing import Trust
from fcforge.consortium import (
    Consortium,
    Home,
    Release,
    make_public,
    read_consortium,
    write_consortium,
    write_release,
)
from fcforge.consortium import few_vector as vector
from fcforge.consortium.files import verify
from fcforge.consortium.learning import Budget, learn
from fcforge.sites.simulated import simulate


@cache
def keys(n):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return [Ed25519PrivateKey.generate() for _ in range(n)]


def made_up(n, signed=False):
    """Releases of n hospitals of 100 people, as the Gaussian mechanism would give them."""
    arrays = empty().start.arrays
    noise = vector.noise_sd(arrays, 1.0, 1e-6)
    rng = np.random.default_rng(0)
    mean = np.r_[np.zeros(arrays.n_axes + 1), 25.0 * float(arrays.clip)]
    found = []
    for i in range(n):
        release = Release(
            f"H{i:05d}",
            empty().start.digest,
            "2026-01-01T00:00:00Z",
            "0.2.0",
            numbers=tuple((mean + noise * rng.standard_normal(len(mean))).tolist()),
            noise_sd=noise,
            commitment=f"{i:064x}",
        )
        found.append(release.signed(keys(n)[i]) if signed else release)
    return found


def timed(what, work):
    begun = time.process_time()
    made = work()
    seconds = time.process_time() - begun
    print(f"{what}: {seconds:.2f} s")
    return made, seconds


def test_ten_thousand_hospitals_in_seconds():
    records = made_up(10_000)
    group, seconds = timed("10,000 releases joined", lambda: empty().joined(records))
    assert seconds < 10
    _, seconds = timed("head from 10,000 releases", lambda: (group.beta, group.digest))
    assert seconds < 5
    alone = Consortium(group.start).joined(records[::-1])
    assert np.array_equal(alone.beta, group.beta)


def test_a_hundred_hospitals_are_merged_withdrawn_and_verified_at_once(tmp_path):
    records = made_up(100, signed=True)
    halves = [empty().joined(records[:60]), empty().joined(records[40:])]
    merged, seconds = timed("merge", lambda: halves[0].merged(halves[1]))
    assert seconds < 1
    assert len(merged.releases) == 100
    path = write_consortium(merged, tmp_path / "x.capsule")
    checks, seconds = timed("verify", lambda: verify(path, Trust()))
    assert seconds < 1
    assert all(check.ok for check in checks)
    less, seconds = timed("withdraw", lambda: merged.withdrawn("H00000", keys(100)[0]))
    assert seconds < 1
    assert len(less.releases) == 99
    alone = write_consortium(empty(), tmp_path / "start.capsule").stat().st_size
    each = (path.stat().st_size - alone) / 100
    print(f"{each:.0f} bytes a hospital, signature and all")
    assert each < 16_000


def test_learning_at_a_hospital_of_200_people(tmp_path):
    """AAL-116, 16 axes: under 5 s on two cores (measured 1.3 s of processor time)."""
    made = simulate("easy", n_rois=116, n_sites=3, scale=0.4)
    public, hospital = made.site_names[:2], made.site_names[2]
    group = Consortium(make_public(made, public))
    mine = made.select_sites([hospital])
    repeat = np.resize(np.arange(len(mine)), 200)
    rng = np.random.default_rng(0)
    fc = mine.fc[repeat] * (1 - 0.05 * rng.random((200, 1, 1), dtype=np.float32))
    fc[:, range(116), range(116)] = 1.0
    ids = np.array([f"p{i}" for i in range(200)])
    people = replace(
        mine.select(repeat),
        fc=fc,
        subject_id=ids,
        covariates={},
        provenance={},
        faults=(),
    )
    done, seconds = timed(
        "learn 200 people", lambda: learn(group, people, hospital, Home(), Budget())
    )
    assert seconds < 10
    size = write_release(done.release, tmp_path / "x.release").stat().st_size
    print(f"release: {size} bytes")
    assert size < 16_000
    path = write_consortium(done.group, tmp_path / "x.capsule")
    assert read_consortium(path).digest == done.group.digest
