"""Validation of Ed25519 public keys and signatures, written as hexadecimal digits ("in hex")."""

import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CURVE = 2**255 - 19  # prime of the field in which coordinates lie
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# y coordinates of the points of order 1, 2, 4 and 8 (`EIGHTH` is one of order 8): a signature can be
# found that is valid under such a key for any message
SMALL_ORDER = {0, 1, CURVE - 1, EIGHTH, CURVE - EIGHTH}


def key_fault(key: str) -> str:
    """Return the fault of an Ed25519 public key.

    A key encodes a point of the curve by its y coordinate and one bit for the sign of x.

    Parameters
    ----------
    key : str
        Public key in hex.

    Returns
    -------
    str
        A predicate such as "is not 64 lower-case hex digits"; empty for a valid key in its
        canonical encoding.
    """
    if not re.fullmatch("[0-9a-f]{64}", key):
        return "is not 64 lower-case hex digits"
    y = int.from_bytes(bytes.fromhex(key), "little") % 2**255
    if y >= CURVE:
        return "is not in its canonical encoding (y lies outside the field)"
    if y in SMALL_ORDER:
        return "is a weak key of small order, for which anybody can forge signatures"
    return ""


def fits(public: str, signature: str, message: bytes) -> bool:
    """Return whether a signature of a message is valid under a public key.

    Parameters
    ----------
    public : str
        Ed25519 public key in hex.
    signature : str
        128 lower-case hex digits.
    message : bytes
        The signed bytes.

    Returns
    -------
    bool
        False, too, for a malformed or weak key and for a malformed signature.
    """
    if key_fault(public) or not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True
