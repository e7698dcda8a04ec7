"""`fcforge judge`: a parsed config in, records, tables and a page out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from fcforge.components import check_names
from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.models import MODELS
from fcforge.report import judge as page
from fcforge.report import judge_tables as tables
from fcforge.sites import load_dataset, split_site
from fcforge.studies.judge.panel import (
    REAL,
    Finding,
    Panel,
    acceptance,
    judge_site,
    summarise,
    synthesise,
)
from fcforge.studies.judge.portraits import Portrait, portrait, write_portraits
from fcforge.types import Component, Site, Training
from fcforge.writing import write_text

KEYS = ("judge", "dataset", "training", "generator")
JUDGE_KEYS = {
    "title": "Generators judged",
    "seeds": [0],
    "sites": None,
    "classifiers": ["linear", "gcn"],
    "augment": [],
    "multiple": 4,
    "check": "",
}

Say = Callable[[str], None]


def read_panel(config: Mapping[str, Any]) -> tuple[Panel, dict[str, Any]]:
    """Panel and ``[judge]`` settings of a parsed config; mistakes name the nearest known thing."""
    check_names("table of a judge config", config, KEYS)
    settings = {**JUDGE_KEYS, **config.get("judge", {})}
    check_names("setting of [judge]", settings, JUDGE_KEYS)
    check_names(
        "setting of [training]", config.get("training", {}), [f.name for f in fields(Training)]
    )
    check_names("model", [*settings["classifiers"], *settings["augment"]], MODELS)
    panel = Panel(
        dict(_row(table) for table in config.get("generator", [])),
        classifiers=tuple(settings["classifiers"]),
        augment=tuple(settings["augment"]),
        multiple=settings["multiple"],
        training=Training(**config.get("training", {})),
    )
    if settings["check"]:
        check_names("row to check", [settings["check"]], panel.rows)
    return panel, settings


def _row(table: Mapping[str, Any]) -> tuple[str, Component]:
    if "name" not in table:
        raise ConfigError("a [[generator]] has no name.", do='Add name = "corr_gauss".')
    params = {k: v for k, v in table.items() if k not in ("name", "title")}
    component = Component(table["name"], params)
    make_generator(component)
    return table.get("title", table["name"]), component


def judge_command(
    config: Mapping[str, Any],
    *,
    out: Path,
    dataset: Component | None = None,
    device: str = "cpu",
    say: Say = print,
) -> dict[str, Any]:
    """Judge all generators of a config on all sites and seeds.

    The same command again goes on where it stopped: fitted generators and finished sites are
    kept in `out`.

    Parameters
    ----------
    config : mapping
        Parsed TOML with ``[judge]``, ``[dataset]``, ``[training]`` and ``[[generator]]`` tables.
    out : Path
        Folder for ``records.json``, ``tables.md``, ``judge.html`` and fitted generators.
    dataset : Component, optional
        Replaces the config's (paths resolved by the caller).
    device : str
    say : callable
        For talk; warnings of collapse begin with ``WARNING``.

    Returns
    -------
    dict
        ``rows`` (row to metric to [mean, low, high]), ``findings`` (when a row is to be
        checked), ``warnings``, ``files``.
    """
    panel, settings = read_panel(config)
    cohort = load_dataset(dataset or _dataset(config))
    names = settings["sites"] or list(cohort.site_names)
    out.mkdir(parents=True, exist_ok=True)
    store = out / "records.json"
    stamp = json.dumps({**json.loads(json.dumps(asdict(panel))), "seeds": settings["seeds"]})
    done = _read_records(store, stamp)
    make = partial(synthesise, multiple=panel.multiple, folder=out / "generators")
    for name in names:
        if name in done:
            say(f"{name}: already judged")
            continue
        sites = {seed: split_site(cohort, name, seed) for seed in settings["seeds"]}
        done[name] = judge_site(panel, sites, device, make, say)
        write_text(store, json.dumps({"stamp": stamp, "sites": done}))
    records = [record for name in names for record in done[name]]
    last = split_site(cohort, names[0], settings["seeds"][0])
    return write_outputs(panel, settings, records, last, out, make, device, say)


def write_outputs(
    panel: Panel,
    settings: Mapping[str, Any],
    records: list[dict[str, Any]],
    example: Site,
    out: Path,
    make: Callable[..., Any],
    device: str,
    say: Say,
) -> dict[str, Any]:
    """Tables, page and the returned summary."""
    summary = summarise(records)
    warnings = collapse_list(records)
    for text in warnings:
        say(f"WARNING {text}")
    findings = acceptance(summary, settings["check"]) if settings["check"] else []
    text = markdown_report(settings["title"], panel, summary, findings, warnings)
    write_text(out / "tables.md", text)
    portraits = example_portraits(panel, example, make, device)
    write_portraits(out / "portraits.npz", portraits)
    where = f"Site {example.name}, seed {example.provenance['split_seed']}."
    shown = page.Page(settings["title"], where, panel, summary, findings, warnings, portraits)
    write_text(out / "judge.html", page.render(shown))
    return {
        "rows": {r: {k: list(v) for k, v in m.items()} for r, m in summary.items()},
        "findings": [f._asdict() for f in findings],
        "warnings": warnings,
        "files": [str(out / n) for n in ("records.json", "tables.md", "judge.html")],
    }


def collapse_list(records: list[dict[str, Any]]) -> list[str]:
    """Collapse warnings, one line per row: how often, and what."""
    found: dict[tuple[str, str], int] = {}
    total: dict[str, int] = {}
    for record in records:
        total[record["row"]] = total.get(record["row"], 0) + 1
        for text in record["numbers"]["warnings"]:
            what = "no latent unit is active"
            if "variance" in text:
                what = "within-class edge variance is below a fifth of the real one"
            key = (record["row"], what)
            found[key] = found.get(key, 0) + 1
    return [
        f"{row} COLLAPSED in {n} of {total[row]} site-seeds: {what}."
        for (row, what), n in found.items()
    ]


def example_portraits(
    panel: Panel, site: Site, make: Callable[..., Any], device: str
) -> dict[str, Portrait]:
    """What the figures show of one site and seed, the real subjects first."""
    train = site.learning(with_val=True)
    train = type(train)(train.fc.to(device), train.y.to(device))
    seed = int(site.provenance["split_seed"])
    portraits = {REAL: portrait(train)}
    for row, component in panel.rows.items():
        if component is not None:
            portraits[row] = portrait(make(component, train, site.name, seed)[0])
    return portraits


def markdown_report(
    title: str,
    panel: Panel,
    summary: tables.Summary,
    findings: list[Finding],
    warnings: list[str],
) -> str:
    """All tables of a panel as Markdown."""
    parts = [f"## {title}", ""]
    parts += [f"**{text}**\n" for text in warnings]
    if findings:
        parts += [tables.findings_table(findings).markdown(), ""]
    for heading, group in page.groups_of(panel, summary):
        parts += [f"### {heading}", ""]
        for table in group:
            parts += [f"#### {table.title}", "", table.markdown(), ""]
    parts.append(page.READING + "\n")
    return "\n".join(parts)


def _dataset(config: Mapping[str, Any]) -> Component:
    params = dict(config.get("dataset", {}))
    if "name" not in params:
        raise ConfigError("no [dataset] with a name.", do='E.g. name = "folder", path = "...".')
    if "path" in params:
        params["path"] = os.path.expandvars(params["path"])
    return Component(params.pop("name"), params)


def _read_records(path: Path, stamp: str) -> dict[str, list[dict[str, Any]]]:
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["sites"] if found.get("stamp") == stamp else {}
