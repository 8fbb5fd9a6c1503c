"""Whether an answer of the vision model is right. A box is, if it covers the true box with an intersection over union of at
least 0.7; every other answer must be equal."""

import json


def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, w) * max(0, h)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def is_right(kind, answer, said):
    if kind != "box":
        return answer == said
    try:
        a, b = json.loads(answer), json.loads(said)
        return a["label"] == b["label"] and overlap(a["bbox_2d"], b["bbox_2d"]) >= 0.7
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
        return False
