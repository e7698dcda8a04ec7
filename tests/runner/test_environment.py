"""Where a run is trained, and what is refused before anything is written."""

import pytest

from fcforge.errors import ConfigError
from fcforge.runner.environment import Place, default_jobs, pick_device, place_to_train


def without_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_auto_takes_what_there_is(monkeypatch):
    without_gpu(monkeypatch)
    assert place_to_train() == Place("cpu", default_jobs(), "")
    assert place_to_train(jobs=3).jobs == 3
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == "cuda"
    assert pick_device("cuda:1") == "cuda:1"


def test_a_device_that_is_not_there(monkeypatch):
    without_gpu(monkeypatch)
    with pytest.raises(ConfigError, match="device 'tpu'"):
        pick_device("tpu")
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        pick_device("cuda")


def test_a_cluster_trains_on_cpus():
    assert place_to_train("auto", 2, "tcp://a:1") == Place("cpu", 2, "tcp://a:1")
    with pytest.raises(ConfigError, match="cluster"):
        place_to_train("cuda", 2, "tcp://a:1")
