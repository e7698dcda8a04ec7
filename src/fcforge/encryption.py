"""Files that only named recipients can read, in the age format (extra ``age``; age-encryption.org).

A signature says who wrote a capsule, encryption who may read it. A recipient is a public key that
begins with ``age1`` or ``ssh-ed25519``; whoever holds its identity file, or the SSH key, decrypts.
The format authenticates every byte: nothing is written before the last one was checked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fcforge.errors import FCForgeError, at, optional
from fcforge.writing import write_bytes

SUFFIX = ".age"
_MAGIC = b"age-encryption.org/v1\n"
_SECRET, _OPENSSH = "AGE-SECRET-KEY-1", "-----BEGIN OPENSSH PRIVATE KEY-----"
_PUBLIC = ("age1", "ssh-")
_READABLE = 1 << 20  # bytes of a file of keys


def encrypt(
    file: str | Path,
    to: Sequence[str],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Encrypt a file for the recipients: keys, or files that hold one on each line.

    Returns
    -------
    Path
        `out`, by default the file's name with ``.age``.
    """
    recipients = [recipient for said in to for recipient in _recipients(said)]
    out = _place(Path(out or f"{file}{SUFFIX}"), overwrite)
    write_bytes(out, _pyrage().encrypt(_content(file), recipients), private=True)
    return out


def decrypt(
    file: str | Path,
    identity: str | Path,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Decrypt a file with an identity file or an SSH key; all of it is checked, then written."""
    age, content = _pyrage(), _content(file)
    with at(file):
        if not content.startswith(_MAGIC):
            raise FCForgeError("is not encrypted in the age format.")
        if out is None and Path(file).suffix != SUFFIX:
            raise FCForgeError(f"does not end in {SUFFIX}.", do="Name it with --out.")
    out = _place(Path(out or Path(file).with_suffix("")), overwrite)
    try:
        plain = age.decrypt(content, _identities(identity))
    except age.DecryptError as error:
        what, do = (
            f"was damaged or changed ({error}).",
            "Nothing was written; ask for it again.",
        )
        if "matching keys" in str(error):
            what = f"is not encrypted for the identity in '{identity}'."
            do = "Use the identity of a recipient, or ask the sender to encrypt it for you."
        raise FCForgeError(what, where=file, do=do) from error
    write_bytes(out, plain, private=True)
    return out


def write_identity(path: str | Path) -> str:
    """Make an identity file as ``age-keygen`` does, for its owner only; returns its recipient."""
    made = _pyrage().x25519.Identity.generate()
    public = str(made.to_public())
    text = f"# public key: {public}\n{made}\n"
    write_bytes(_place(Path(path), overwrite=False), text.encode(), private=True)
    return public


def _pyrage() -> Any:
    return optional("pyrage", "age")


def _recipients(said: str) -> list[Any]:
    """A recipient, or those of a file (one on each line, ``#`` begins a comment)."""
    if said.startswith(_PUBLIC):
        return [_recipient(said)]
    with at(said):
        lines = [line for line in _lines(said) if not line.startswith("#")]
        if not lines:
            raise FCForgeError("names no recipient.")
        return [_recipient(line) for line in lines]


def _recipient(line: str) -> Any:
    age = _pyrage()
    if line.startswith(_SECRET):
        do = "Encrypt for the public key named in it, and never send that file."
        raise FCForgeError("holds a secret key, not a recipient.", do=do)
    try:
        return (age.ssh if line.startswith("ssh-") else age.x25519).Recipient.from_str(
            line
        )
    except age.RecipientError as error:
        do = "Use a key that begins with age1 or ssh-ed25519, whole, as its owner gave it."
        raise FCForgeError(
            f"'{line[:30]}' is not a recipient ({error}).", do=do
        ) from error


def _identities(path: str | Path) -> list[Any]:
    with at(path):
        age, lines = _pyrage(), _lines(path)
        try:
            if lines and lines[0] == _OPENSSH:
                return [age.ssh.Identity.from_buffer(Path(path).read_bytes())]
            found = [
                age.x25519.Identity.from_str(x) for x in lines if x.startswith(_SECRET)
            ]
        except age.IdentityError as error:
            raise FCForgeError(f"cannot be used as an identity ({error}).") from error
        if not found:
            do = f"It has a line that begins with {_SECRET}; `fcforge keys age FILE` makes one."
            raise FCForgeError("holds no identity.", do=do)
    return found


def _lines(path: str | Path) -> list[str]:
    if Path(path).is_file() and Path(path).stat().st_size > _READABLE:
        raise FCForgeError("is too large for a file of keys.")
    text = _content(path).decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _content(path: str | Path) -> bytes:
    """Bytes of a plain file; what a folder, a pipe or a missing file is, is said."""
    if Path(path).is_dir():
        do = "Write the capsule as one file: --out NAME.capsule."
        raise FCForgeError("is a folder.", where=path, do=do)
    if not Path(path).is_file():
        raise FCForgeError("does not exist, or is not a plain file.", where=path)
    return Path(path).read_bytes()


def _place(out: Path, overwrite: bool) -> Path:
    if out.exists() and not (overwrite and out.is_file()):
        do = "Choose another name, or give --overwrite."
        raise FCForgeError("exists already.", where=out, do=do)
    return out
