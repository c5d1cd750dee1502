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


def cgroup(folder: str, limit: object, usage: int, inactive: int, *, version: int) -> dict[str, str]:
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    # Version 1 has the pages of the cgroups below only in the totals.
    stat = f"anon 5\ninactive_file {inactive}\n"
    if version == 1:
        stat = f"cache 7\ninactive_file 1\ntotal_inactive_file {inactive}\n"
    contents = (f"{limit}\n", f"{usage}\n", stat)
    return {f"{folder}/{name}": content for name, content in zip((*names, "memory.stat"), contents, strict=True)}


V1_LINES = "11:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n0::/\n"
V2 = {"proc/self/cgroup": "0::/docker/a\n"}
V1 = {"proc/self/cgroup": V1_LINES}


@pytest.mark.parametrize(
    ("lines", "folder", "version"),
    [
        (V2, "sys/fs/cgroup/docker/a", 2),
        (V2, "sys/fs/cgroup", 2),
        (V1, "sys/fs/cgroup/memory/docker/a", 1),
        (V1, "sys/fs/cgroup/memory", 1),
    ],
    ids=["version 2", "version 2, only the mount is seen", "version 1", "version 1, only the mount is seen"],
)
def test_page_cache_does_not_count_as_used(tree, lines, folder, version):
    tree(lines | cgroup(folder, GB, GB - 10, GB // 4, version=version))
    assert machine.free_memory_bytes() == GB // 4 + 10
    assert machine.granted_memory_bytes() == GB


def test_the_tightest_of_the_cgroups_that_lie_in_each_other_counts(tree):
    own = cgroup("sys/fs/cgroup/docker/a", 2 * GB, GB, 0, version=2)
    around = cgroup("sys/fs/cgroup/docker", GB + 5, GB, 0, version=2)
    tree(V2 | own | around)
    assert machine.free_memory_bytes() == 5
    assert machine.granted_memory_bytes() == GB + 5


@pytest.mark.parametrize(("version", "unlimited"), [(2, "max"), (1, 9223372036854771712)])
def test_without_a_limit_the_machines_own_memory_counts(tree, version, unlimited):
    folder = "sys/fs/cgroup/docker/a" if version == 2 else "sys/fs/cgroup/memory/docker/a"
    tree((V2 if version == 2 else V1) | cgroup(folder, unlimited, GB, 0, version=version))
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
    tree(V2 | {"sys/fs/cgroup/docker/a/cpu.max": f"{limit}\n"})
    assert machine.granted_cores() == expected


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({"avx2"}, {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ({"avx2", "avx512f"}, {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ({"avx2", "avx512_vnni"}, {}, {}),
        ({"asimd"}, {}, {}),
        ({"avx2"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, {}),
    ],
)
def test_onednn_is_enabled_where_tensorflow_leaves_it_off(monkeypatch, flags, environment, expected):
    monkeypatch.setattr(machine, "cpu_flags", lambda: flags)
    assert machine.onednn_variables(environment) == expected
