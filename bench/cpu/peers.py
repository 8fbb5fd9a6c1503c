#!/usr/bin/env python3
"""Rows and tables of peers.sh and cores.sh.

    peers.py add FILE SHAPE TYPE THREADS PROGRAM < the CSV of `ingot bench` or llama-bench
    peers.py table FILE
    peers.py wide FILE        # medians, a row for each shape, type and number of threads: docs/data/xeon16.csv
    peers.py served FILE LOAD THREADS PROGRAM < the JSON of `ingot bench engine` or `ingot bench serve`
    peers.py threads FILE SHAPE TYPE < the JSON of `ingot bench -t 1,2,4`: medians, and each count beside the best below it
    peers.py machine FILE     # the JSON of `ingot bench machine`, as tables
"""
import csv
import json
import pathlib
import statistics
import sys

COLUMNS = ["cpu", "shape", "type", "threads", "program", "test", "tok_s", "share"]  # share: of the measured peak, ingot's alone


def core_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def test_of(row):  # llama-bench has two columns for what ingot writes as pp512 and tg64
    if "test" in row:
        return row["test"]
    return f"pp{row['n_prompt']}" if int(row["n_prompt"]) > 0 else f"tg{row['n_gen']}"


def share_of(row):
    return f"{float(row['achieved']) / float(row['peak']):.3f}" if float(row.get("peak") or 0) > 0 else ""


def add(path, shape, kind, threads, program):
    rows = list(csv.DictReader(sys.stdin))
    if not rows:
        sys.exit(f"peers.py: {program} printed no rows")
    new = not pathlib.Path(path).exists()
    with open(path, "a", newline="") as out:
        writer = csv.writer(out)
        if new:
            writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([core_name(), shape, kind, threads, program, test_of(row), row["avg_ts"], share_of(row)])


def read(path):
    """The rows, and the values of a column by (shape, type, threads), test and program."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))

    def values(column):
        found = {}
        for row in rows:
            if row[column]:
                key = row["shape"], row["type"], row["threads"]
                found.setdefault(key, {}).setdefault(row["test"], {}).setdefault(row["program"], []).append(float(row[column]))
        return found
    return rows, values


def wide(path):
    _, values = read(path)
    rates, shares = values("tok_s"), values("share")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["shape", "type", "threads", "prefill llama.cpp", "prefill ingot", "decode llama.cpp", "decode ingot", "share of the peak", "share of bandwidth"])
    for key, tests in rates.items():
        prefill, decode = (next(test for test in tests if test.startswith(kind)) for kind in ("pp", "tg"))
        row = [statistics.median(tests[test][program]) if program in tests[test] else ""
               for test in (prefill, decode) for program in ("llama.cpp", "ingot")]
        row += [statistics.median(shares[key][test]["ingot"]) for test in (prefill, decode)]
        writer.writerow([*key, *(f"{value:.4g}" if value != "" else "" for value in row)])


def table(path):
    rows, values = read(path)
    cores, programs = {row["cpu"] for row in rows}, list(dict.fromkeys(row["program"] for row in rows))
    peers = [p for p in programs if p != "ingot"]
    print(f"{', '.join(sorted(cores))}, medians, tok/s; x: ingot over the best peer\n")
    print("| shape | type | threads | test | " + " | ".join(["ingot"] + peers + ["x"]) + " |")
    print("|" + "---|" * (len(peers) + 6))
    for key, tests in values("tok_s").items():
        for test, of_programs in tests.items():
            median = {p: statistics.median(v) for p, v in of_programs.items()}
            best = max((median[p] for p in peers if p in median), default=None)
            ratio = f"{median['ingot'] / best:.2f}" if best else ""
            speeds = " | ".join(f"{median[p]:.1f}" if p in median else "" for p in ["ingot"] + peers)
            print(f"| {' | '.join(key)} | {test} | {speeds} | {ratio} |")


def served(path, load, threads, program):
    run = json.load(sys.stdin)
    if run["failed"] or run.get("refused"):
        sys.exit(f"peers.py: {program}: {run['failed']} requests failed, {run.get('refused', 0)} were refused")
    new = not pathlib.Path(path).exists()
    with open(path, "a", newline="") as out:
        writer = csv.writer(out)
        if new:
            writer.writerow(["cpu", "load", "threads", "program", "seconds", "output_tok_s", "ttft_p50_ms", "itl_p50_ms"])
        rate = run["output_tok_s"] if "output_tok_s" in run else run["output_tokens_per_s"]
        writer.writerow([core_name(), load, threads, program, round(run["seconds"], 2), round(rate, 2),
                         round(run["ttft_ms"]["p50"], 1), round(run["itl_ms"]["p50"], 2)])


NEVER_SLOWER = 0.97  # of the best speed with fewer threads; less is not noise


def threads(path, shape, kind):
    tests = {}
    for row in json.load(sys.stdin):
        tests.setdefault(row["test"], []).append((row["n_threads"], statistics.median(row["samples_ts"])))
    new = not pathlib.Path(path).exists()
    with open(path, "a", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if new:
            writer.writerow(["shape", "type", "test", "threads", "tok_s", "of_best_below"])
        for test, rates in tests.items():
            best, line = 0, []
            for count, rate in sorted(rates):
                share = rate / best if best else 1
                writer.writerow([shape, kind, test, count, f"{rate:.4g}", f"{share:.3f}"])
                line.append(f"{count}: {rate:.4g}" + (f" (SLOWER, {share:.2f} of the best below)" if share < NEVER_SLOWER else ""))
                best = max(best, rate)
            print(f"{shape} {kind} {test}, tok/s by threads: " + ", ".join(line))


def machine(path):
    found = json.loads(pathlib.Path(path).read_text())
    quota = f", a quota of {found['quota_cpus']} CPUs" if found["quota_cpus"] else ""
    print(f"{found['sockets']} sockets, {found['cores']} cores, {len(found['cpus'])} CPUs, {len(found['memory_nodes'])} memory nodes{quota}")
    print("CPU:core", *(f"{place['cpu']}:{place['core']}" for place in found["cpus"]))
    for cache in found["caches"]:
        print(f"L{cache['level']} {cache['type']}: {cache['number']} of {cache['bytes'] >> 10} KiB, {cache['cpus']} CPUs on one")
    names = list(found["peaks"][0]["products"])
    print("\n| threads | on cores | read GB/s | " + " | ".join(f"{name}, 10^9/s" for name in names) + " |\n|" + "---|" * (3 + len(names)))
    for row in found["peaks"]:
        rates = [row["read_gb_s"]] + [row["products"][name] for name in names]
        cells = " | ".join(f"{rate['mean']:.{0 if i else 1}f} ({rate['best']:.{0 if i else 1}f})" for i, rate in enumerate(rates))
        print(f"| {row['threads']} | {row['placement']} | {cells} |")
    print("\nMeans, and the best loops in brackets.")


if __name__ == "__main__":
    commands = {"add": (add, 5), "table": (table, 1), "wide": (wide, 1), "served": (served, 4), "threads": (threads, 3), "machine": (machine, 1)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or len(sys.argv) - 2 != commands[sys.argv[1]][1]:
        sys.exit(__doc__.strip())
    commands[sys.argv[1]][0](*sys.argv[2:])
