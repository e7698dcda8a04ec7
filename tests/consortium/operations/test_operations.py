"""A hospital's step with files: checks before work, ledger before file, refusals."""

import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from exchange_records import key_of, public_of
from small_exchange import data_file, people, request, sites, start

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge.core.target import Target
from fcforge_consortium.aggregation.aggregators import card_of, write_aggregator
from fcforge_consortium.base_model.planning import noise_per_subject, planned_settings
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.base_model.space import SpaceSettings
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.base_model import write_base_model
from fcforge_consortium.operations.contribute import contribute, share_place
from fcforge_consortium.operations.records import merge_files, withdraw_file
from fcforge_consortium.operations.threshold import fit_threshold
from fcforge_consortium.options import (
    BaseModelRequest,
    MergeRequest,
    ThresholdRequest,
    WithdrawRequest,
)
from fcforge_consortium.records.exchange import open_exchange, save
from fcforge_consortium.records.keyring import read_keyring, write_keyring
from fcforge_consortium.records.keys import read_private, write_keys
from fcforge_consortium.records.kinds import Contribution
from fcforge_consortium.records.trust import Trust
from fcforge_consortium.report.describe import describe

SITE, OTHER = sites()[2:4]

FOUR = asdict(SpaceSettings(axes=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Base model, signed and not; everybody's data; a key of each hospital."""
    place = tmp_path_factory.mktemp("hospital")
    data_file(place)
    for name in ("maker", SITE, OTHER):
        write_keys(place / f"{name}.pem")
    save(start(), place / "start.fcx")
    key = read_private(place / "maker.pem")
    signed = make_base_model(people().select_sites(sites()[:2]), settings=FOUR, key=key)
    save(signed, place / "signed.fcx")
    return place


@pytest.fixture(autouse=True)
def fresh_keys(folder):
    """Each test has ledgers of its own: what the keys know of others is forgotten."""
    yield
    for listed in folder.glob("*.ledgers"):
        listed.unlink()


@pytest.fixture
def asked(folder, tmp_path):
    """A request of a site around the start, with a ledger of its own."""

    def ask(site=SITE, state="start.fcx", out="out.fcx", **more):
        given = {
            "data": folder / "people.npz",
            "state": folder / state,
            "out": tmp_path / out,
            "ledger": tmp_path / f"{site}.private",
            "new_ledger": not (tmp_path / f"{site}.private").exists(),
            **more,
        }
        return request(site, **given)

    return ask


def test_a_step_leaves_one_file_and_one_ledger(asked, tmp_path):
    told = []
    done = contribute(asked(), agree=lambda e: told.append(e.id))
    assert told == [start().id]
    assert open_exchange(tmp_path / "out.fcx").id == done.exchange.id
    private = Ledger.read(tmp_path / f"{SITE}.private")
    assert private.entries == (done.entry,)
    assert private.threshold is None
    assert len(list(tmp_path.iterdir())) == 2


def test_single_records_are_merged_and_withdrawn(asked, folder, tmp_path):
    for site in (SITE, OTHER):
        contribute(asked(site, out=f"{site}.record", sign=folder / f"{site}.pem"))
    parts = [
        tmp_path / f"{SITE}.record",
        folder / "start.fcx",
        tmp_path / f"{OTHER}.record",
    ]
    found = merge_files(MergeRequest(parts, tmp_path / "all.fcx"))
    merge_files(MergeRequest(parts[::-1], tmp_path / "again.fcx"))
    assert (tmp_path / "all.fcx").read_bytes() == (tmp_path / "again.fcx").read_bytes()
    assert found.model.sites == tuple(sorted((SITE, OTHER)))
    with pytest.raises(ExchangeError, match="neither a base model"):
        merge_files(MergeRequest(parts[:1], tmp_path / "none.fcx"))
    with pytest.raises(ExchangeError, match="exists"):
        merge_files(MergeRequest(parts, tmp_path / "all.fcx"))
    files = [tmp_path / "all.fcx", tmp_path / "gone.record"]
    gone = withdraw_file(WithdrawRequest(SITE, *files, sign=folder / f"{SITE}.pem"))
    assert [r.site for r in gone.of(Contribution)] == [OTHER]
    left = merge_files(MergeRequest(files, tmp_path / "left.fcx"))
    assert left.id == gone.id


def test_required_signatures_are_required(asked, folder, tmp_path):
    """`learn --require-signature` on an unsigned start exited with 0."""
    sign = {"require_signature": True, "sign": folder / f"{SITE}.pem"}
    with pytest.raises(ExchangeError, match="not signed"):
        contribute(asked(**sign))
    with pytest.raises(ConfigError, match="your own part"):
        contribute(asked(state="signed.fcx", require_signature=True))
    assert list(tmp_path.iterdir()) == []
    contribute(asked(state="signed.fcx", **sign))


def test_a_name_has_one_spelling(asked):
    assert contribute(asked(f" {SITE} ")).new[0].site == SITE
    with pytest.raises(ConfigError, match="site name"):
        contribute(asked("\u202eUYN"))


def test_the_place_is_checked_before_any_work(asked, folder, tmp_path):
    (tmp_path / "out.fcx").write_bytes(b"mine")
    with pytest.raises(ExchangeError, match="exists"):
        contribute(asked(data=folder / "nothing.npz"))
    assert (tmp_path / "out.fcx").read_bytes() == b"mine"


def test_new_records_are_signed_as_the_others_are(asked, folder, tmp_path):
    contribute(asked(sign=folder / f"{SITE}.pem"))
    with pytest.raises(ExchangeError, match="--sign"):
        contribute(asked(OTHER, state=tmp_path / "out.fcx", out="b.fcx"))
    assert not (tmp_path / f"{OTHER}.private").exists()


def test_nobody_is_charged_where_it_is_not_agreed(asked, tmp_path):
    def no(found):
        raise ConfigError("not this one.")

    with pytest.raises(ConfigError, match="not this one"):
        contribute(asked(), agree=no)
    assert list(tmp_path.iterdir()) == []


def test_the_ledger_is_beside_the_data(folder, tmp_path):
    data = tmp_path / "house" / "people.npz"
    data.parent.mkdir()
    data.write_bytes((folder / "people.npz").read_bytes())
    given = {"data": data, "state": folder / "start.fcx"}
    contribute(request(SITE, out=tmp_path / "one.record", new_ledger=True, **given))
    assert (data.parent / "fcforge.private").exists()
    with pytest.raises(ConfigError, match="contributed before"):
        contribute(request(SITE, out=tmp_path / "two.record", **given))


def test_other_diagnoses_and_rois_are_refused(asked, folder, tmp_path):
    named = replace(people(), target=Target(classes=("TC", "ASD")))
    save(make_base_model(named.select_sites(sites()[:2])), tmp_path / "asd.fcx")
    rows, columns = np.triu_indices(10, 1)
    mine = people().select_sites([SITE])
    about = {
        "fc_upper": mine.fc[:, rows, columns],
        "site": mine.site,
        "subject_id": mine.subject_id,
    }
    np.savez(tmp_path / "mdd.npz", label=np.where(mine.y == 1, "MDD", "HC"), **about)
    with pytest.raises(DataError, match="'MDD'"):
        contribute(
            asked(state=tmp_path / "asd.fcx", data=tmp_path / "mdd.npz", positive="MDD")
        )
    names = np.array(people().roi_names[::-1])
    np.savez(tmp_path / "turned.npz", label=mine.y, roi_names=names, **about)
    with pytest.raises(DataError, match="ROI 1 is 'ROI 9'"):
        contribute(asked(data=tmp_path / "turned.npz"))


def test_a_threshold_is_fitted_at_home(asked, folder, tmp_path):
    contribute(asked())
    place = tmp_path / f"{SITE}.private"
    told = (tmp_path / "out.fcx", folder / "people.npz", SITE)
    fitted = fit_threshold(ThresholdRequest(*told, place))
    assert Ledger.read(place).threshold == fitted
    with pytest.raises(DataError):
        fit_threshold(ThresholdRequest(*told, tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.fixture
def planned(folder, tmp_path):
    """A request for a start of two sites' people."""

    def made(**more):
        given = {
            "data": folder / "people.npz",
            "sites": ",".join(sites()[:2]),
            "out": tmp_path / "x.fcx",
        }
        return BaseModelRequest(**given | more)

    return made


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"remove": "weight"}, "weight"),
        ({"sites": "Nowhere"}, "Nowhere"),
        ({"overrides": ["base_model.axis=3"]}, "axes"),
        ({"overrides": ["starts.axes=3"]}, "can be set"),
        ({"overrides": ["base_model.axes=300"]}, "300"),
        ({"overrides": ["policy.max_epsilon=lots"]}, "lots"),
        ({"out": None}, "--out"),
        ({"exact": True, "epsilon": 1.0}, "--epsilon"),
        ({"public": "abide-aal"}, "--data"),
        ({"epsilon": 20.0}, "above the policy's largest epsilon"),
        ({"epsilon": 0.001}, "more noise than can be drawn"),
        ({"people": 3, "hospitals": 10}, "fewer than 10 people per hospital"),
    ],
    ids=str,
)
def test_a_start_that_cannot_be_meant(planned, tmp_path, more, says):
    with pytest.raises((ConfigError, DataError), match=says):
        write_base_model(planned(**more))
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_rounds_has_enough_hospitals_for_one(planned, folder, tmp_path):
    cards = []
    for name in ("Ministry", "University"):
        write_aggregator(tmp_path / name, name)
        cards.append(tmp_path / f"{name}.card")
    asked = {"aggregator": cards, "sign": folder / "maker.pem", "hospitals": 2}
    with pytest.raises(ConfigError, match=r"fewer hospitals than a round needs.*\(3\)"):
        write_base_model(planned(**asked))
    assert not planned().out.exists()


def test_a_start_is_written_with_its_policy(planned, folder, tmp_path):
    said = ["base_model.axes=4", "policy.disorder=autism", "policy.max_epsilon=2.0"]
    asked = planned(remove="age", overrides=said, sign=folder / "maker.pem")
    made = write_base_model(asked)
    assert open_exchange(tmp_path / "x.fcx", Trust(required=True)).id == made.id
    assert made.root.policy.disorder == "autism"
    assert made.root.policy.max_epsilon == 2.0


def test_planned_exact_sums_are_taken(planned):
    """One flag is enough; a policy that refuses them is no start."""
    said = {"sites": sites()[0], "exact": True}
    with pytest.raises(ConfigError, match="exact_allowed=false"):
        write_base_model(planned(**said, overrides=["policy.exact_allowed=false"]))
    assert not planned().out.exists()
    made = write_base_model(planned(**said, overrides=["base_model.axes=4"]))
    assert made.root.policy.exact_allowed


def test_a_start_is_made_for_its_plan_and_says_what_sums_would_add(planned, tmp_path):
    """Many people bear more directions; the table is in the file, for text and page alike."""
    made = {}
    for n in (50, 100_000):
        said = {"people": n, "hospitals": 4, "sites": ",".join(sites()[:3])}
        made[n] = write_base_model(planned(**said, out=tmp_path / f"{n}.fcx")).root
    assert made[50].settings["gamma"] < made[100_000].settings["gamma"]
    usual = asdict(planned_settings(noise_per_subject(50, 1.0, 4), 55))
    pull = made[50].settings["pull"]
    assert made[50].settings == {**usual, "pull": pull}
    assert (
        pull > usual["pull"]
    )  # fifty people's sums are noise: stay with the base model
    found = open_exchange(tmp_path / "50.fcx")
    rows = found.root.expected_gain.rows
    assert [row.epsilon for row in rows[:5]] == [None, 8.0, 4.0, 2.0, 1.0]
    assert [row.aggregators for row in rows] == [True] * 5 + [False] * 5
    table = describe(found).tables[1]
    assert table.title == "Expected gain of a round"
    assert [row[0] for row in table.rows] == ["none (exact)", "8", "4", "2", "1"]
    assert table.rows[-1][-1] == "57 in 100"


def test_one_public_site_cannot_tell_what_sums_would_add(planned):
    made = write_base_model(planned(sites=sites()[0], overrides=["base_model.axes=4"]))
    assert made.root.expected_gain is None
    titles = [table.title for table in describe(made).tables]
    assert "Expected gain of a round" not in titles


NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch was imported")
sys.meta_path.insert(0, NoTorch())
from pathlib import Path
from fcforge_consortium.contributions import prediction
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.options import ContributeRequest
folder, out = Path(sys.argv[1]), Path(sys.argv[2])
asked = dict(data=folder / "people.npz", state=folder / "start.fcx", ledger=out / "p")
asked |= {"new_ledger": True}
contribute(ContributeRequest(site=sys.argv[3], out=out / "a.fcx", **asked))
from fcforge_consortium.records.exchange import open_exchange
from fcforge.data.scan_checks import wrong_rois
from fcforge_consortium.operations.verification import verify
from fcforge_consortium.report.describe import describe
from fcforge_consortium.records.trust import Trust
found = open_exchange(out / "a.fcx")
assert all(check.ok for check in verify(out / "a.fcx", Trust()))
prediction.predict(found, folder / "people.npz")
describe(found)
"""


def test_a_hospital_needs_no_torch(folder, tmp_path):
    command = [sys.executable, "-c", NO_TORCH, folder, tmp_path, SITE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_given_to_aggregators_whose_names_are_known_with_other_keys(
    folder, asked, tmp_path, monkeypatch
):
    cards = tuple(
        card_of(name, read_private(folder / f"{who}.pem"))
        for name, who in (("Ministry", SITE), ("University", OTHER))
    )
    state = save(start(aggregators=cards), tmp_path / "swapped.fcx")
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    given = asked(state=state, round="spring", sign=folder / f"{SITE}.pem")
    empty = read_keyring()
    for name, key, told in (
        ("University", public_of("else"), "card of aggregator 'University'"),
        ("Hospital", cards[0].key, "card of aggregator 'Ministry'.* of 'Hospital'"),
    ):
        write_keyring(empty.add(name, key))
        with pytest.raises(ExchangeError, match=told):
            contribute(given)
    assert not given.ledger.exists()


def test_aggregators_who_differ_in_one_mark_get_two_shares(folder, asked, tmp_path):
    cards = tuple(
        card_of(name, key_of(name)) for name in ("\u0915\u093f", "\u0915\u0940")
    )
    out = tmp_path / "mine.record"
    places = {share_place(out, card.name) for card in cards}
    assert len(places) == 2
    assert share_place(out, "A/B: c-1.x") == tmp_path / "mine.A_B__c-1.x.share"
    state = save(start(aggregators=cards), tmp_path / "two.fcx")
    given = asked(state=state, out=out, round="spring", sign=folder / f"{SITE}.pem")
    done = contribute(given)
    assert {place.read_bytes() for place in places} == set(done.files.values())
