"""What is kept of a cluster, what is refused, and which processes are killed: without Spark."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from resurge.cli.cluster import shares_of
from resurge.errors import ClusterError
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, cluster_at
from resurge.runtime.embedded_cluster.processes import MARK, ProcessId, is_running, kill_trees, marked
from resurge.runtime.embedded_cluster.standalone import cluster_settings, master_command, worker_command
from resurge.runtime.embedded_cluster.state import (
    ClusterState,
    NodeRecord,
    checked_memory,
    default_folder,
    node_specs,
    read_state,
    without_old_dead,
    write_state,
)

GONE = ProcessId(pid=2**22 + 1, started_s=0.0)
SLEEP = "import time; time.sleep(60)"


def runs(pid: int) -> bool:
    """Whether a process does anything yet."""
    return psutil.pid_exists(pid) and is_running(psutil.Process(pid))


def state_of(*names: str) -> ClusterState:
    """A cluster whose processes are all gone."""
    specs = node_specs(len(names))
    return ClusterState("/tmp/x#1", "spark://127.0.0.1:1", GONE, 1, "700m").with_nodes([NodeRecord(s, GONE) for s in specs])


def test_new_nodes_continue_the_numbering_and_are_domains_by_themselves() -> None:
    """A name is never used twice, also when the node that had it is dead."""
    assert [(s.name, s.domain, s.cpu_share) for s in node_specs(2, started=3)] == [
        ("node-4", "node-4", 1.0),
        ("node-5", "node-5", 1.0),
    ]


def test_shares_and_domains_are_given_for_each_node() -> None:
    """Lists go by position."""
    assert [(s.domain, s.cpu_share) for s in node_specs(2, [1, 0.25], ["r1", "r2"])] == [("r1", 1.0), ("r2", 0.25)]


@pytest.mark.parametrize(
    ("shares", "domains", "words"),
    [
        ([1.0], None, "1 cpu shares were given for 2 nodes"),
        (1.0, ["r1", "r1", "r2"], "3 domains were given for 2 nodes"),
        (0.0, None, "more than 0 and at most 1, got 0"),
        (1.5, None, "more than 0 and at most 1, got 1.5"),
    ],
)
def test_nodes_that_cannot_be_are_refused(shares: float | list[float], domains: list[str] | None, words: str) -> None:
    """The error says what was expected and what came."""
    with pytest.raises(ClusterError, match=words):
        node_specs(2, shares, domains)


@pytest.mark.parametrize(("memory", "words"), [("much", "such as 700m or 2g"), ("100m", "at least 450m")])
def test_memory_that_no_executor_can_run_in_is_refused(memory: str, words: str) -> None:
    """Spark would start executors that end at once, again and again."""
    with pytest.raises(ClusterError, match=words):
        checked_memory(memory, 1)


def test_a_kept_state_is_read_back_as_it_was(tmp_path: Path) -> None:
    """A detached cluster is known by its file alone."""
    state = state_of("node-1", "node-2")
    assert read_state(tmp_path) is None
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state


def test_a_torn_state_file_is_named_in_the_error(tmp_path: Path) -> None:
    """Nobody guesses at pids."""
    (tmp_path / "cluster.json").write_text('{"mark": ')
    with pytest.raises(ClusterError, match=r"cluster\.json"):
        read_state(tmp_path)


def test_an_unknown_node_is_refused_with_those_there_are() -> None:
    """All names are checked before anything is killed."""
    with pytest.raises(ClusterError, match="no node node-9; expected one of node-1, node-2"):
        state_of("node-1", "node-2").named(["node-1", "node-9"])


def test_a_folder_without_a_running_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    """Neither an empty folder nor one whose master is gone has a cluster."""
    for _ in range(2):
        with pytest.raises(ClusterError, match=r"no cluster runs in .* resurge cluster start"):
            EmbeddedCluster.running(tmp_path)
        write_state(tmp_path, state_of("node-1"))


def test_a_master_that_is_not_ours_is_no_embedded_cluster() -> None:
    """A job may run on any cluster."""
    assert cluster_at("spark://127.0.0.1:1") is None


def test_the_default_folder_is_in_the_users_cache() -> None:
    """XDG_CACHE_HOME is respected."""
    assert default_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/resurge/cluster")
    assert default_folder({}).parts[-3:] == (".cache", "resurge", "cluster")


def test_a_process_number_that_was_given_away_is_not_the_process() -> None:
    """The start time tells the two apart."""
    me = ProcessId.of(os.getpid())
    assert me.find() is not None
    assert ProcessId(me.pid, me.started_s - 60).find() is None
    assert GONE.find() is None


def test_orphans_are_killed_by_their_mark_and_others_are_left_alone() -> None:
    """A grandchild whose parent ended is no longer in the tree; its mark still tells whose it is."""
    forker = f"import subprocess as s, sys; print(s.Popen([sys.executable, '-c', {SLEEP!r}], stdout=s.DEVNULL).pid)"
    mark = f"/test#{os.getpid()}"
    ours = subprocess.run(
        [sys.executable, "-c", forker], env={**os.environ, MARK: f"{mark}/node-1/"}, stdout=subprocess.PIPE, check=True, text=True
    )
    other = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, MARK: f"{mark}/node-10/"})
    try:
        assert [p.pid for p in marked(f"{mark}/node-1/")] == [int(ours.stdout)]
        kill_trees([], f"{mark}/node-1/")
        assert not runs(int(ours.stdout))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_daemons_and_drivers_listen_on_this_machine_only() -> None:
    """Every address that is named is the loopback one."""
    for command in (master_command(7), worker_command("spark://127.0.0.1:7", 1, "700m", Path("/w"))):
        assert command[command.index("--host") + 1] == "127.0.0.1"
    settings = cluster_settings()
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_cpu_shares_on_the_command_line_are_one_or_one_per_node() -> None:
    """Anything else is refused in one line."""
    assert shares_of("0.5") == 0.5
    assert shares_of("1,0.5") == [1.0, 0.5]
    with pytest.raises(ClusterError, match="got 'fast'"):
        shares_of("fast")


def test_only_the_newest_dead_nodes_are_kept(tmp_path: Path) -> None:
    """A cluster whose nodes die for weeks does not fill the disk with their logs; who lives keeps everything."""
    names = [f"node-{number}" for number in range(1, 13)]
    state = state_of(*names)
    alive = NodeRecord(state.nodes[0].spec, ProcessId.of(os.getpid()))
    state = msgspec.structs.replace(state, nodes=[alive, *state.nodes[1:]])
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "stderr").touch()
        (tmp_path / f"{name}.log").touch()
    kept = without_old_dead(tmp_path, state)
    expected = ["node-1", *names[-8:]]
    assert [node.spec.name for node in kept.nodes] == expected
    assert kept.started == 12
    assert sorted(path.name for path in tmp_path.glob("*.log")) == sorted(f"{name}.log" for name in expected)
    assert sorted(path.name for path in tmp_path.glob("node-*") if path.is_dir()) == sorted(expected)
