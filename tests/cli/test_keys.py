"""Keys and encryption as a hospital types them."""

from real_runs import fcforge


def test_a_file_goes_to_its_recipient_and_comes_back(tmp_path):
    (tmp_path / "a.capsule").write_bytes(b"a capsule")
    made = fcforge("keys", "age", tmp_path / "um.txt")
    recipient = made.out.split()[-1]
    assert (made.code, recipient[:4]) == (0, "age1")
    sent = fcforge("encrypt", tmp_path / "a.capsule", "--to", recipient)
    assert (sent.code, sent.out) == (0, f"wrote {tmp_path / 'a.capsule.age'}\n")
    again = ("decrypt", tmp_path / "a.capsule.age", "--identity", tmp_path / "um.txt")
    assert "exists already" in fcforge(*again).err
    (tmp_path / "a.capsule").unlink()
    assert fcforge(*again).code == 0
    assert (tmp_path / "a.capsule").read_bytes() == b"a capsule"


def test_a_wrong_identity_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "a.capsule").write_bytes(b"a capsule")
    fcforge("keys", "age", tmp_path / "other.txt")
    mine = fcforge("keys", "age", tmp_path / "mine.txt").out.split()[-1]
    fcforge("encrypt", tmp_path / "a.capsule", "--to", mine)
    sealed = tmp_path / "a.capsule.age"
    answer = fcforge(
        "decrypt", sealed, "--identity", tmp_path / "other.txt", "--out", "no"
    )
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "ask the sender to encrypt it for you" in answer.err
