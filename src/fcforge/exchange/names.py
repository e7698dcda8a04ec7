"""Names of sites: one spelling each, and no two that look alike.

A record is found by the name of its author. A name that only looks like another hospital's would
speak beside that hospital's key, so a name has one spelling and one script, and a file does not
hold two names that a reader could take for each other.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable
from string import digits

from fcforge.errors import ConfigError, ExchangeError

LONGEST = 64  # characters of a name
PUNCTUATION = frozenset(" -_.,'()&+/#:")
SCRIPTS = {
    "LATIN": "Latin",
    "GREEK": "Greek",
    "CYRILLIC": "Cyrillic",
    "CJK": "Chinese or Japanese",
    "HIRAGANA": "Chinese or Japanese",
    "KATAKANA": "Chinese or Japanese",
    "HANGUL": "Korean",
    "DEVANAGARI": "Devanagari",
    "BENGALI": "Bengali",
    "TAMIL": "Tamil",
    "THAI": "Thai",
}
PLAIN = "Write it in Latin letters, digits and - _ . only, as on the hospital's key."

# Letters without an ASCII letter inside that Latin names do use; phonetic signs and small
# capitals are no part of a name.
_LATIN = frozenset("ÆæØøŒœßÐðÞþĐđŁłĦħıŊŋ")
_UNSEEN = frozenset("\u115f\u1160")  # letters of Korean that are blank
_ALIKE = str.maketrans(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγεηικνορτυχω"
    "АВЕЅІЈКМНОРСТУХаеѕіјкмнорстухвгпԁһ"
    "ГПФЛф"
    "ロニカタトハエヘ"
    "ØøÐđĐðŁłħ",
    "ABEZHIKMNOPTYXayenikvoptuxw"
    "ABESIJKMHOPCTYXaesijkmhopctyxbrndh"
    "ΓΠΦΛφ"
    "口二力夕卜八工へ"
    "OoDdDdLlh",
)
_SHAPES = str.maketrans("1|0ı", "llol")
_SEPARATORS = re.compile(r"[ _.,'()&+/#:-]+")


def site_name(said: str) -> str:
    """The one spelling of a name that somebody typed; `ConfigError` where there is none.

    Compatibility forms become plain letters (NFKC); spaces at the ends go, others become one.

    Examples
    --------
    >>> site_name(" ＮＹＵ  Langone ")
    'NYU Langone'
    """
    name = _normal(said)
    if why := fault(name):
        raise ConfigError(f"the site name {said[:LONGEST]!a} {why}.", do=PLAIN)
    return name


def fault(name: str) -> str:
    """Why this is not the one spelling of a site's name; empty where it is."""
    if not 1 <= len(name) <= LONGEST:
        return f"has {len(name)} characters instead of 1 to {LONGEST}"
    if name != _normal(name):
        return "is not in its plain spelling (NFKC, single spaces)"
    letters = [c for c in name if c not in PUNCTUATION and c not in digits]
    scripts = {_script(c) for c in letters}
    if "" in scripts:
        odd = next(c for c in letters if not _script(c))
        return f"holds {unicodedata.name(odd, f'U+{ord(odd):04X}')}"
    if len(scripts) > 1:
        return f"mixes scripts ({' and '.join(sorted(scripts))})"
    if not letters and set(name).isdisjoint(digits):
        return "holds neither a letter nor a digit"
    return ""


def lookalike(one: str, other: str) -> bool:
    """Whether a reader could take one name for the other; a name looks like itself.

    Examples
    --------
    >>> lookalike("NYU_1", "nyu-l"), lookalike("NYU", "UM")
    (True, False)
    """
    return not looks(one).isdisjoint(looks(other))


def require_distinct(names: Iterable[str]) -> None:
    """Raise `ExchangeError` where two different names look alike."""
    seen: dict[str, str] = {}
    for name in sorted(set(names)):
        for look in looks(name):
            first = seen.setdefault(look, name)
            if first != name:
                raise ExchangeError(
                    f"the sites {first!a} and {name!a} look alike.",
                    do="One may pose as the other; ask both which name is theirs.",
                )


def _normal(said: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", said).split())


def _script(letter: str) -> str:
    """Script of a letter that a name may hold; empty for anything else.

    Right-to-left scripts are not among them: beside digits they reorder what a reader sees.
    """
    if not letter.isprintable() or letter in _UNSEEN:
        return ""
    if unicodedata.category(letter)[0] not in "LM":
        return ""
    word = re.split("[ -]", unicodedata.name(letter, "none"))[0]
    base = unicodedata.normalize("NFD", letter)[0]
    if word == "LATIN" and not base.isascii() and letter not in _LATIN:
        return ""
    return SCRIPTS.get(word, "")


@functools.lru_cache(maxsize=100_000)
def looks(name: str) -> frozenset[str]:
    """What is compared: the shapes of a name's letters, and the name without case."""
    shapes = _without_marks(name.translate(_ALIKE)).casefold()
    shapes = shapes.replace("i", "l").translate(_SHAPES)
    shapes = shapes.replace("rn", "m").replace("vv", "w")
    folded = _without_marks(name.casefold())
    return frozenset({_separated(shapes), _separated(folded)})


def _without_marks(text: str) -> str:
    apart = unicodedata.normalize("NFD", text)
    return "".join(c for c in apart if not "\u0300" <= c <= "\u036f")


def _separated(text: str) -> str:
    """Text with one hyphen for every run of spaces and signs."""
    return _SEPARATORS.sub("-", text).strip("-")
