"""Config files: TOML, what lies below it, what --set puts on top, where data lie."""

from pathlib import Path

import pytest

from fcforge.core.errors import ConfigError
from fcforge.experiments.config_files import merge, read_config, read_toml, resolve_data


def test_toml_errors_name_file_and_line(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("[dataset]\nname = \n")
    with pytest.raises(ConfigError, match=r"broken\.toml: not a TOML file: .*line 2"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a TOML file"):
        read_toml(path)
    with pytest.raises(ConfigError, match=r"no such file.*fcforge init"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="no such file"):
        read_toml(tmp_path)


# -- where data lie ----------------------------------------------------------------------------
def test_resolve_data(tmp_path, monkeypatch):
    folder = tmp_path / "repo" / "experiments"
    folder.mkdir(parents=True)
    assert resolve_data("/abs/x.npz", folder) == "/abs/x.npz"
    assert resolve_data("x.npz", folder) == str(folder / "x.npz")
    assert resolve_data("../x.npz", folder) == str(tmp_path / "repo" / "x.npz")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data("~/x.npz", folder) == str(tmp_path / "x.npz")
    monkeypatch.setenv("FCFORGE_DATA", str(tmp_path / "d"))
    assert resolve_data("$FCFORGE_DATA/x.npz", folder) == str(tmp_path / "d" / "x.npz")
    monkeypatch.delenv("FCFORGE_DATA")
    shared = tmp_path / "shared" / "data"
    shared.mkdir(parents=True)
    (shared / "x.npz").touch()
    assert resolve_data("$FCFORGE_DATA/x.npz", folder) == str(shared / "x.npz")


# -- bases -------------------------------------------------------------------------------------
def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_three_files_deep(tmp_path):
    write(tmp_path, "a.toml", "list = [1, 2]\n[t]\nx = 1\ny = 1\n[t.deep]\nz = 1\n")
    write(tmp_path, "b.toml", 'base = "a.toml"\n[t]\ny = 2\n[t.deep]\nw = 2\n')
    c = write(tmp_path, "c.toml", 'base = "b.toml"\nlist = [3]\n[t.deep]\nz = 3\n')
    found = read_config(c, ["t.x=4"])
    assert found == {"list": [3], "t": {"x": 4, "y": 2, "deep": {"z": 3, "w": 2}}}


def test_another_dataset_replaces_the_bases_whole():
    folder = {"dataset": {"name": "folder", "path": "x", "sites": ["A"]}}
    assert merge(folder, {"dataset": {"name": "simulated"}}) == {
        "dataset": {"name": "simulated"}
    }
    assert merge(folder, {"dataset": {"sites": ["B"]}})["dataset"]["path"] == "x"
    assert merge({"model": "gcn"}, {"model": {"name": "gat"}}) == {
        "model": {"name": "gat"}
    }


def test_a_circle_is_refused_by_name(tmp_path):
    write(tmp_path, "a.toml", 'base = "b.toml"')
    b = write(tmp_path, "b.toml", 'base = "a.toml"')
    with pytest.raises(ConfigError, match=r"its own base \(b.toml > a.toml > b.toml\)"):
        read_config(b)
    own = write(tmp_path, "own.toml", 'base = "own.toml"')
    with pytest.raises(ConfigError, match=r"its own base \(own.toml > own.toml\)"):
        read_config(own)


@pytest.mark.parametrize("base", ['"none.toml"', "3", '["a.toml"]', '"."'])
def test_a_missing_base_is_named(tmp_path, base):
    path = write(tmp_path, "e.toml", f"base = {base}")
    with pytest.raises(ConfigError, match=r"e\.toml: base = .* is not a file"):
        read_config(path)


def test_a_damaged_base_is_named(tmp_path):
    write(tmp_path, "a.toml", "[t\n")
    path = write(tmp_path, "e.toml", 'base = "a.toml"')
    with pytest.raises(ConfigError, match=r"a\.toml: not a TOML file"):
        read_config(path)


TOO_MUCH = {
    "brackets": ("x = " + "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "tables": ("x = " + "{a=" * 5000 + "1" + "}" * 5000, "nested too deeply"),
    "dotted": (".".join("a" * 200) + " = 1", "more than 32 levels"),
    "lists": ("x = " + "[" * 40 + "]" * 40, "more than 32 levels"),
    "digits": ("x = " + "9" * 100_000, "more than 4300 digits"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_deep_nesting_and_long_numbers_are_clear_errors(name, tmp_path):
    text, says = TOO_MUCH[name]
    path = write(tmp_path, "e.toml", text)
    with pytest.raises(ConfigError, match=rf"e\.toml: not a TOML file: .*{says}"):
        read_config(path)


@pytest.mark.parametrize("name", ["brackets", "lists", "digits"])
def test_the_same_in_a_setting(name, tmp_path):
    text, says = TOO_MUCH[name]
    path = write(tmp_path, "e.toml", "")
    with pytest.raises(ConfigError, match=f"--set t.x: .*{says}"):
        read_config(path, [f"t.{text}".replace(" = ", "=")])
