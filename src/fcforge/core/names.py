"""Names: look-ups that suggest the nearest known name, visits of sites, and confusable names."""

import difflib
import functools
import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fcforge.core.errors import ConfigError

T = TypeVar("T")
MOST_NAMES = 40  # names that an error lists; there are hundreds of subjects


# -- look-ups --------------------------------------------------------------------------------------
def unknown_name(
    kind: str, name: str, known: Iterable[str], *, where: str = ""
) -> ConfigError:
    """Return the error for an unknown name; it lists the known names and the nearest one.

    Parameters
    ----------
    kind : str
        Kind of thing that is named, e.g. "model".
    name : str
        The unknown name.
    known : iterable of str
        All names that would have been right.
    where : str
        Place for the error message.

    Examples
    --------
    >>> print(unknown_name("model", "gnc", ["gcn", "gat"]))
    unknown model 'gnc'. Did you mean 'gcn'? Known: gat, gcn.
    """
    names = sorted(known)
    by_lower = {known_name.lower(): known_name for known_name in reversed(names)}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5) or [
        by_lower[lower]
        for lower in difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    ]
    hint = f"Did you mean '{near[0]}'? " if near else ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    advice = f"{hint}Known: {', '.join(names[:MOST_NAMES]) or 'none'}{more}."
    return ConfigError(f"unknown {kind} '{name}'.", where=where, do=advice)


def look_up(kind: str, name: str, table: Mapping[str, T], *, where: str = "") -> T:
    """Return the entry of a table under a name, or raise the error of `unknown_name`.

    The error for a former name of an entry states the present one.

    Parameters
    ----------
    kind, where : str
        As in `unknown_name`.
    name : str
        Name to look up.
    table : mapping of str to entry
        May have ``former_names``, as a `fcforge.core.registry.Registry` has.
    """
    if name not in table:
        former_names: Mapping[str, str] = getattr(table, "former_names", {})
        if name in former_names:
            present = former_names[name]
            message = f"{kind} '{name}' is now called '{present}'."
            raise ConfigError(message, where=where, do=f"Write '{present}'.")
        raise unknown_name(kind, name, table, where=where)
    return table[name]


def check_names(
    kind: str, names: Iterable[str], known: Collection[str], *, where: str = ""
) -> None:
    """Raise the error of `unknown_name` for the first name that is not known.

    Parameters
    ----------
    kind, where : str
        As in `unknown_name`.
    names : iterable of str
        Names to check.
    known : collection of str
        All names that are right.
    """
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known, where=where)


def two_spellings(names: Iterable[str]) -> str:
    """Return the first two names that differ only in case, outer spaces or invisible characters.

    The names are quoted, and their invisible characters are written as escapes. The text is empty if no
    two names differ so.

    Examples
    --------
    >>> two_spellings(["NYU", "UM", "nyu"]), two_spellings(["NYU", "UM"])
    ("'NYU' and 'nyu'", '')
    """
    seen: dict[str, str] = {}
    for name in names:
        visible = "".join(c for c in name if not _is_invisible(c))
        first = seen.setdefault(visible.strip().casefold(), name)
        if first != name:
            return f"'{_with_escapes(first)}' and '{_with_escapes(name)}'"
    return ""


def _with_escapes(name: str) -> str:
    """Return a name in which a reader can see the invisible characters."""
    return "".join(
        c.encode("unicode_escape").decode("ascii") if _is_invisible(c) else c
        for c in name
    )


def folded(name: str) -> str:
    """Return a name or id in the form by which people compare it: case, width and spaces do not count.

    Examples
    --------
    >>> folded(" S  01"), folded("ｓ 01")
    ('s 01', 's 01')
    """
    return canonical_name(name).casefold()


# -- visits of sites -------------------------------------------------------------------------------
# With `visits` above 1 the training subjects of a site arrive in portions. Each portion is a visit.
_VISIT = re.compile(r" \(visit \d+\)$")


def visit_name(site: str, visit: int) -> str:
    """Return the name of a site's visit, counted from 1; the first has the site's own name."""
    return site if visit == 1 else f"{site} (visit {visit})"


def site_of_visit(name: str) -> str:
    """Return the name of the site that a visit belongs to.

    Examples
    --------
    >>> site_of_visit("NYU (visit 2)"), site_of_visit("NYU")
    ('NYU', 'NYU')
    """
    return _VISIT.sub("", name)


def with_visits(sites: Iterable[str], visits: int) -> tuple[str, ...]:
    """Return the names of all visits in order: every site once, then every site again, and so on.

    Examples
    --------
    >>> with_visits(["A", "B"], 2)
    ('A', 'B', 'A (visit 2)', 'B (visit 2)')
    """
    sites = tuple(sites)
    return tuple(
        visit_name(site, visit) for visit in range(1, visits + 1) for site in sites
    )


# -- names of sites in any script ------------------------------------------------------------------
LONG_WORD = 5  # letters from which two words hardly differ by one letter on purpose
RARE = 10  # times as many people as a rare name has, if that may be a misspelling
LONGEST_NAME = 64  # characters of a site's name
PUNCTUATION = frozenset(" -_.,'()&+/#:")
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and signs without ink
_INVISIBLE = ("VARIATION SELECTOR", "GRAPHEME JOINER")
_SEPARATORS = re.compile(r"[ _.,'()&+/#:-]+")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<![0-9])-|-(?![0-9])")
# Letters of other scripts that look like Latin ones (Unicode's table of confusable characters).
_ALIKE: dict[int, Any] = str.maketrans(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγεηικνορστυχωϜͿϳϺ"
    "АВЕЅІЈКМНОРСТУХаеѕіјкмнорстухвгпԁһ"
    "ӀӏҮүѴѵԚԛԜԝѡҺԌЬьЗзӠбҽꙇꙍᴦ"
    "ГПФЛфѰѱπ"
    "ロニカタトハエヘ"
    "ĐđŊŋƲʋ",
    "ABEZHIKMNOPTYXayenikvopotuxwFJjM"
    "ABESIJKMHOPCTYXaesijkmhopctyxbrndh"
    "llYyVvQqWwwHGbb3336eiwr"
    "ΓΠΦΛφΨψn"
    "口二力夕卜八工へ"
    "DdNnUu",
)
for _pair, _letters in {"ae": "ӔӕÆæ", "oe": "Œœ", "bl": "Ыы", "lo": "Юю"}.items():
    _ALIKE |= dict.fromkeys(map(ord, _letters), _pair)
# One character for each group of Latin letters and digits of one shape (1 and i like l, 5 like s).
_SHAPES = str.maketrans("i1|0ı528", "lllolszb")


def canonical_name(name: str) -> str:
    """Return a name with compatibility characters folded (NFKC) and single inner spaces.

    Examples
    --------
    >>> canonical_name(" ＮＹＵ  Langone ")
    'NYU Langone'
    """
    return " ".join(unicodedata.normalize("NFKC", name).split())


def name_fault(name: str) -> str:
    """Return why a text cannot be the canonical name of a site; "" if it can.

    Letters and digits of any script are allowed. Invisible characters and signs other than
    `PUNCTUATION` are not.

    Examples
    --------
    >>> name_fault("北京"), name_fault("NYU|2")
    ('', 'holds VERTICAL LINE')
    """
    if not 1 <= len(name) <= LONGEST_NAME:
        return f"has {len(name)} characters instead of 1 to {LONGEST_NAME}"
    if name != canonical_name(name):
        return "is not in its plain spelling (NFKC, single spaces)"
    for character in name:
        if not (_is_letter_or_digit(character) or character in PUNCTUATION):
            return f"holds {unicodedata.name(character, f'U+{ord(character):04X}')}"
    if all(unicodedata.category(c)[0] not in "LN" for c in name):
        return "holds neither a letter nor a digit"
    return ""


def look_alike(one: str, other: str) -> bool:
    """Return whether a reader could take one name for the other; a name looks like itself.

    Examples
    --------
    >>> look_alike("NYU_1", "nyu-l"), look_alike("NYU", "UM"), look_alike("KKI", "ККӀ")
    (True, False, True)
    """
    return not name_shapes(one).isdisjoint(name_shapes(other))


def first_look_alikes(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two different names that look alike, in sorted order; None if no two do."""
    seen: dict[str, str] = {}
    for name in sorted(set(names)):
        for shape in sorted(name_shapes(name)):
            first = seen.setdefault(shape, name)
            if first != name:
                return first, name
    return None


def misspelt_pairs(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return pairs of names of which one may be a misspelling of the other, the more frequent first.

    The two differ by one letter that is replaced, added or missing; case does not count. A digit is no
    misspelling (UM_1 and UM_2), nor is a letter that counts (Site A and Site B). The word that
    differs has `LONG_WORD` letters or more, or the letter is doubled (NYU and NYUU), or one name is
    rare: short abbreviations often differ by one letter (SU and IU, USM and UPSM).

    Parameters
    ----------
    counts : mapping of name to int
        Number of people of each name.

    Examples
    --------
    >>> misspelt_pairs({"NYUU": 10, "NYU": 12, "UM_1": 9, "UM_2": 9})
    [('NYU', 'NYUU')]
    >>> misspelt_pairs({"SU": 40, "IU": 40, "Site A": 9, "Site B": 9})
    []
    """
    pairs = []
    for one, other in itertools.combinations(counts, 2):
        frequent, rare = sorted((one, other), key=lambda name: -counts[name])
        word = _misspelt_word(frequent, rare)
        if word is None or look_alike(one, other):
            continue
        is_rare = counts[rare] * RARE <= counts[frequent]
        if len(word.text) >= LONG_WORD or word.is_doubled or is_rare:
            pairs.append((frequent, rare))
    return pairs


class _Misspelt(NamedTuple):
    """A word that two names write differently by one letter.

    Attributes
    ----------
    text : str
        The word in the form with more letters.
    is_doubled : bool
        Whether the letter that one name lacks stands beside an equal one.
    """

    text: str
    is_doubled: bool


def _misspelt_word(one: str, other: str) -> _Misspelt | None:
    """Return the word by one letter of which two names differ; None if they differ otherwise."""
    longer, shorter = sorted(
        (canonical_name(one), canonical_name(other)), key=len, reverse=True
    )
    a, b = longer.casefold(), shorter.casefold()
    if len(a) != len(longer) or len(b) != len(shorter) or len(a) - len(b) > 1:
        return None
    letters_of_both = zip(a, b, strict=False)
    place = next((i for i, (x, y) in enumerate(letters_of_both) if x != y), len(b))
    is_added = len(a) > len(b)
    if place == len(a) or a[place + 1 :] != b[place + (not is_added) :]:
        return None
    letters = a[place] + ("" if is_added else b[place])
    before = re.search(r"[^\W\d_]*$", longer[:place])
    after = re.match(r"[^\W\d_]*", longer[place + 1 :])
    # A character of a script without upper case is a syllable or a word.
    if letters.upper() == letters.lower() or before is None or after is None:
        return None
    # A letter that counts stands alone, or is a capital at the end: Site A, siteB.
    is_last = not after[0] and (not before[0] or before[0][-1].islower())
    if len(before[0] + after[0]) < 1 + is_added or (
        is_last and longer[place].isupper()
    ):
        return None
    doubled = is_added and a[place] in a[max(place - 1, 0) : place] + a[place + 1 :][:1]
    return _Misspelt(before[0] + longer[place] + after[0], doubled)


@functools.lru_cache(maxsize=100_000)
def name_shapes(name: str) -> frozenset[str]:
    """Return the two forms of a name by which `look_alike` compares it.

    The first form replaces each letter by one of its shape, so that 1, l, I and Cyrillic Ӏ are
    equal, as are 5 and S. The second form is the name in lower case. Both are without accents. A
    run of spaces and signs becomes one hyphen between two digits and nothing elsewhere, so that UM1
    and UM_1 are equal but 1-11 and 11-1 are not. Leading zeros of a whole number do not count.
    """
    if name.isdecimal():
        name = name.lstrip("0") or "0"
    hyphenated = _SEPARATORS.sub("-", name).strip("-")
    joined = _NOT_BETWEEN_DIGITS.sub("", hyphenated)
    latin = unicodedata.normalize("NFC", joined).translate(_ALIKE)
    bare = "".join(map(_without_accent, latin))
    # a second time: a letter of another script may be in the table only without its accent
    shapes = _without_marks(bare.translate(_ALIKE)).casefold().translate(_SHAPES)
    shapes = shapes.replace("rn", "m").replace("vv", "w")
    return frozenset((shapes, _without_marks(joined.casefold())))


def _is_letter_or_digit(character: str) -> bool:
    """Return whether a character is a visible letter, accent or digit of any script."""
    category = unicodedata.category(character)  # L: letter, M: mark, Nd: decimal digit
    if category[0] not in "LM" and category != "Nd":
        return False
    # Category Me: signs that enclose other characters.
    visible = character.isprintable() and category != "Me"
    return visible and not _is_invisible(character)


def _is_invisible(character: str) -> bool:
    """Return whether a character has neither ink nor width, or is a letter or sign without ink."""
    if unicodedata.category(character) == "Cf" or character in BLANK:
        return True
    unicode_name = unicodedata.name(character, "")
    return any(hidden in unicode_name for hidden in _INVISIBLE)


def _without_accent(character: str) -> str:
    """Return a letter without accent or stroke (e of é, l of ł) and in normal height (N of ɴ)."""
    base = unicodedata.normalize("NFD", character)[0]
    unicode_name = unicodedata.name(base, "").split(" WITH ")[0]
    plain = unicode_name.replace("LATIN LETTER SMALL CAPITAL", "LATIN CAPITAL LETTER")
    try:
        return unicodedata.lookup(plain)
    except KeyError:  # some letters exist with a stroke only
        return base


def _without_marks(text: str) -> str:
    """Return text without combining marks of Latin, Greek and Cyrillic letters."""
    decomposed = unicodedata.normalize("NFD", text)  # letter, then its marks
    return "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")
