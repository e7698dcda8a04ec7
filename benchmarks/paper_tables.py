"""The numbers the paper prints, as (AAA, FOR), by table and by our learners' labels."""

from __future__ import annotations

Pair = tuple[float, float]

# Table "Performance of different continual learning methods on ASD, BSNIP, and MDD".
MAIN: dict[str, dict[str, Pair]] = {
    "asd": {
        "Base": (0.6074, 0.2757),
        "DER": (0.6627, 0.2018),
        "DER++": (0.6719, 0.1893),
        "ER": (0.6369, 0.2397),
        "EWC": (0.5963, 0.1925),
        "LwF": (0.6464, 0.2222),
        "PackNet": (0.6632, 0.2030),
        "SI": (0.6684, 0.1746),
        "TWP": (0.6735, 0.1659),
        "UGCL (reconstruction)": (0.6795, 0.1589),
        "PDGNN": (0.7113, 0.1313),
        "FORGE (FCM-VAE)": (0.7300, 0.1160),
    },
    "bsnip": {
        "Base": (0.5512, 0.2296),
        "DER": (0.6320, 0.1254),
        "DER++": (0.6225, 0.1384),
        "ER": (0.5967, 0.1702),
        "EWC": (0.5688, 0.1897),
        "LwF": (0.6218, 0.1423),
        "PackNet": (0.6178, 0.1355),
        "SI": (0.6553, 0.1365),
        "TWP": (0.6391, 0.1472),
        "UGCL (reconstruction)": (0.6398, 0.1439),
        "PDGNN": (0.6588, 0.1281),
        "FORGE (FCM-VAE)": (0.6850, 0.1010),
    },
    "mdd": {
        "Base": (0.5929, 0.2770),
        "DER": (0.6655, 0.1753),
        "DER++": (0.6950, 0.1471),
        "ER": (0.6482, 0.1757),
        "EWC": (0.6074, 0.2018),
        "LwF": (0.6388, 0.1858),
        "PackNet": (0.6235, 0.1864),
        "SI": (0.6475, 0.1757),
        "TWP": (0.6777, 0.1795),
        "UGCL (reconstruction)": (0.6915, 0.1613),
        "PDGNN": (0.7050, 0.1392),
        "FORGE (FCM-VAE)": (0.7380, 0.1050),
    },
}
FORGE: Pair = (0.7300, 0.1160)
LEAKS: dict[str, Pair] = {**MAIN["asd"], "FORGE": FORGE}
# Table "Ablation study assessing the contributions of GKD, LKD and HCTS": ASD, MDD, BSNIP.
ABLATION: dict[str, Pair] = {
    "FORGE": FORGE,
    "without GKD": (0.6830, 0.1424),
    "without LKD": (0.6807, 0.1508),
    "without HCTS": (0.6759, 0.1629),
    "Base": (0.6074, 0.2757),
}
ABLATION_MDD: dict[str, Pair] = {
    "FORGE": (0.7380, 0.1050),
    "without GKD": (0.6913, 0.1410),
    "without LKD": (0.6954, 0.1331),
    "without HCTS": (0.6848, 0.1439),
    "Base": (0.5929, 0.2770),
}
ABLATION_BSNIP: dict[str, Pair] = {
    "FORGE": (0.6850, 0.1010),
    "without GKD": (0.6374, 0.1313),
    "without LKD": (0.6380, 0.1252),
    "without HCTS": (0.6342, 0.1365),
    "Base": (0.5512, 0.2296),
}
# Appendix, "Ablation variants by replay, sampling, and distillation".
LADDER: dict[str, Pair] = {
    "DER++ real": (0.669, 0.187),
    "generated": (0.671, 0.183),
    "generated + HCTS": (0.685, 0.141),
    "generated + dual KD": (0.677, 0.160),
    "FORGE": FORGE,
}
# Table "Performance under different buffer sizes", ASD.
BUFFER: dict[str, Pair] = {
    "FORGE 128": (0.6853, 0.1570),
    "FORGE 256": (0.7300, 0.1160),
    "FORGE 384": (0.7194, 0.1285),
    "ER 128": (0.6008, 0.2746),
    "ER 256": (0.6370, 0.2400),
    "ER 384": (0.6424, 0.2154),
    "DER 128": (0.6278, 0.2214),
    "DER 256": (0.6630, 0.2020),
    "DER 384": (0.6577, 0.2166),
    "DER++ 128": (0.6265, 0.2285),
    "DER++ 256": (0.6720, 0.1890),
    "DER++ 384": (0.6693, 0.2096),
}
# Table "Sensitivity to the FC threshold tau on ASD".
TAU: dict[str, Pair] = {
    "Base tau 0.2": (0.595, 0.306),
    "Base tau 0.3": (0.589, 0.273),
    "Base tau 0.4": (0.607, 0.276),
    "Base tau 0.5": (0.613, 0.293),
    "DER++ tau 0.2": (0.655, 0.200),
    "DER++ tau 0.3": (0.670, 0.197),
    "DER++ tau 0.4": (0.672, 0.189),
    "DER++ tau 0.5": (0.680, 0.213),
    "PDGNN tau 0.2": (0.709, 0.123),
    "PDGNN tau 0.3": (0.707, 0.125),
    "PDGNN tau 0.4": (0.711, 0.131),
    "PDGNN tau 0.5": (0.716, 0.143),
    "FORGE tau 0.2": (0.727, 0.109),
    "FORGE tau 0.3": (0.721, 0.114),
    "FORGE tau 0.4": (0.730, 0.116),
    "FORGE tau 0.5": (0.735, 0.120),
}
