"""Loading the user's file: what is accepted, and one clear line for everything else."""

import pytest

from resurge.cli.job_file import load_topology
from resurge.errors import TopologyError

JOB = """
from resurge import TopologyBuilder, count, posts

topology = TopologyBuilder("trending")
topology.source("posts", posts(total=10), event_time="time").window("busy", "1s", key="user", n=count()).query()
built = topology.build()
number = 3
"""


@pytest.fixture
def job(tmp_path):
    """A file with a topology under two names."""
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize("name", ["", ":topology", ":built"])
def test_a_builder_and_a_topology_are_both_accepted(job, name):
    """The default name is `topology`."""
    assert list(load_topology(f"{job}{name}").queries) == ["busy"]


def test_modules_beside_the_file_can_be_imported(tmp_path):
    """As when Python itself runs the file; their functions travel by value too."""
    (tmp_path / "beside_the_job.py").write_text(JOB)
    (tmp_path / "job.py").write_text("from beside_the_job import topology")
    assert load_topology(str(tmp_path / "job.py")).name == "trending"


def refusal(target: object) -> str:
    """The one line that a target is refused with."""
    with pytest.raises(TopologyError) as caught:
        load_topology(str(target))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_file_is_named(tmp_path):
    """The path is in the message, and what was expected."""
    assert refusal(tmp_path / "nothing.py").startswith(f"{tmp_path / 'nothing.py'} is not there; expected a Python file")


def test_folder_is_not_a_file(tmp_path):
    """A folder is called one."""
    assert "is a folder" in refusal(tmp_path)


def test_file_that_is_not_python_is_refused(tmp_path):
    """The suffix says what a file is."""
    (tmp_path / "job.txt").write_text(JOB)
    assert "expected a name that ends in .py" in refusal(tmp_path / "job.txt")


def test_missing_name_lists_what_there_is(job):
    """The message is the help."""
    message = refusal(f"{job}:other")
    assert "has nothing called 'other'" in message
    assert f"it has topology, built, as in: resurge run {job}:topology" in message


def test_name_of_something_else_says_what_it_is(job):
    """A number is no topology."""
    assert "number is of type int; expected a Topology or a TopologyBuilder" in refusal(f"{job}:number")


def test_syntax_error_names_the_line(tmp_path):
    """Where to look."""
    (tmp_path / "job.py").write_text("x = 1\ntopology = (\n")
    assert f"{tmp_path / 'job.py'}, line 2: '(' was never closed" in refusal(tmp_path / "job.py")


def test_error_in_the_file_names_the_line_and_the_error(tmp_path):
    """No traceback through the tool."""
    (tmp_path / "job.py").write_text("x = 1\ny = x / 0\n")
    assert "job.py, line 2: ZeroDivisionError: division by zero" in refusal(tmp_path / "job.py")


def test_refused_topology_names_the_line(tmp_path):
    """The line that makes the mistake."""
    (tmp_path / "job.py").write_text("from resurge import TopologyBuilder\n\ntopology = TopologyBuilder('../../x')\n")
    assert "job.py, line 3: the topology is called '../../x'" in refusal(tmp_path / "job.py")


def test_builder_without_query_is_refused(tmp_path):
    """What only the whole topology shows is refused too."""
    (tmp_path / "job.py").write_text("from resurge import TopologyBuilder\ntopology = TopologyBuilder('x')\n")
    assert "has no query" in refusal(tmp_path / "job.py")


def test_file_that_exits_is_refused(tmp_path):
    """A script that runs on import is not a description."""
    (tmp_path / "job.py").write_text("import sys\nsys.exit(0)\n")
    assert "if __name__ == '__main__'" in refusal(tmp_path / "job.py")
