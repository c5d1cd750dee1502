"""What a container grants, read from fake trees of cgroups."""

import psutil
import pytest

from pipeline import machine

GB = 10**9


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A function that writes files under a root that the machine is then read from."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


def cgroup(folder: str, limit: object, usage: int, inactive: int) -> dict[str, str]:
    stat = f"anon 5\ninactive_file {inactive}\n"
    contents = {"memory.max": f"{limit}\n", "memory.current": f"{usage}\n", "memory.stat": stat}
    return {f"{folder}/{name}": content for name, content in contents.items()}


LINES = {"proc/self/cgroup": "0::/docker/a\n"}


# In some containers only the mount is seen.
@pytest.mark.parametrize("folder", ["sys/fs/cgroup/docker/a", "sys/fs/cgroup"])
def test_page_cache_does_not_count_as_used(tree, folder):
    tree(LINES | cgroup(folder, GB, GB - 10, GB // 4))
    assert machine.free_memory_bytes() == GB // 4 + 10
    assert machine.granted_memory_bytes() == GB


def test_the_tightest_of_the_cgroups_that_lie_in_each_other_counts(tree):
    own = cgroup("sys/fs/cgroup/docker/a", 2 * GB, GB, 0)
    around = cgroup("sys/fs/cgroup/docker", GB + 5, GB, 0)
    tree(LINES | own | around)
    assert machine.free_memory_bytes() == 5
    assert machine.granted_memory_bytes() == GB + 5


def test_without_a_limit_the_machines_own_memory_counts(tree):
    tree(LINES | cgroup("sys/fs/cgroup/docker/a", "max", GB, 0))
    assert machine.granted_memory_bytes() == psutil.virtual_memory().total
    assert machine.free_memory_bytes() > 10**6


def test_without_cgroups_the_machines_own_memory_counts(tree):
    tree({})
    assert machine.granted_memory_bytes() == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("limit", "expected"), [("max 100000", 4), ("150000 100000", 2), ("10000 100000", 1), ("", 4), ("900000 100000", 4)]
)
def test_granted_cores_follow_affinity_and_quota(tree, monkeypatch, limit, expected):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(4)))
    tree(LINES | {"sys/fs/cgroup/docker/a/cpu.max": f"{limit}\n"})
    assert machine.granted_cores() == expected
