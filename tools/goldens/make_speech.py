#!/usr/bin/env python3
"""Makes the tiny speech model of tests/data/speech with random weights, and the results of Hugging Face transformers.

The files are those of a checkpoint, goldens.json, and mel.bin: log-mel features of sounds that formulas make, so that
no recording is needed. All windows are those of the feature extractor, one by one.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_speech.py [-o tests/data/speech]
"""
import argparse
import json
import pathlib

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from tiny_tokenizer import byte_tokens
from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper import generation_whisper

LANGUAGES = ["en", "zh", "de"]
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", *[f"<|{code}|>" for code in LANGUAGES], "<|translate|>",
           "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
N_ROWS, N_MELS, N_CTX = 30, 8, 32
FRAMES = 2 * N_ROWS
WINDOW = FRAMES * 160  # samples
END, START = 256, 257
ID = {token: END + i for i, token in enumerate(SPECIAL)}
FIRST_TIME = END + len(SPECIAL)
SUPPRESSED, FIRST_SUPPRESSED = [1, 2, 7, 60, 61, *range(START, FIRST_TIME)], [220, END]
SEED, LENGTH = 15, 4 * WINDOW + 5000
HEADS = [[0, 1], [1, 2], [1, 3]]
MEL_FRAMES = [0, 249, 250, 2999]


def sound(n, seed=1):
    """Noise whose loudness changes, with a square wave: float32 [n]. The test has the same formula."""
    x = np.zeros(n, np.float32)
    state = seed
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        noise = (state >> 8) % 4096 / 4096 - 0.5
        loudness = (1 + i // 2400 % 5) / 16
        wave = 0.25 if i // (20 + i // 4800 % 7 * 8) % 2 else -0.25
        x[i] = loudness * (noise + wave)
    return x


def tokenizer():
    tokens = byte_tokens()
    model = tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, [])
    result = tokenizers.Tokenizer(model)
    result.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = tokenizers.decoders.ByteLevel()
    result.add_special_tokens(SPECIAL)
    result.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|startoftranscript|> <|notimestamps|> $A <|endoftext|>",
        special_tokens=[(t, ID[t]) for t in ("<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>")])
    return result


def model():
    config = WhisperConfig(
        vocab_size=FIRST_TIME + N_ROWS + 1, num_mel_bins=N_MELS, encoder_layers=1, encoder_attention_heads=2,
        decoder_layers=2, decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=24, d_model=16,
        max_source_positions=N_ROWS, max_target_positions=N_CTX, pad_token_id=END, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=START, suppress_tokens=None, begin_suppress_tokens=None)
    made = WhisperForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            spread = 0.3 if weight.dim() > 1 else 0.2
            weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
            if "layer_norm" in name and name.endswith("weight"):
                weight.add_(1)
            weight.copy_(weight.half().float())
    made.generation_config = GenerationConfig(
        suppress_tokens=SUPPRESSED, begin_suppress_tokens=FIRST_SUPPRESSED, is_multilingual=True,
        lang_to_id={f"<|{code}|>": ID[f"<|{code}|>"] for code in LANGUAGES},
        task_to_id={task: ID[f"<|{task}|>"] for task in ("transcribe", "translate")},
        no_timestamps_token_id=ID["<|notimestamps|>"], prev_sot_token_id=ID["<|startofprev|>"],
        max_initial_timestamp_index=10, decoder_start_token_id=START, pad_token_id=END, bos_token_id=END,
        eos_token_id=END, max_length=N_CTX, return_timestamps=False, alignment_heads=HEADS)
    return made


def features_of(samples):
    extractor = WhisperFeatureExtractor(feature_size=N_MELS)
    padded = np.pad(samples[:WINDOW], (0, max(0, WINDOW - len(samples))))
    return torch.tensor(extractor._np_extract_fbank_features(padded[None], "cpu"))


def write_window(made, features, **options):
    """One call of the decoder on a window: the tokens, their mean log-probability, the probability of silence."""
    prompt = options.get("prompt_ids")
    if not options["return_timestamps"]:  # real models write no times then; this one must be told
        options["suppress_tokens"] = SUPPRESSED + list(range(FIRST_TIME, made.config.vocab_size))
    with torch.no_grad():
        out = made.generate(features, force_unique_generate_call=True, return_dict_in_generate=True, output_scores=True,
                            max_new_tokens=N_CTX // 2, temperature=0.0, do_sample=False, **options)
        first = [START, made.generation_config.lang_to_id[f"<|{options['language']}|>"], ID[f"<|{options['task']}|>"]]
        first = ([] if prompt is None else prompt.tolist()) + first
        if not options["return_timestamps"]:
            first.append(ID["<|notimestamps|>"])
        logits = made(features, decoder_input_ids=torch.tensor([first])).logits[0]
    tokens = out.sequences[0]
    if tokens[: len(first)].tolist() == first:
        tokens = tokens[len(first):]
    mean = made._retrieve_avg_logprobs([score[0] for score in out.scores], tokens, 0.0)
    silence = torch.softmax(logits[first.index(START)], -1)[ID["<|nospeech|>"]]
    ids = tokens.tolist()
    return ids[:-1] if ids[-1] == END else ids, float(mean), float(silence)


def transcript(made, samples, **options):
    """The segments of all windows, cut by transformers: a list of windows."""
    at, windows = 0, []
    while at == 0 or at + 1600 <= len(samples):
        n = min(WINDOW, len(samples) - at)
        ids, mean, silence = write_window(made, features_of(samples[at:]), **options)
        segments, step = made._retrieve_segment(
            seek_sequence=torch.tensor(ids), seek_outputs=[None], time_offset=torch.zeros(1, dtype=torch.float64),
            timestamp_begin=FIRST_TIME, seek_num_frames=torch.tensor([n // 160]), time_precision=0.02,
            time_precision_features=0.01, input_stride=2, prev_idx=0, idx=0, return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 1))
        windows.append({"at": at, "tokens": ids, "avg_logprob": mean, "no_speech_prob": silence,
                        "segments": [[round(float(s["start"]), 4), round(float(s["end"]), 4), s["tokens"].tolist()]
                                     for s in segments]})
        step = int(step)
        at += step * 160 if 0 < step * 160 < n else n
    return windows


def alignment(made, features, n_rows=27):
    """Where each token begins, as OpenAI's code computes it, with transformers' attention, median filter and warping."""
    before = [START, ID["<|de|>"], ID["<|transcribe|>"], ID["<|notimestamps|>"]]
    tokens = [*before, 40, 41, 220, 42, 43, 44, END]
    with torch.no_grad():
        attention = made(features, decoder_input_ids=torch.tensor([tokens]), output_attentions=True).cross_attentions
    shares = torch.stack([attention[layer][0, head] for layer, head in HEADS])[:, :, :n_rows]
    shares = shares / shares.sum(-1, keepdim=True)  # a softmax over these rows
    deviation, mean = torch.std_mean(shares, dim=-2, keepdim=True, unbiased=False)
    matrix = generation_whisper._median_filter(((shares - mean) / deviation)[None], 7)[0].mean(0)[len(before) - 1:-1]
    rows, times = generation_whisper._dynamic_time_warping(-matrix.double().numpy())
    jumps = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
    return {"tokens": tokens, "n_rows": n_rows, "starts": times[jumps].tolist(),
            "shares": [[round(float(x), 6) for x in head[4]] for head in shares]}


def beams(made, samples, at, n_beams):
    """A search for the text of the window at a sample: its tokens, without the end, and its score."""
    with torch.no_grad():
        out = made.generate(features_of(samples[at:at + WINDOW]), force_unique_generate_call=True,
                            return_dict_in_generate=True, output_scores=True, max_new_tokens=N_CTX // 2,
                            temperature=0.0, do_sample=False, num_beams=n_beams, return_timestamps=True, language="de",
                            task="transcribe")
    tokens = out.sequences[0].tolist()
    if tokens[0] == START:
        tokens = tokens[3:]
    if END in tokens:
        tokens = tokens[:tokens.index(END)]
    return {"at": at, "n_beams": n_beams, "tokens": tokens, "score": round(float(out.sequences_scores[0]), 6)}


def goldens(made):
    samples = sound(LENGTH)
    features = features_of(samples)
    prompt = [START, ID["<|de|>"], ID["<|transcribe|>"], 40, 41, 42]
    with torch.no_grad():
        encoded = made.model.encoder(features).last_hidden_state[0]
        logits = made(features, decoder_input_ids=torch.tensor([prompt])).logits[0]
        language = made.detect_language(features)[0]
    text = {"language": "de", "task": "transcribe"}
    previous = torch.tensor([ID["<|startofprev|>"], 220, 65, 66, 67])
    return {
        "encoder": [[round(float(x), 6) for x in row] for row in encoded[::7]],
        "prompt": prompt,
        "logits": [[round(float(x), 5) for x in logits[i]] for i in (0, 5)],
        "language": SPECIAL[int(language) - END],
        "with_times": transcript(made, samples, return_timestamps=True, **text),
        "translation": transcript(made, samples, return_timestamps=True, language="en", task="translate"),
        "without_times": transcript(made, samples, return_timestamps=False, **text),
        "after_prompt": write_window(made, features, return_timestamps=True, prompt_ids=previous, **text)[0],
        "alignment": alignment(made, features),
        "beams": [beams(made, samples, at, n) for at, n in ((0, 3), (WINDOW, 5), (2 * WINDOW, 4))],
        "prompt_text": tokenizer().decode([65, 66, 67]),
    }


def write_mel(path):
    """Frames of windows of 30 seconds, with 80 and 128 bands: a short sound, and one that fills the window."""
    rows = []
    for n_mels in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=n_mels)
        for n in (40000, 480000):
            padded = np.pad(sound(n, 7), (0, 480000 - n))
            mel = extractor._np_extract_fbank_features(padded[None], "cpu")[0]  # [n_mels, 3000]
            rows.append(mel.T[MEL_FRAMES].astype(np.float32).tobytes())
    path.write_bytes(b"".join(rows))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("tests/data/speech"))
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    made = model()
    made.config.to_json_file(out / "config.json")
    made.generation_config.to_json_file(out / "generation_config.json")
    tokenizer().save(str(out / "tokenizer.json"), pretty=False)
    weights = {name: t.half().contiguous() for name, t in made.state_dict().items() if name != "proj_out.weight"}
    safetensors.torch.save_file(weights, out / "model.safetensors")
    (out / "goldens.json").write_text(json.dumps(goldens(made), separators=(",", ":")) + "\n")
    write_mel(out / "mel.bin")


if __name__ == "__main__":
    main()
