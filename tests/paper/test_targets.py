"""The data file of three groups."""

import numpy as np
import targets


def test_patients_are_divided_by_age_and_controls_are_not(tmp_path):
    people = {"label": np.array([0, 1, 1, 0]), "age": np.array([9.0, 15.9, 16.0, 40.0])}
    np.savez(tmp_path / "people.npz", **people)
    targets.write_groups(tmp_path / "people.npz", tmp_path / "groups.npz")
    with np.load(tmp_path / "groups.npz") as found:
        assert found["label"].tolist() == [
            "control",
            "under 16",
            "16 and over",
            "control",
        ]
        assert found["age"].tolist() == people["age"].tolist()
