"""Numbers out of text and MATLAB files, as toolboxes write them."""

import struct
import zlib

import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.parsers import as_number, parse_mat, parse_table

BY_HAND = np.array([[0.5, 1.5, 2.5], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("afni.1D", "#2001\t#2002\t#2003\n0.5\t1.5\t2.5\n3\t4\t5\n"),
        ("trailing.1D", "# c\n0.5\t1.5\t2.5\t\n3\t4\t5\t\n"),
        ("spaces.txt", "  0.5   1.5 2.5\n\n 3 4 5 \n"),
        ("matlab.txt", "% by MATLAB\n0.5,1.5,2.5\n3,4,5"),
        ("header.csv", "Precentral_L,Precentral_R,Insula_L\n0.5,1.5,2.5\n3,4,5\n"),
        ("quoted.csv", '"a","b","c"\n0.5,1.5,2.5\n3,4,5\n'),
        ("pandas.csv", ",0,1,2\n0,0.5,1.5,2.5\n1,3,4,5\n"),
        ("codes.csv", ",2001,2002,2003\n0,0.5,1.5,2.5\n1,3,4,5\n"),
        ("noindex.csv", "0,1,2\n0.5,1.5,2.5\n3,4,5\n"),
        ("named.tsv", "Node\ta\tb\tc\nx\t0.5\t1.5\t2.5\ny\t3\t4\t5\n"),
        ("semicolon.csv", "0.5;1.5;2.5\n3;4;5\n"),
        ("bom.csv", "\ufeff0.5,1.5,2.5\r\n3,4,5\r\n"),
        ("declared.csv", "sep=|\n0.5|1.5|2.5\n3|4|5\n"),
        ("commas.csv", "0,5;1,5;2,5\n3;4;5\n"),
        ("commas.tsv", "0,5\t1,5\t2,5\n3\t4\t5\n"),
        ("commas.txt", "0,5 1,5 2,5\n3 4 5\n"),
    ],
)
def test_text_as_toolboxes_write_it(name, text, tmp_path):
    path = tmp_path / name
    path.write_bytes(text.encode())
    values, names = read_matrix_file(path)
    np.testing.assert_array_equal(values, BY_HAND)
    assert names == {
        "afni.1D": ("2001", "2002", "2003"),
        "header.csv": ("Precentral_L", "Precentral_R", "Insula_L"),
        "quoted.csv": ("a", "b", "c"),
        "codes.csv": ("2001", "2002", "2003"),
        "named.tsv": ("a", "b", "c"),
    }.get(name, ())


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig"])
def test_names_in_other_encodings(encoding, tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes("Señal,Größe,c\n0.5,1.5,2.5\n3,4,5\n".encode(encoding))
    values, names = read_matrix_file(path)
    np.testing.assert_array_equal(values, BY_HAND)
    assert names == ("Señal", "Größe", "c")


def test_missing_values_become_nan(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("a\tb\tc\n1\tn/a\t3\n4\tNaN\t\n")
    np.testing.assert_array_equal(
        read_matrix_file(path)[0], [[1, np.nan, 3], [4, np.nan, np.nan]]
    )


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("ragged.csv", b"1,2,3\n4,5\n", "line 2 has 2 values, the lines before it 3"),
        ("word.csv", b"1,2\n3,x\n", "line 2 holds 'x'"),
        ("empty.csv", b"", "is empty"),
        ("comment.1D", b"# nothing\n", "is empty"),
        ("binary.csv", b"\x00\x01\xff\xfe", "cannot be read"),
        ("noise.npz", b"\x93\x01\x02\x03", r"cannot be read \(File is not a zip"),
        ("words.txt", b"hello\nworld\n", "not a matrix"),
        ("scan.nii", b"x", "unknown file type '.nii'.*Known: .1d, .csv"),
    ],
)
def test_bad_text(name, content, match, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        read_matrix_file(tmp_path / name)[0]
    assert name in str(caught.value)


def mat_variable(payload: bytes, says: int) -> bytes:
    """A .mat file of one compressed variable whose tag says `says` bytes."""
    packed = zlib.compress(struct.pack("<II", 14, says) + payload)
    head = b"MATLAB 5.0".ljust(124, b" ") + b"\x00\x01IM"
    return head + struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize("first", ["", "# of the clinic\n"])
def test_a_spreadsheets_first_line_and_empty_rows_are_no_people(first):
    text = f"{first}id;age;\n1;12,5;\n;;\n2;13;\n;;\n"
    rows = [{"id": "1", "age": "12,5", "": ""}, {"id": "2", "age": "13", "": ""}]
    assert parse_table(text) == rows


def test_two_columns_of_one_name_are_a_question():
    with pytest.raises(DataError, match="2 columns named 'age'"):
        parse_table("id,age,age\n1,12,13\n")


def test_a_compressed_variable_of_another_length_is_refused():
    with pytest.raises(ValueError, match="differs from its stated length"):
        parse_mat(mat_variable(bytes(1000), says=16))
    with pytest.raises(ValueError, match="cut off inside a variable"):
        parse_mat(mat_variable(b"", says=16))


@pytest.mark.parametrize("cell", ["1_0", "0.1_5", "1_000", "_1"])
def test_digits_joined_by_underscores_are_no_number(cell, tmp_path):
    """Python's float takes 1_0 for 10."""
    assert as_number(cell) is None
    path = tmp_path / "a.csv"
    path.write_text(f"0.5,1.5\n{cell},2.5\n1,2\n")
    with pytest.raises(DataError, match=f"line 2 holds '{cell}'"):
        read_matrix_file(path)
