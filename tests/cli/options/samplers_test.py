"""The flags of DRY, XTC, top-n-sigma, dynamic temperature, Mirostat and the order of the stages, with llama.cpp's names."""
import os
import subprocess

import pytest

DEFAULT = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"


def run(*args, seed=3, prompt="Once upon a time"):
    return subprocess.run([os.environ["INGOT"], "run", "--raw", "-p", prompt, "-n", "24", "--ignore-eos", "-s", str(seed), *args], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


def said(*args, **kwargs):
    done = run(*args, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_flag_changes_the_text():
    plain = said()
    for flags in (["--xtc-probability", "1", "--xtc-threshold", "0.05"], ["--top-nsigma", "0.3"],
                  ["--mirostat", "2", "--mirostat-ent", "1", "--mirostat-lr", "0.2"], ["--dynatemp-range", "0.8", "--dynatemp-exp", "1.5", "--temp", "0.9"], ["--samplers", "temperature", "--temp", "2"]):
        text = said(*flags)
        assert text != plain and text == said(*flags), flags
    assert said("--samplers", DEFAULT) == plain


def test_dry_and_its_breakers():
    """The repeated beginning of a story continues differently, unless its last word is a sequence breaker."""
    begin = "Once upon a time"
    prompt = begin + said("--temp", "0", prompt=begin).rstrip("\n") + " " + begin
    plain = said("--temp", "0", prompt=prompt)
    dry = ["--temp", "0", "--dry-multiplier", "20"]
    assert plain.startswith(",") and not said(*dry, prompt=prompt).startswith(",")
    assert said(*dry, "--dry-sequence-breaker", "none", prompt=prompt) == said(*dry, prompt=prompt), "the default ones are not in these words"
    assert said(*dry, "--dry-sequence-breaker", "time", prompt=prompt).startswith(",")
    assert said(*dry, "--dry-allowed-length", "50", prompt=prompt) == plain


@pytest.mark.parametrize("flags, word", [(["--samplers", "top_k;top_q"], "'top_q' is not a stage"), (["--samplers", "top_k;top_k"], "'top_k' occurs twice"), (["--mirostat", "1"], "--mirostat"),
                                         (["--dry-base", "0.5"], "--dry-base is 0.5"), (["--xtc-probability", "2"], "--xtc-probability is 2"),
                                         (["--dry-allowed-length", "0"], "--dry-allowed-length")])
def test_what_is_out_of_range(flags, word):
    done = run(*flags)
    assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1, done.stderr
