"""Options of a run: command line before environment before --config before the job's file before defaults."""

import pytest
from typer.testing import CliRunner

from resurge.cli import main, run
from resurge.errors import ProblemError, TopologyError

JOB = """
from resurge import TopologyBuilder, count, posts
topology = TopologyBuilder("letters")
topology.source("rows", posts(total=5), event_time="time").aggregate("n", key="user", n=count()).query()
options = {options}
"""


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """What `resurge run` would run with, given arguments, environment and the options of the job's file."""
    main.register()
    monkeypatch.chdir(tmp_path)

    def choose(*arguments: str, options: object = None, config: str | None = None, env: dict[str, str] | None = None):
        found = {}
        monkeypatch.setattr(run, "run_with", lambda topology, values, again: found.update(values))
        (tmp_path / "job.py").write_text(JOB.format(options=repr({} if options is None else options)))
        if config is not None:
            (tmp_path / "conf").mkdir(exist_ok=True)
            (tmp_path / "conf" / "job.toml").write_text(config)
        given = [*arguments, *(["--config", "conf/job.toml"] if config is not None else [])]
        outcome = CliRunner().invoke(main.app, ["run", *given], env=env or {}, catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.output
        return found

    return choose


def test_nothing_given_means_defaults(chosen):
    """As without any file."""
    found = chosen("job.py")
    assert (found["master"], found["interval"], found["checkpoint_interval"], found["drain"]) == ("local[*]", "1s", "10s", False)


def test_each_place_comes_before_the_next(chosen):
    """The same option in all places: take one away after another."""
    everywhere = {"options": {"interval": "4s"}, "config": "interval = '3s'", "env": {"RESURGE_INTERVAL": "2s"}}
    assert chosen("job.py", "--interval", "1500ms", **everywhere)["interval"] == "1500ms"
    assert chosen("job.py", **everywhere)["interval"] == "2s"
    del everywhere["env"]
    assert chosen("job.py", **everywhere)["interval"] == "3s"
    del everywhere["config"]
    assert chosen("job.py", **everywhere)["interval"] == "4s"


def test_every_kind_of_value_is_understood(chosen):
    """Numbers, flags and paths, in the file and in the environment."""
    config = "[run]\ncheckpoint-interval = 7\ndrain = true\nmax_rows = 500\nreport = 'out/report.html'"
    found = chosen("job.py", config=config, env={"RESURGE_EPOCHS": "3", "RESURGE_UNTIL_IDLE": "1"})
    assert (found["checkpoint_interval"], found["drain"], found["max_rows"]) == ("7", True, 500)
    assert (found["epochs"], found["until_idle"]) == (3, True)
    assert str(found["report"]) == "out/report.html"


def test_target_may_be_in_the_file_and_is_relative_to_it(chosen):
    """`resurge run --config job.toml` is the whole command."""
    assert chosen(config="target = '../job.py'\nmaster = 'local[2]'")["target"] == "conf/../job.py"


def test_numbers_in_the_job_file_are_checked_as_on_the_command_line(chosen):
    """What --epochs would refuse is refused here too."""
    assert chosen("job.py", options={"epochs": 5, "until-idle": True})["epochs"] == 5
    with pytest.raises(ProblemError, match="epochs is -1"):
        chosen("job.py", options={"epochs": -1})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": "intervall = '3s'"}, r"job\.toml: there is no option 'intervall'; expected some of .*interval"),
        ({"config": "interval ="}, "is not TOML"),
        ({"options": {"colour": 3}}, "the options of job.py: there is no option 'colour'"),
    ],
)
def test_what_is_not_an_option_is_refused_by_name(chosen, given, message):
    """A slip of the pen does not silently run with defaults."""
    with pytest.raises(ProblemError, match=message):
        chosen("job.py", **given)


def test_options_that_are_no_dict_are_refused(chosen):
    """With an example of what is expected."""
    with pytest.raises(TopologyError, match="expected a dict such as"):
        chosen("job.py", options=["interval"])


def test_file_that_is_not_there_is_refused(chosen):
    """Before Spark is started."""
    with pytest.raises(ProblemError, match=r"--config nowhere\.toml: No such file"):
        chosen("job.py", "--config", "nowhere.toml")
