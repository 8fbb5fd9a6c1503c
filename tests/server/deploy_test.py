"""Checks the files of deploy/ with the tools of their programs: systemd's checker, promtool of Prometheus, and
Kubernetes' schemas. The image must have the program's libraries and copy only files that exist. promtool also checks
/metrics."""
import configparser
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import SOURCE
from tools import promtool, python_with

DEPLOY = SOURCE / "deploy"
PROGRAM = pathlib.Path(os.environ["INGOT"])


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def flags():
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", run(PROGRAM, "serve", "--help-all").stdout))


def flags_in(words):
    return [word for word in words if word.startswith("-")]


# ---- figures ----

def test_promtool_reads_the_metrics(start):
    tool = promtool()
    server = start("--metrics-compat", "vllm", "--access-log", "none", "--alias", 'odd "name"\\ of it')
    server.chat(max_tokens=3)
    server.chat(max_tokens=0)  # refused
    text = server.get("/metrics").body.decode()
    checked = run(tool, "check", "metrics", input=text)
    assert checked.returncode in (0, 3), checked.stderr  # 3: promtool only dislikes the names of some of vLLM's metrics
    known = ("should not contain ':'", "iteration_tokens_total")
    complaints = [line for line in checked.stderr.splitlines() if not any(words in line for words in known)]
    assert complaints == [], "nothing but vLLM's prefix, and its histogram that is called _total"
    broken = run(tool, "check", "metrics", input=text.replace('le="+Inf"', 'le="x"'))
    assert broken.returncode != 0, "it looks at all"


def expressions(node):
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "expr")
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from expressions(value)


def test_the_dashboard_asks_for_what_there_is(server, tmp_path):
    server.chat(max_tokens=3)
    lines = server.get("/metrics").body.decode().splitlines()
    have = {line.split("{")[0] for line in lines if not line.startswith("#")}
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = list(expressions(dashboard["panels"]))
    assert len(asked) > 10 and dashboard["title"] and dashboard["uid"]
    for text in [*asked, *(v["query"] for v in dashboard["templating"]["list"] if "label_values" in str(v["query"]))]:
        names = set(re.findall(r"ingot:\w+", str(text)))
        assert names and names <= have, (text, names - have)
    rules = [{"record": f"panel:{i}", "expr": text.replace("$__rate_interval", "5m")} for i, text in enumerate(asked)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    checked = run(promtool(), "check", "rules", file)
    assert checked.returncode == 0 and f"{len(asked)} rules found" in checked.stdout, checked.stdout + checked.stderr


RULES = DEPLOY / "alerts.yaml"
# Series that make a rule fire after some minutes, and series of a healthy server, for which it stays silent.
FIRING = {
    "IngotDown": {'up{job="ingot",instance="a"}': "0x30"},
    "IngotStuck": {'ingot:num_requests_running{instance="a",model_name="m"}': "2x30", 'ingot:steps_total{instance="a",model_name="m"}': "7x30"},
    "IngotStepsFail": {'ingot:failed_steps_total{instance="a",model_name="m"}': "0+1x30"},
    "IngotAnswersFail": {'http_requests_total{instance="a",handler="x",method="POST",status="503"}': "0+10x30", 'http_requests_total{instance="a",handler="x",method="POST",status="200"}': "0+90x30"},
    "IngotRefuses": {'ingot:requests_rejected_total{instance="a",model_name="m"}': "0+6x30"},
    "IngotFirstTokenLate": {'ingot:time_to_first_token_seconds_bucket{instance="a",model_name="m",le="10"}': "0+9x30", 'ingot:time_to_first_token_seconds_bucket{instance="a",model_name="m",le="20"}': "0+10x30",
                            'ingot:time_to_first_token_seconds_bucket{instance="a",model_name="m",le="+Inf"}': "0+10x30"},
    "IngotCacheSmall": {'ingot:num_preemptions_total{instance="a",model_name="m"}': "0+12x30"},
    "IngotRestarts": {'process_start_time_seconds{job="ingot",instance="a"}': "0+100x30"},
    "IngotFilesRunOut": {'process_open_fds{job="ingot",instance="a"}': "950x30", 'process_max_fds{job="ingot",instance="a"}': "1000x30"},
}
HEALTHY = {
    'up{job="ingot",instance="a"}': "1x30", 'ingot:num_requests_running{instance="a",model_name="m"}': "2x30", 'ingot:steps_total{instance="a",model_name="m"}': "7+100x30",
    'ingot:failed_steps_total{instance="a",model_name="m"}': "1x30", 'http_requests_total{instance="a",handler="x",method="POST",status="503"}': "0+1x30",
    'http_requests_total{instance="a",handler="x",method="POST",status="200"}': "0+90x30", 'ingot:requests_rejected_total{instance="a",model_name="m"}': "4x30",
    'ingot:time_to_first_token_seconds_bucket{instance="a",model_name="m",le="10"}': "0+99x30", 'ingot:time_to_first_token_seconds_bucket{instance="a",model_name="m",le="+Inf"}': "0+100x30",
    'ingot:num_preemptions_total{instance="a",model_name="m"}': "0+1x30", 'process_start_time_seconds{job="ingot",instance="a"}': "100x30",
    'process_open_fds{job="ingot",instance="a"}': "100x30", 'process_max_fds{job="ingot",instance="a"}': "1000x30",
}


def test_the_alerts_ask_for_what_there_is(server):
    server.chat(max_tokens=3)
    have = set(re.findall(r"^([\w:]+)[{ ]", server.get("/metrics").body.decode(), re.M)) | {"up"}
    text = RULES.read_text()
    asked = set(re.findall(r"\b(?:ingot:\w+|http_\w+|process_\w+|up)\b(?=[{\[ ])", text))
    assert len(asked) > 10 and asked <= have, asked - have
    flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", run(PROGRAM, "serve", "--help-all").stdout))
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) <= flags
    checked = run(promtool(), "check", "rules", RULES)
    assert checked.returncode == 0 and f"{len(FIRING)} rules found" in checked.stdout, checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", [*FIRING, None])
def test_an_alert_fires_for_its_fault_alone(tmp_path, alert):
    """Prometheus' own simulator: of all rules, only the fault's fires, and none for a healthy server."""
    series = FIRING[alert] if alert else HEALTHY
    ask = {"expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})", "eval_time": "25m",
           "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []}
    case = {"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()], "promql_expr_test": [ask]}
    file = tmp_path / "cases.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}))
    done = run(promtool(), "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- a service, an image, a pod ----

def test_the_unit(flags, tmp_path):
    text = (DEPLOY / "ingot.service").read_text()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    service = unit["Service"]
    start = service["ExecStart"].split()
    assert start[:2] == ["ingot", "serve"] and set(flags_in(start)) <= flags
    assert service["RestartPreventExitStatus"] == "1 2", "what no new start can mend"
    assert int(service["TimeoutStopSec"]) > 30, "longer than --shutdown-timeout"
    if not shutil.which("systemd-analyze"):
        pytest.skip("the rest needs systemd-analyze")
    there = tmp_path / "ingot.service"
    there.write_text(text.replace("ExecStart=ingot", f"ExecStart={PROGRAM}"))
    checked = run("systemd-analyze", "verify", there)
    assert checked.returncode == 0 and "ingot.service" not in checked.stderr, checked.stderr
    there.write_text(text.replace("DynamicUser=", "DynamicUsers="))
    assert "DynamicUsers" in run("systemd-analyze", "verify", there).stderr, "it looks at all"


VALIDATE = """import sys, yaml, kubernetes_validate
for document in yaml.safe_load_all(open(sys.argv[1])):
    kubernetes_validate.validate(document, "1.30", strict=True)
    print(document["kind"], "ok")
    if document["kind"] == "Deployment":
        (container,) = document["spec"]["template"]["spec"]["containers"]
        print("args", *container["args"])
"""


def test_the_manifest(flags, server, tmp_path):
    python = python_with("kubernetes-validate>=1.30")
    checked = run(python, "-c", VALIDATE, DEPLOY / "kubernetes.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.split()[:2] == ["Deployment", "ok"] and "Service ok" in checked.stdout
    args = re.search(r"^args (.*)$", checked.stdout, re.M)[1].split()
    assert flags_in(args) and set(flags_in(args)) <= flags
    text = (DEPLOY / "kubernetes.yaml").read_text()
    scraped = re.search(r'prometheus.io/port: "(\d+)"', text)[1]
    assert scraped == args[args.index("--metrics-port") + 1] and f"containerPort: {scraped}" in text
    for path in re.findall(r"path: (/[\w/]*)", text):
        assert server.get(path).status == 200, path
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1])
    drain = int(args[args.index("--shutdown-timeout") + 1])
    assert grace > drain + 5, "time for preStop and the drain"
    has_nan = tmp_path / "has_nan.yaml"
    has_nan.write_text(text.replace("readinessProbe", "readynessProbe"))
    assert run(python, "-c", VALIDATE, has_nan).returncode != 0, "it looks at all"


VALIDATE_JSON = """import json, sys, kubernetes_validate
kubernetes_validate.validate(json.load(sys.stdin), "1.30", strict=True)
"""

MULTI_HOST = """import sys, yaml
for document in yaml.safe_load_all(open(sys.argv[1])):
    print(__import__("json").dumps(document))
"""


def test_the_manifest_of_several_hosts(flags):
    """There is no schema of LeaderWorkerSet here, so the pods are checked with Kubernetes' schema, as pods of a
    Deployment."""
    python = python_with("kubernetes-validate>=1.30")
    read = run(python, "-c", MULTI_HOST, DEPLOY / "leaderworkerset.yaml")
    group, service = map(json.loads, read.stdout.splitlines())
    assert (group["kind"], group["apiVersion"]) == ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")
    assert service["kind"] == "Service"
    template = group["spec"]["leaderWorkerTemplate"]
    assert set(template) == {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    scripts = {what.split()[-1].rsplit("/", 1)[1] for name, what in image() if name == "COPY"}
    for pod in (template["leaderTemplate"], template["workerTemplate"]):
        labels = {"app": "x"}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
                      "spec": {"selector": {"matchLabels": labels},
                               "template": {**pod, "metadata": {"labels": labels}}}}
        validated = run(python, "-c", VALIDATE_JSON, input=json.dumps(deployment))
        assert validated.returncode == 0, validated.stderr
        (container,) = pod["spec"]["containers"]
        assert container["command"][0] in scripts, "a script of the image"
        gpus = container["resources"]["limits"]["nvidia.com/gpu"]
        assert all(v["value"] == gpus for v in container.get("env", []) if v["name"] == "GPUS")
    args = template["leaderTemplate"]["spec"]["containers"][0]["args"]
    assert flags_in(args) and set(flags_in(args)) <= flags
    assert service["spec"]["selector"].items() <= template["leaderTemplate"]["metadata"]["labels"].items()


def stubs(folder, **bodies):
    """A PATH with programs that print their arguments."""
    for name, body in bodies.items():
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\n{body}\n')
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("stages, share", [({}, "--tp 12 --pp 1"), ({"STAGES": "3"}, "--tp 4 --pp 3")])
def test_the_leader_starts_a_rank_for_each_gpu(flags, tmp_path, stages, share):
    up = tmp_path / "up"
    env = stubs(tmp_path, ssh=f"[ -f {up} ] || {{ touch {up}; exit 255; }}", sleep="", mpirun="exit 71")
    env |= {"LWS_LEADER_ADDRESS": "ingot-0.ingot.default", "LWS_GROUP_SIZE": "3", "GPUS": "4"} | stages
    done = run(DEPLOY / "leader.sh", "/models/m.gguf", "--max-seqs", "8", env=env)
    assert done.returncode == 71, done.stderr
    *waits, start = (tmp_path / "calls").read_text().splitlines()
    asks = [f"ssh ingot-0-{i}.ingot.default true" for i in (1, 2)]
    assert waits == [asks[0], "sleep 2", *asks]
    hosts = ",".join(f"{pod}.ingot.default:4" for pod in ("ingot-0", "ingot-0-1", "ingot-0-2"))
    assert start == (f"mpirun --host {hosts} -n 12 ingot serve {share} "
                     "--device cuda --host 0.0.0.0 /models/m.gguf --max-seqs 8")
    assert set(flags_in(start.split(" serve ")[1].split())) <= flags


SLURM = {"SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1"}


AGAIN = {0: False, 1: False, 2: False, 70: True, 71: True, 72: True, 137: True}  # the exit code: does the job run again


@pytest.mark.parametrize("code, again", AGAIN.items())
def test_the_slurm_script(flags, tmp_path, code, again):
    env = stubs(tmp_path, srun=f"exit {code}", scontrol="") | SLURM
    done = run(DEPLOY / "slurm.sh", "/models/m.gguf", "--max-seqs", "64", env=env)
    assert done.returncode == code and "8 ranks; http://node1:8080" in done.stdout
    start, *rest = (tmp_path / "calls").read_text().splitlines()
    assert start == ("srun --mpi=pmix --kill-on-bad-exit=1 --ntasks=8 --ntasks-per-node=4 --gpu-bind=none ingot serve "
                     "--tp 8 --pp 1 --device cuda --host 0.0.0.0 --port 8080 /models/m.gguf --max-seqs 64")
    assert set(flags_in(start.split(" serve ")[1].split())) <= flags
    assert rest == (["scontrol requeue 7"] if again else [])


def test_the_slurm_script_makes_stages(tmp_path):
    env = stubs(tmp_path, srun="", scontrol="") | SLURM | {"STAGES": "2"}
    assert run(DEPLOY / "slurm.sh", "/models/m.gguf", env=env).returncode == 0
    assert "ingot serve --tp 4 --pp 2 --device cuda" in (tmp_path / "calls").read_text()


def test_the_slurm_script_says_how_it_is_used():
    done = run(DEPLOY / "slurm.sh")
    assert done.returncode == 2 and "usage: sbatch" in done.stderr
    text = (DEPLOY / "slurm.sh").read_text()
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.M))
    assert {"nodes", "gpus-per-node", "requeue"} <= set(directives)


def image(name="Containerfile.mpi"):
    """The instructions of a Containerfile, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / name).read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_copies_what_there_is(flags):
    lines = image()
    assert [what for name, what in lines if name == "FROM"] == ["debian:12 AS build", "debian:12-slim"]
    copied, module = [what.split() for name, what in lines if name == "COPY" and "--from=build" in what]
    assert module[1:] == ["/src/build/libingot_mpi.so", "/usr/local/lib/ingot/libingot_mpi.so"]
    made = re.search(r"make (\w+) && strip (\S+)", " ".join(what for name, what in lines if name == "RUN"))
    assert copied[1] == "/src/" + made[2] and made[2] == "build/ingot" and PROGRAM.name == "ingot"
    assert re.search(rf"^{made[1]}:", (SOURCE / "Makefile").read_text(), re.M)
    entry = json.loads(next(what for name, what in lines if name == "ENTRYPOINT"))
    assert copied[2] == f"/usr/local/bin/{entry[0]}" and entry[1] == "serve" and set(flags_in(entry)) <= flags


BASES = {"Containerfile": "debian:12-slim", "Containerfile.cuda": "nvidia/cuda:13.0.1-base-ubuntu24.04"}


@pytest.mark.parametrize("name", BASES)
def test_the_images_of_one_host(flags, name):
    lines = image(name)
    last = lines[max(i for i, (what, _) in enumerate(lines) if what == "FROM"):]
    said = {what: rest for what, rest in last}
    assert said["FROM"] == BASES[name] and said["USER"] == "ingot" and said["EXPOSE"] == "8080"
    assert all(word in said["RUN"] for word in ("useradd", "libcurl4", "ca-certificates")) and "ssh" not in said["RUN"]
    entry = json.loads(said["ENTRYPOINT"])
    assert entry[:2] == ["ingot", "serve"] and set(flags_in(entry)) <= flags
    if name == "Containerfile":
        assert said["COPY"] == "dist/ingot_*_amd64.deb /tmp/" and "dist" not in (SOURCE / ".dockerignore").read_text()
    else:
        copied = [rest.split()[1:] for what, rest in last if what == "COPY"]
        made = "make cuda && strip build-cuda/ingot build-cuda/libingot-cuda.so"
        assert made in [rest for what, rest in lines if what == "RUN"]
        assert re.search(r"^cuda:", (SOURCE / "Makefile").read_text(), re.M)
        assert copied == [["/src/build-cuda/ingot", "/usr/local/bin/ingot"],
                          ["/src/build-cuda/libingot-cuda.so", "/usr/local/lib/ingot/libingot-cuda.so"]]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.cuda"])
def test_the_health_check_sees_health(start, name):
    """The command of the image, at this server's port: it fails before the server answers and after it has ended."""
    shell, dash_c, script = json.loads(dict(image(name))["HEALTHCHECK"].split(" CMD ")[1])
    server = start()
    check = [shell, dash_c, script.replace("/8080", f"/{server.port}")]
    assert run(*check).returncode == 0
    server.stop()
    assert run(*check).returncode != 0


def test_the_image_has_the_libraries_of_the_program():
    release = pathlib.Path("/etc/os-release")
    if not shutil.which("dpkg") or 'VERSION_ID="12"' not in release.read_text():
        pytest.skip("the packages are those of Debian 12")
    installs = " ".join(what for name, what in image() if name == "RUN")
    runtime = installs.rsplit("apt-get install", 1)[1].split("&&")[0].split()
    present = {"libc6", "libstdc++6", "libgcc-s1", "zlib1g"}  # apt itself needs them
    files = [file for file in (PROGRAM, PROGRAM.with_name("libingot_mpi.so")) if file.exists()]
    needed = [library for file in files for library in re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", file).stdout)]
    where = dict(found for file in files for found in re.findall(r"(\S+) => (/\S+)", run("ldd", file).stdout))
    assert len(needed) > 5
    for library in needed:
        if re.match(r"lib(asan|tsan|ubsan)", library) or library.startswith("ld-linux"):
            continue
        found = pathlib.Path(where[library])
        owner = next((done.stdout for path in (found, found.resolve(), pathlib.Path("/usr") / found.relative_to("/"))
                      if (done := run("dpkg", "-S", path)).returncode == 0), None)
        assert owner, library
        package = owner.split(":")[0]
        assert package in present | set(runtime), f"{library} is in {package}, which the image lacks"
