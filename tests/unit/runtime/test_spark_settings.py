"""What a Spark session on a cluster must be set to, whichever cluster manager it has."""

import pytest

from resurge.errors import JobError
from resurge.runtime.driver.session import _settings
from resurge.runtime.driver.spark_settings import LOCALITY_SETTINGS, REQUIRED, refuse_unfit

MASTERS = ["spark://far:7077", "yarn", "k8s://https://far:6443", "local-cluster[2,1,1024]"]


@pytest.mark.parametrize("master", MASTERS)
def test_a_session_that_resurge_opens_fits_on_every_cluster(master: str) -> None:
    """Neither speculation, nor dynamic allocation, nor retries are left to the cluster's defaults."""
    settings = _settings(master)
    assert settings.keys() >= REQUIRED.keys()
    refuse_unfit(master, settings.get)


@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.speculation", "true"),
        ("spark.dynamicAllocation.enabled", "TRUE"),
        ("spark.stage.maxConsecutiveAttempts", "4"),
        ("spark.task.maxFailures", "4"),
        ("spark.excludeOnFailure.enabled", "true"),
        ("spark.python.worker.reuse", "false"),
        ("spark.locality.wait.process", "3s"),
    ],
)
def test_a_session_that_could_lose_state_is_refused_by_the_name_of_its_setting(master: str, name: str, value: str) -> None:
    """The error names the setting, what it is and what it should be."""
    settings = _settings(master) | {name: value}
    with pytest.raises(JobError, match="spark.locality.wait is 3s" if name in LOCALITY_SETTINGS else f"{name} is {value}"):
        refuse_unfit(master, settings.get)


def test_settings_that_are_not_made_are_sparks_defaults() -> None:
    """An ordinary session on a cluster is refused for its retries and its short wait, with all that is to be set."""
    with pytest.raises(JobError) as refused:
        refuse_unfit("yarn", {}.get)
    for name in ("spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts", "spark.locality.wait"):
        assert f'.config("{name}", ' in str(refused.value)
    assert "spark.speculation" not in str(refused.value)


def test_any_session_in_one_process_fits() -> None:
    """It has no executors that could be removed."""
    refuse_unfit("local[2]", {"spark.speculation": "true"}.get)
