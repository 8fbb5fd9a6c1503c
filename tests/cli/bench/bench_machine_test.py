"""ingot bench machine: the CPUs of the process, and rates for each number of threads."""
import json
import os
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


def test_has_the_cpus_of_the_process_and_a_rate_of_each_kind(ingot):
    found = json.loads(ingot("bench", "machine", "-t", "1", "--json").stdout)
    assert [place["cpu"] for place in found["cpus"]] == sorted(os.sched_getaffinity(0))
    assert 1 <= found["sockets"] <= found["cores"] <= len(found["cpus"])
    (row,) = found["peaks"]
    assert row["threads"] == 1 and row["placement"] == "apart" and len(row["cpus"]) == 1
    assert row["products"]
    for rate in (row["read_gb_s"], *row["products"].values()):
        assert 0 < rate["mean"] <= rate["best"] * 1.000001


def test_more_threads_than_cpus_are_all_cpus(ingot):
    n_cpus = len(os.sched_getaffinity(0))
    table = ingot("bench", "machine", "-t", "1024").stdout
    rows = [line for line in table.splitlines() if " apart |" in line]
    assert [row.split("|")[1].strip() for row in rows] == [str(n_cpus)]


def test_refuses_no_threads(ingot):
    assert "-t: Value 0 not in range" in ingot("bench", "machine", "-t", "0", ok=False).stderr
