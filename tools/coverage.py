#!/usr/bin/env python3
"""Prints which of transformers' causal language models ingot runs.

    python tools/coverage.py

For each model_type that AutoModelForCausalLM knows: "runs" if the table of architectures (src/model/config/arch.cc) has
a row for it, or for the text part of its config; "no decoder of text" if it also has an encoder, or reads no tokens;
and otherwise "unknown", which ingot refuses by naming the model_type and the types that it knows.

    pip install -r tools/goldens/requirements.txt
"""
import pathlib
import re

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

ROOT = pathlib.Path(__file__).resolve().parent.parent


def known_types():
    table = (ROOT / "src/model/config/arch.cc").read_text()
    return set(re.findall(r'\.hf_name = "([^"]+)"', table))


def state_of(model_type, known):
    if model_type in known:
        return "runs"
    try:
        config = transformers.AutoConfig.for_model(model_type)
    except Exception:  # of any kind: the config needs arguments
        return "unknown"
    text = getattr(config, "text_config", None) or getattr(getattr(config, "thinker_config", None), "text_config", None)
    if getattr(text, "model_type", None) in known:
        return f"runs as {text.model_type}"
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "vocab_size"):
        return "no decoder of text"
    return "unknown"


def main():
    transformers.logging.set_verbosity_error()
    known = known_types()
    states = {t: state_of(t, known) for t in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)}
    for model_type, state in states.items():
        print(f"{model_type:28} {state}")
    counts = {}
    for state in states.values():
        counts[state.split(" as ")[0]] = counts.get(state.split(" as ")[0], 0) + 1
    print(", ".join(f"{name}: {n}" for name, n in sorted(counts.items())) + f"; {len(states)} in all")


if __name__ == "__main__":
    main()
