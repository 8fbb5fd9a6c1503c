"""Reads the track "gpu" of a trace that `--trace FILE --trace-steps` wrote."""
import json


def device_steps(path):
    """Returns [(tokens, sequences, begin in us, end in us)], in order."""
    track, steps = None, []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("{"):
                continue
            event = json.loads(line.rstrip().rstrip(","))
            if event["name"] == "thread_name" and event["args"]["name"] == "gpu":
                track = event["tid"]
            elif event["ph"] == "X" and event["tid"] == track:
                args = event["args"]
                steps.append((args["tokens"], args["sequences"], event["ts"], event["ts"] + event["dur"]))
    return steps
