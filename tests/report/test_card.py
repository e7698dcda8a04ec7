"""The model card: made from a verified file, of either kind; no name in it can format or lie."""

import re

import pytest
import small_consortium as small
from consortium_world import ANALYTIC, EVIL, audit, cohort, renamed, settings, write_key

from fcforge.capsule import LearnOptions, learn, open_capsule, seal, with_audit
from fcforge.capsule.keys import read_private
from fcforge.capsule.sealing import Trust
from fcforge.consortium import write_consortium
from fcforge.errors import CapsuleError
from fcforge.report.card import card_of, write_card
from fcforge.report.inspect import answers

SECTIONS = [
    "Intended use",
    "Not for",
    "People and sites",
    "Who signed it?",
    "What travels?",
    "Does it work on real people?",
    "Can an attacker tell who took part?",
    "Who wrote what, with which version",
]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A signed capsule with an audit in its ledger."""
    folder = tmp_path_factory.mktemp("chain")
    key, site = read_private(write_key(folder)), cohort().site_names[0]
    first = folder / "1.capsule"
    options = LearnOptions(key=key)
    learn(None, site, cohort(), first, settings=settings(ANALYTIC, 10), options=options)
    seal(
        with_audit(open_capsule(first), audit(site).to_ledger()),
        folder / "2.capsule",
        key=key,
    )
    return folder / "2.capsule"


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    path = tmp_path_factory.mktemp("releases") / "all.capsule"
    group = small.empty().joined([small.release_of(small.sites()[2])])
    return write_consortium(group, path)


def test_a_chain_says_people_accuracy_attacks_signers_and_versions(chain):
    text, capsule = card_of(chain), open_capsule(chain)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    line = capsule.entries[0]
    own = line["metrics"]["own_test"]["accuracy"]
    row = next(r for r in text.splitlines() if r.startswith(f"| {line['site']} |"))
    assert f"{line['counts']['learning']['controls']} controls" in row
    assert f"{own:.3f} " in row
    assert text.count(line["key"]) == 2  # of learning, and of the audit
    assert "picks the right one 94 times in 100" in text
    assert f"| {line['environment']['fcforge']} |" in text
    assert "not a medical device" in text
    for answer in answers(capsule):
        assert answer.say in text


def test_a_capsule_of_releases_has_one_too(releases):
    text = card_of(releases)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    assert f"| release of {small.sites()[2]} |" in text
    assert "| nobody |" in text
    assert "majority class" in text.replace("commonest class", "majority class")
    assert "differential privacy, epsilon 1" in text


def test_it_lies_beside_the_capsule(chain):
    out = write_card(chain)
    assert out.name == "2.capsule.card.md"
    assert out.read_text() == card_of(chain)


@pytest.mark.parametrize("kind", ["chain", "releases"])
def test_what_verify_refuses_has_no_card(kind, request, tmp_path):
    data = request.getfixturevalue(kind).read_bytes()
    path = tmp_path / "x.capsule"
    for place in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CapsuleError):
            write_card(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_that_is_not_trusted_gives_no_card(chain, releases, tmp_path):
    stranger = f"{write_key(tmp_path)}.pub"
    for path in (chain, releases):
        with pytest.raises(CapsuleError, match=r"trusted|signed by nobody"):
            card_of(path, Trust.of([stranger]))


@pytest.mark.parametrize(
    "name", [EVIL, "x](http://e) | ## y `z` **w** _v_", "a\u202eb\nc"]
)
def test_no_name_formats_the_card(name, tmp_path):
    path = tmp_path / "evil.capsule"
    people = renamed({cohort().site_names[0]: name})
    learn(None, name, people, path, settings=settings(ANALYTIC, 10))
    text = card_of(path)
    bare = re.sub(r"\\[\\*_{}\[\]<>#|~]", "", text)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    assert not re.search(r"<|\]\(|\*\*|\u202e|`z", bare)
    rows = [r for r in bare.splitlines() if r.startswith("|")]
    assert {r.count("|") for r in rows} <= {3, 5, 7}
