"""`ingot bench images` on the built-in vision model."""
import json
import os
import pathlib

import pytest

PICTURE = pathlib.Path(os.environ["INGOT_SOURCE"]) / "tests/data/demo_vision/00.png"


def test_each_stage_is_measured(ingot):
    done = ingot("bench", "images", "demo-vision", "-i", PICTURE, "-n", "2", "--at-once", "2", "--streams", "2", "-t", "1", "--json")
    report = json.loads(done.stdout)
    assert (report["tower"], report["tokens"], report["patches"], report["streams"]) == ("idefics3", 64, 256, 2)
    for figure in ("prepare_ms", "encode_ms", "first_image_ms", "tower_tflop_s", "matrix_share", "images_per_s", "gap_ms_p50"):
        assert report[figure] > 0, figure
    # The stages are parts of the whole, and the next turn reads the picture from the cache.
    assert report["first_token_ms"] > report["encode_ms"] and report["gap_ms_p99"] >= report["gap_ms_p50"]


def test_the_table_has_the_same_figures(ingot):
    text = ingot("bench", "images", "demo-vision", "--size", "40x30", "-n", "1", "-t", "1").stdout
    assert text.startswith("idefics3 on cpu: 256 patches, 64 tokens\n")
    assert [line.split("  ")[1] for line in text.splitlines()[1:]] == ["prepare", "encode", "first image", "4 at once", "first token", "second turn"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--shape", "qwen3.5-9b"], "--shape needs --tower"),
        (["--tower", "smolvlm"], "unknown tower 'smolvlm'; known are gemma-3"),
        (["--tower", "gemma-3", "--streams", "2"], "--streams needs a text model"),
        (["--size", "0x5"], "--size 0x5: expected WIDTHxHEIGHT"),
        (["demo"], "has no vision tower"),
    ],
)
def test_what_does_not_fit_is_refused(ingot, args, message):
    done = ingot("bench", "images", *args, ok=False)
    assert done.returncode != 0 and message in done.stderr
