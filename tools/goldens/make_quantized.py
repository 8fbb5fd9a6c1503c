#!/usr/bin/env python3
"""Makes tests/data/quantized: matrices and tiny models in the layouts of quantized checkpoints, with their decoded
values.

NAME.safetensors     one matrix, its tensors named m.*, beside `expected`, the float32 weights [out, in] that mlx,
                     compressed-tensors, torch or NumPy (packers.py) make of them; __metadata__ has `config`, the keys for
                     config.json
models/NAME/         a directory of a tiny model: config.json, model.safetensors, expected.npy, float32 logits [n_tokens, vocab]
                     that transformers computes with the dequantized weights, and tokens.json, the prompt. What transformers
                     can load on a CPU (FP8, compressed-tensors, MXFP4) it has loaded, from that directory, to compute them
models/base_f16.gguf the weights from which the models of the llama kind were quantized

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_quantized.py [-o tests/data/quantized]
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers
from make_models import hf_tokenizer, make_model, weight_stats, write_gguf
from pieces import lace
from specs import GPT_OSS, Spec
from packers import awq, awq_gemv, compressed, compressed_mx, fp8, gptq, mlx, modelopt, t
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def matrix(rng, n_out=16, n_in=128):
    return (0.05 * rng.standard_normal((n_out, n_in))).astype(np.float32)


def shuffled(rng, n):
    return rng.permutation(n)


def matrices(rng):
    """(name, (tensors, keys, weights))"""
    w = lambda *shape: matrix(rng, *shape)
    for bits, group, dtype in [(2, 32, "bfloat16"), (2, 128, "float16"), (3, 64, "bfloat16"), (3, 128, "float32"), (4, 32, "float16"),
                               (4, 64, "bfloat16"), (4, 128, "bfloat16"), (5, 64, "float16"), (5, 32, "bfloat16"), (6, 64, "bfloat16"),
                               (6, 128, "float16"), (8, 64, "bfloat16"), (8, 32, "float32")]:
        yield f"mlx_{bits}bit_g{group}_{dtype}", mlx(w(16, max(group, 64)), bits=bits, group=group, dtype=dtype)
    yield "mlx_mxfp4", mlx(w(), "mxfp4", 4, 32)
    yield "mlx_mxfp8", mlx(w(), "mxfp8", 8, 32)
    yield "mlx_nvfp4", mlx(w(), "nvfp4", 4, 16)
    yield "mlx_nvfp4_odd", mlx(w(32, 96), "nvfp4", 4, 16)
    for bits, group, sym, v2 in [(2, 64, True, False), (3, 32, False, False), (4, 128, True, False), (4, 128, False, False),
                                 (4, 64, False, True), (8, 32, False, False), (8, -1, True, True)]:
        yield f"gptq_{bits}bit_g{group}{'_sym' if sym else ''}{'_v2' if v2 else ''}", gptq(w(32 if bits == 3 else 16), bits, group, sym, v2)
    yield "gptq_act_order", gptq(w(40), 4, 32, False, order=shuffled(rng, 128))
    yield "gptq_v2_said_to_be_v1", gptq(w(), 4, 64, True, v2=True, said="gptq")
    yield "gptq_odd_rows", gptq(w(32, 48), 4, -1, True)
    yield "awq_g128", awq(w(40))
    yield "awq_g32", awq(w(), 32)
    int4 = {"num_bits": 4, "type": "int"}
    yield "ct_4bit_sym", compressed(w(), "pack-quantized", **int4, strategy="group", group_size=128)
    yield "ct_4bit_asym", compressed(w(), "pack-quantized", F16, **int4, strategy="group", group_size=32, symmetric=False)
    yield "ct_8bit_rows_asym", compressed(w(), "pack-quantized", num_bits=8, type="int", strategy="channel", symmetric=False)
    yield "ct_4bit_rows", compressed(w(), "pack-quantized", F32, **int4, strategy="channel")
    yield "ct_int8", compressed(w(), "int-quantized", num_bits=8, type="int", strategy="channel")
    yield "ct_int8_tensor", compressed(w(), "int-quantized", F32, num_bits=8, type="int", strategy="tensor")
    yield "ct_fp8_tensor", compressed(w(), "float-quantized", num_bits=8, type="float", strategy="tensor")
    yield "ct_fp8_rows", compressed(w(), "float-quantized", num_bits=8, type="float", strategy="channel")
    yield "ct_fp8_blocks", compressed(w(20, 160), "float-quantized", num_bits=8, type="float", strategy="block", block_structure=[16, 64])
    yield "fp8_blocks", fp8(w(20, 160), (128, 128))
    yield "fp8_blocks_bf16", fp8(w(20, 160), (32, 64), dtype=BF16)
    yield "fp8_odd_blocks", fp8(w(20, 50), (16, 24))
    yield "fp8_powers_of_two", fp8(w(), (32, 64), dtype=torch.float8_e8m0fnu)
    yield "fp8_tensor", fp8(w(), name=".weight_scale")
    yield "fp8_rows", fp8(w(), name=".weight_scale", per_row=True, method="fbgemm_fp8")
    yield "mxfp4_experts", experts(rng)
    for bits in (2, 3, 5, 6, 7):
        yield f"ct_{bits}bit", compressed(w(), "pack-quantized", num_bits=bits, type="int", strategy="group", group_size=32)
        yield f"ct_{bits}bit_asym", compressed(w(24), "pack-quantized", F16, num_bits=bits, type="int", strategy="channel", symmetric=False)
    for bits in (3, 5, 6, 7):
        yield f"ct_{bits}bit_old", compressed(w(24), "pack-quantized", F16, old=True, num_bits=bits, type="int", strategy="group", group_size=64, symmetric=False)
    yield "ct_3bit_odd", compressed(w(5, 85), "pack-quantized", F16, num_bits=3, type="int", strategy="channel")
    yield "ct_int8_asym", compressed(w(), "int-quantized", F16, num_bits=8, type="int", strategy="channel", symmetric=False)
    yield "ct_mxfp8", compressed_mx(w(), "mxfp8-quantized", 8, 32)
    yield "ct_mxfp4", compressed_mx(w(), "mxfp4-pack-quantized", 4, 32)
    yield "ct_nvfp4", compressed_mx(w(), "nvfp4-pack-quantized", 4, 16)
    yield "awq_gemv_g128", awq_gemv(w(16, 256))
    yield "awq_gemv_g64", awq_gemv(w(), 64)
    yield "awq_gemv_g32", awq_gemv(w(16, 320), 32)
    yield "ct_4bit_odd", compressed(w(5, 51), "pack-quantized", F16, num_bits=4, type="int", strategy="channel", symmetric=False)
    for name, algorithm in (("fp8", "FP8"), ("fp8_rows", "FP8_PER_CHANNEL_PER_TOKEN"), ("mxfp8", "MXFP8"), ("mxfp4", "MXFP4"), ("nvfp4", "NVFP4")):
        yield f"modelopt_{name}", modelopt(w(), algorithm)
    yield "modelopt_fp8_blocks", modelopt(w(136, 160), "FP8_PB_WO")
    yield "modelopt_nvfp4_odd", modelopt(w(32, 48), "NVFP4")


def experts(rng):
    """gpt-oss: [experts, out, in], which transformers reads transposed."""
    blocks, scales = rng.integers(0, 256, (2, 32, 2, 16), dtype=np.uint8), rng.integers(110, 130, (2, 32, 2), dtype=np.uint8)
    weights = convert_moe_packed_tensors(t(blocks), t(scales), dtype=F32).transpose(1, 2).reshape(64, 64).numpy()
    return {"_blocks": t(blocks), "_scales": t(scales)}, {"quantization_config": {"quant_method": "mxfp4"}}, weights


def write_matrices(out, rng):
    for name, (tensors, keys, weights) in matrices(rng):
        tensors = {"m" + k: v.contiguous() for k, v in tensors.items()} | {"expected": t(weights.astype(np.float32))}
        safetensors.torch.save_file(tensors, out / f"{name}.safetensors", {"config": json.dumps(keys)})


# ---- models ----

LLAMA = Spec("base", transformers.LlamaConfig, n_tokens=11, vocab=261, types={"*": "F16"}, dim=64, ffn=64, n_heads=2, n_kv_heads=1)
MXFP4 = Spec("gpt_oss_mxfp4", transformers.GptOssConfig, n_tokens=37, vocab=261, types={"*": "F16"}, rope=GPT_OSS, dim=64, ffn=32, n_heads=4,
             n_kv_heads=2, head_dim=16, extra=dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=16))
QWEN2 = Spec("qwen2", transformers.Qwen2Config, n_tokens=11, vocab=261, types={"*": "F16"}, dim=64, ffn=64, n_heads=2, n_kv_heads=1, tied=True)


def make_base(spec, seed):
    rng = np.random.default_rng(seed)
    model = make_model(spec)
    for name, param in model.named_parameters():
        mean, std = weight_stats(name, param.shape, spec, False)
        with torch.no_grad():
            param.copy_(t((mean + std * rng.standard_normal(tuple(param.shape))).astype(np.float32)))
    return model, rng.integers(0, spec.vocab, (1, spec.n_tokens))


@torch.inference_mode()
def logits_of(model, tokens):
    return model(t(tokens)).logits[0].numpy()


def loaded_logits(folder, tokens, quantization):
    """The logits of transformers after it has loaded the directory."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=F32, attn_implementation="eager", quantization_config=quantization)
    return logits_of(model.float().eval(), tokens)


def write_directory(folder, tensors, config, keys, tokens):
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    config = {k: v for k, v in config.to_dict().items() if k not in ("transformers_version", "dtype", "torch_dtype")}
    (folder / "config.json").write_text(json.dumps(config | keys, indent=1, sort_keys=True) + "\n")
    (folder / "tokens.json").write_text(json.dumps(tokens[0].tolist()) + "\n")


def write_expected(folder, logits):
    np.save(folder / "expected.npy", logits)
    print(f"{folder.name:14} {(folder / 'model.safetensors').stat().st_size / 1024:5.0f} KiB, logits std {logits.std():.2f}")


def write_model(folder, base, tokens, pack, keys, embeddings=False, loader=None, loader_rounds=False):
    """pack(module, weights) -> the result of a packer, or None: BF16. Only MLX packs the embedding and the output.
    loader: how transformers reads the directory, if it can. A loader that rounds intermediate results only confirms the
    logits, and does not make them."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, state = {}, base.state_dict()
    tied = base.config.tie_word_embeddings
    for name, w in list(state.items()):
        module = name.removesuffix(".weight")
        if tied and module == "lm_head":
            continue
        packable = w.dim() == 2 and (embeddings or module not in ("model.embed_tokens", "lm_head"))
        packed = pack(module, w.float().numpy()) if packable else None
        if packed is None:
            tensors[name] = w.to(BF16) if w.dim() == 2 else w.float()
            state[name] = tensors[name].float()
        else:
            tensors |= {module + k: v.contiguous() for k, v in packed[0].items()}
            state[name] = t(packed[2].astype(np.float32))
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = transformers.AutoModelForCausalLM.from_config(base.config, dtype=F32).eval()
    model.load_state_dict(state)
    logits = logits_of(model, tokens)
    write_directory(folder, tensors, base.config, keys, tokens)
    if loader:
        loaded = loaded_logits(folder, tokens, loader)
        print(f"{folder.name}: loaded and dequantized differ by {np.abs(loaded - logits).max():.1e}")
        assert np.abs(loaded - logits).max() < 1e-4 or loader_rounds and np.sqrt(np.mean((loaded - logits) ** 2)) < 0.01 * logits.std()
        logits = logits if loader_rounds else loaded
    write_expected(folder, logits)


def write_base_gguf(path, spec, base):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, spec.n_layers)
    heads = {"q_proj": base.config.num_attention_heads, "k_proj": base.config.num_key_value_heads}
    tensors = []
    for name, w in base.named_parameters():
        w, n_heads = w.detach().numpy(), heads.get(name.split(".")[-2])
        fmt = gguf.GGMLQuantizationType["F16" if w.ndim == 2 else "F32"]
        tensors.append((names.get_name(name, (".weight", ".bias")), gguf.quants.quantize(lace(w, n_heads).reshape(w.shape) if n_heads else w, fmt), fmt))
    write_gguf(path, spec, base.config, tensors)


def mixed_mlx(module, w):
    """One layer of each kind: everything that per-layer overrides can state, and a module that is not quantized."""
    kinds = {"model.embed_tokens": dict(bits=8, group=32), "model.layers.0.mlp.down_proj": dict(bits=6, group=64),
             "model.layers.0.self_attn.o_proj": None, "model.layers.1.mlp.down_proj": dict(mode="mxfp8", bits=8, group=32),
             "model.layers.1.mlp.up_proj": dict(mode="mxfp4", bits=4, group=32), "model.layers.1.mlp.gate_proj": dict(mode="nvfp4", bits=4, group=16)}
    kind = kinds.get(module, dict(bits=3, group=64))
    return None if kind is None else mlx(w, **kind)


def mixed_mlx_keys(base):
    keys = {"group_size": 64, "bits": 3}
    for name, w in base.state_dict().items():
        module = name.removesuffix(".weight")
        if w.dim() == 2 and module != "lm_head":
            packed = mixed_mlx(module, w.float().numpy())
            own = False if packed is None else packed[1]["quantization"]
            if own != keys and own != {"group_size": 64, "bits": 3}:
                keys[module] = own
    return {"quantization": keys}


def two_schemes(module, w):
    args = dict(type="int", strategy="group", group_size=32)
    if module.endswith("down_proj"):
        return compressed(w, "pack-quantized", num_bits=8, **args)
    return compressed(w, "pack-quantized", num_bits=4, symmetric=False, **args)


def two_scheme_keys():
    sample = np.ones((32, 32), np.float32) * np.linspace(-1, 1, 32, dtype=np.float32)
    keys, other = two_schemes("x", sample)[1], two_schemes("down_proj", sample)[1]
    group = other["quantization_config"]["config_groups"]["group_0"]
    keys["quantization_config"]["config_groups"]["group_1"] = group | {"targets": ["re:.*\\.down_proj$"]}
    return keys


def write_gpt_oss(folder, spec, seed):
    """The experts' matrices as in gpt-oss's release: blocks and scales [experts, out, in / 32], gate and up
    alternating."""
    folder.mkdir(parents=True, exist_ok=True)
    base, tokens = make_base(spec, seed)
    rng, tensors = np.random.default_rng(seed), {}
    for name, w in base.state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = w.to(BF16) if w.dim() > 1 else w.float()
            continue
        n_experts, n_in, n_out = w.shape
        tensors[name + "_blocks"] = t(rng.integers(0, 256, (n_experts, n_out, n_in // 32, 16), dtype=np.uint8))
        tensors[name + "_scales"] = t(rng.integers(121, 124, (n_experts, n_out, n_in // 32), dtype=np.uint8))
    keys = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                        "model.embed_tokens", "lm_head"]}}
    write_directory(folder, tensors, base.config, keys, tokens)
    write_expected(folder, loaded_logits(folder, tokens, transformers.Mxfp4Config(dequantize=True)))


def write_models(out):
    base, tokens = make_base(LLAMA, 1)
    qwen, qwen_tokens = make_base(QWEN2, 2)
    write_base_gguf(out / "base_f16.gguf", LLAMA, base)
    sample = np.ones((128, 128), np.float32) * np.linspace(-1, 1, 128, dtype=np.float32)
    keys = lambda packed: packed[1]
    write_model(out / "base_bf16", base, tokens, lambda m, w: None, {})
    write_model(out / "mlx_4bit", base, tokens, lambda m, w: mlx(w), keys(mlx(sample)), embeddings=True)
    write_model(out / "mlx_mixed", qwen, qwen_tokens, mixed_mlx, mixed_mlx_keys(qwen), embeddings=True)
    order = np.random.default_rng(3).permutation(64)
    by_order = lambda m, w: gptq(w, 4, 32, order=order if m.endswith("1.self_attn.q_proj") else None)
    write_model(out / "gptq", base, tokens, by_order, keys(gptq(sample, 4, 32, order=np.arange(128))))
    write_model(out / "awq", qwen, qwen_tokens, lambda m, w: awq(w, 64), keys(awq(sample, 64)))
    write_model(out / "fp8", base, tokens, lambda m, w: fp8(w, (32, 32)), keys(fp8(sample, (32, 32))),
                loader=transformers.FineGrainedFP8Config(dequantize=True))
    write_model(out / "ct_mixed", base, tokens, two_schemes, two_scheme_keys())  # transformers applies one scheme to all matrices
    # Scales are F32, because the library rounds weights to the type of their scales.
    for name, pack in (("ct_int4", lambda w: compressed(w, "pack-quantized", F32, num_bits=4, type="int", strategy="group", group_size=32, symmetric=False)),
                       ("ct_fp8", lambda w: compressed(w, "float-quantized", F32, num_bits=8, type="float", strategy="channel")),
                       ("ct_nvfp4", lambda w: compressed_mx(w, "nvfp4-pack-quantized", 4, 16))):
        write_model(out / name, qwen, qwen_tokens, lambda m, w: pack(w), keys(pack(sample)), loader=transformers.CompressedTensorsConfig(dequantize=True),
                    loader_rounds=name == "ct_nvfp4")
    write_model(out / "modelopt_fp8", base, tokens, lambda m, w: modelopt(w, "FP8"), {})
    (out / "modelopt_fp8" / "hf_quant_config.json").write_text(json.dumps(keys(modelopt(sample, "FP8")), indent=1) + "\n")
    in_config = {"quant_method": "modelopt"} | keys(modelopt(sample, "NVFP4"))["quantization"]
    write_model(out / "modelopt_nvfp4", base, tokens, lambda m, w: modelopt(w, "NVFP4"), {"quantization_config": in_config})
    write_gpt_oss(out / "gpt_oss_mxfp4", MXFP4, 4)
    hf_tokenizer(LLAMA.vocab).save_pretrained(out / "mlx_4bit")


def compare_with_gptqmodel(out):
    """GPTQ and AWQ as transformers loads them. gptqmodel's kernels round on the way, so this confirms expected.npy and does not make it."""
    for name in ("gptq", "awq"):
        tokens, expected = json.loads((out / name / "tokens.json").read_text()), np.load(out / name / "expected.npy")
        model = transformers.AutoModelForCausalLM.from_pretrained(out / name, dtype=F32).eval()
        error = np.sqrt(np.mean((logits_of(model, np.array([tokens])) - expected) ** 2)) / expected.std()
        print(f"{name}: logits differ by {error:.2%} of their deviation")
        assert error < 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("tests/data/quantized"))
    parser.add_argument("--gptqmodel", action="store_true", help="only compare the models of GPTQ and AWQ with gptqmodel, which must be installed")
    args = parser.parse_args()
    if args.gptqmodel:
        return compare_with_gptqmodel(args.out / "models")
    (args.out / "models").mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    write_matrices(args.out, np.random.default_rng(20261121))
    write_models(args.out / "models")
    for file in args.out.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


if __name__ == "__main__":
    main()
