"""Options of several words beside the three words of a BIDS App."""

import pytest

from fcforge.cli.several_values import Options, spread

OPTIONS = Options(
    ["--participant-label", "--session-label"],
    ["--atlas", "-w", "--work-dir"],
    ["--overwrite", "--report", "--no-report", "--help"],
    2,
)
TRIO = ["IN", "OUT", "participant"]


def p(*labels: str) -> list[str]:
    return [word for label in labels for word in ("--participant-label", label)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("IN OUT participant --participant-label A B", [*TRIO, *p("A", "B")]),
        ("IN OUT participant --participant_label A B", [*TRIO, *p("A", "B")]),
        ("--participant-label A B IN OUT participant", [*p("A", "B"), *TRIO]),
        ("--participant-label A IN OUT", [*p("A"), "IN", "OUT"]),
        ("--participant-label A B IN OUT", [*p("A", "B"), "IN", "OUT"]),
        ("IN --participant-label A B OUT participant", ["IN", *p("A", "B"), *TRIO[1:]]),
        (
            "IN OUT --participant-label A B participant",
            [*TRIO[:2], *p("A", "B"), TRIO[2]],
        ),
        ("IN OUT group --participant-label group", ["IN", "OUT", "group", *p("group")]),
        (
            "IN OUT participant --participant-label A --participant-label B C",
            [*TRIO, *p("A", "B", "C")],
        ),
        (
            "--participant-label A IN OUT participant --session-label X Y",
            [*p("A"), *TRIO, "--session-label", "X", "--session-label", "Y"],
        ),
        (
            "--session-label X --participant-label A B IN OUT participant",
            ["--session-label", "X", *p("A", "B"), *TRIO],
        ),
        ("--participant-label=A IN OUT", ["--participant-label=A", "IN", "OUT"]),
        (
            "IN OUT --participant-label A B --atlas x -w W --overwrite participant",
            [
                "IN",
                "OUT",
                *p("A", "B"),
                "--atlas",
                "x",
                "-w",
                "W",
                "--overwrite",
                TRIO[2],
            ],
        ),
        ("IN OUT --participant-label", ["IN", "OUT", "--participant-label"]),
        (
            "IN OUT --participant-label A -- participant",
            ["IN", "OUT", *p("A"), "--", "participant"],
        ),
        (
            "IN OUT --participant-label A --unknown B",
            [*TRIO[:2], *p("A"), "--unknown", "B"],
        ),
        ("--help", ["--help"]),
    ],
)
def test_every_order_of_words(words, expected):
    assert spread(words.split(), OPTIONS) == expected
