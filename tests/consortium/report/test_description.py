"""Descriptions of any consortium file: signatures, tables counted from the file."""

from exchange_records import record
from small_exchange import all_given, sites, start

from fcforge_consortium.records.kinds import BaseModelRecord, Chain, Contribution
from fcforge_consortium.report import description
from fcforge_consortium.report.describe import describe


def test_who_signed():
    root = record(Chain, signer="NYU")
    nobody = description.who_signed(root, [])
    assert (nobody.kind, nobody.question) == ("", "Who signed it?")
    assert root.key[:16] in nobody.more[0]
    plain = description.who_signed(record(BaseModelRecord), [])
    assert plain.more == ("Nobody signed the base model.",)
    signed = record(Contribution, site="NYU", signer="NYU")
    some = description.who_signed(root, [signed, record(Contribution, site="UM")])
    assert (some.kind, some.say) == ("warn", "Not everybody: UM did not sign.")
    all_of_them = [record(Contribution, site="UM", signer="UM"), signed]
    good = description.who_signed(root, all_of_them)
    assert (good.kind, good.say) == (
        "good",
        "Everybody signed their own records (2 authors).",
    )
    first = all_of_them[0].key[:16]
    assert good.more[0] == f"Keys: NYU {signed.key[:16]}, UM {first}."
    sealed = record(BaseModelRecord, site="public people", signer="maker")
    told = description.who_signed(sealed, [signed])
    assert "(2 authors)" in told.say
    assert f"public people {sealed.key[:16]}" in told.more[0]
    bare = description.who_signed(record(Chain), all_of_them)
    assert (bare.kind, bare.say) == (good.kind, good.say)
    assert f"that they all build on: {record(Chain).id}" in bare.more[-1]


def test_the_tables_count_what_is_there():
    exchange = all_given()
    rows = describe(exchange).tables[-1].rows
    numbers = [int(row[-1]) for row in rows if row[0].startswith("contribution")]
    assert numbers == [exchange.model.size] * len(sites()[2:])
    assert len(rows) == len(exchange.everything)
    budgets = [row[2] for row in rows]
    assert sum("epsilon 1, " in said for said in budgets) == len(exchange.records)
    assert describe(start()).tables[-1].rows[0][3] == "not signed"
