"""The layouts of matrices in quantized Hugging Face and MLX checkpoints, one function each.

Each function takes float32 weights [out, in] and gives (tensors by the suffix of their names, keys for config.json, the
float32 weights that the tensors represent). Codes are rounded to nearest, without a search, because the goldens test
only the layout of the bits. mlx itself makes and reads MLX's layouts; the libraries of compressed-tensors and ModelOpt
make theirs; torch makes FP8. GPTQ and AWQ follow the documentation and code of AutoGPTQ and AutoAWQ.
"""
import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

mx.set_default_device(mx.cpu)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output in each nibble of a word


def t(array, dtype=None):
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(dtype) if dtype else tensor


def to_torch(array):
    """Converts mlx to torch, also bf16."""
    if array.dtype == mx.bfloat16:
        return t(np.array(array.view(mx.uint16)).view(np.int16)).view(torch.bfloat16)
    if array.dtype == mx.uint32:
        return t(np.array(array).view(np.int32)).view(torch.uint32)
    return t(np.array(array))


def mlx(w, mode="affine", bits=4, group=64, dtype="bfloat16"):
    w = mx.array(w).astype(getattr(mx, dtype))
    parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
    tensors = dict(zip((".weight", ".scales", ".biases"), map(to_torch, parts)))
    # In float32, because mlx's own product would round to the type of the scales.
    parts = [parts[0]] + [p.astype(mx.float32) if mode == "affine" else p for p in parts[1:]]
    weights = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    keys = {"group_size": group, "bits": bits} | ({} if mode == "affine" else {"mode": mode})
    return tensors, {"quantization": keys, "quantization_config": keys}, np.array(weights)


def round_to_grid(w, bits, group, symmetric):
    """-> codes [out, in], scales f16 as f32 [out, groups], zero points [out, groups]."""
    n_out, n_in = w.shape
    groups = w.reshape(n_out, -1, n_in if group < 0 else group)
    last = (1 << bits) - 1
    if symmetric:
        scales = np.abs(groups).max(-1) * 2 / last
        zeros = np.full(scales.shape, 1 << (bits - 1))
    else:
        low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
        scales = (high - low) / last
        zeros = np.clip(np.round(-low / scales), 0, last).astype(int)
    scales = scales.astype(np.float16).astype(np.float32)
    codes = np.clip(np.round(groups / scales[..., None]) + zeros[..., None], 0, last)
    return codes.reshape(n_out, n_in).astype(np.uint32), scales, zeros.astype(np.uint32)


def pack(codes, bits):
    """[rows, n] -> int32 [rows, n * bits / 32]: a stream of bits, the first code in the lowest bits."""
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint32) & 1).astype(np.uint8).reshape(codes.shape[0], -1)
    return np.packbits(stream, axis=1, bitorder="little").view("<i4")


def weights_of(codes, scales, zeros, order):
    """order: the group of each column."""
    return (codes.astype(np.float32) - zeros[:, order].astype(np.float32)) * scales[:, order]


def gptq(w, bits=4, group=128, sym=True, v2=False, order=None, said=None):
    """order: the order in which GPTQ processed the columns; in this order, every `group` columns share a scale. said:
    the format that config.json states."""
    n_in = w.shape[1]
    size = n_in if group < 0 else group
    columns = np.arange(n_in) if order is None else order
    codes, scales, zeros = round_to_grid(w[:, columns], bits, group, sym)
    g_idx = np.empty(n_in, np.int32)
    g_idx[columns] = np.arange(n_in) // size
    back = np.argsort(columns)
    weights = weights_of(codes[:, back], scales, zeros, g_idx)
    if order is not None:
        weights = weights.astype(np.float16).astype(np.float32)  # as in GPTQ's own kernels
    stored = zeros if v2 else (zeros - 1) & ((1 << bits) - 1)
    tensors = {".qweight": t(pack(codes[:, back], bits).T), ".qzeros": t(pack(stored.T, bits)),
               ".scales": t(scales.T, torch.float16), ".g_idx": t(g_idx)}
    keys = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order is not None, "sym": sym,
            "checkpoint_format": said or ("gptq_v2" if v2 else "gptq")}
    return tensors, {"quantization_config": keys}, weights


def awq(w, group=128):
    codes, scales, zeros = round_to_grid(w, 4, group, False)
    words = lambda rows: pack(rows.reshape(rows.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(rows.shape), 4)
    size = w.shape[1] if group < 0 else group
    tensors = {".qweight": t(words(codes.T)), ".qzeros": t(words(zeros.T)), ".scales": t(scales.T, torch.float16)}
    keys = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return tensors, {"quantization_config": keys}, weights_of(codes, scales, zeros, np.arange(w.shape[1]) // size)


def awq_gemv(w, group=128):
    """The layout of AutoAWQ's gemv kernels: in row order, with zero points and scales in rows of whole words, padded to
    several words for small groups."""
    codes, scales, zeros = round_to_grid(w, 4, group, False)
    step = {32: 4, 64: 2}.get(group, 1)
    width = -(-(-(-scales.shape[1] // 8)) // step) * step * 8
    wide = lambda a: np.pad(a, ((0, 0), (0, width - a.shape[1])))
    tensors = {".qweight": t(pack(codes, 4)), ".qzeros": t(pack(wide(zeros), 4)), ".scales": t(wide(scales), torch.float16)}
    keys = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemv"}
    return tensors, {"quantization_config": keys}, weights_of(codes, scales, zeros, np.arange(w.shape[1]) // group)


def whole_codes(packed, n_out, n_in, bits):
    """The same tensors in the packing of the library's older versions: each word has as many whole codes as fit; its
    other bits are 0."""
    def words(codes):  # [n, m] -> [n, words]
        a_word = 32 // bits
        codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % a_word))).astype(np.uint32).reshape(codes.shape[0], -1, a_word)
        return t((codes << (bits * np.arange(a_word, dtype=np.uint32))).sum(-1, dtype=np.uint32).view(np.int32))
    middle = 1 << (bits - 1)
    codes = unpack_from_int32(packed["weight_packed"], bits, (n_out, n_in)).numpy().astype(int) + middle
    out = packed | {"weight_packed": words(codes)}
    if "weight_zero_point" in packed:
        groups = packed["weight_scale"].shape[1]
        zeros = unpack_from_int32(packed["weight_zero_point"], bits, (n_out, groups), packed_dim=0).numpy().astype(int) + middle
        out["weight_zero_point"] = words(zeros.T).T
    return out


def compressed(w, form, dtype=torch.bfloat16, targets=("Linear",), old=False, **args):
    """The layout that compressed-tensors' own library writes and reads. old: integers packed as in its older
    versions."""
    weights = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=list(targets), weights=weights)
    n_out, n_in = w.shape
    bits, symmetric = weights.num_bits, weights.symmetric
    if weights.type == "float":
        largest, zeros = 448.0, None
    else:
        largest = (1 << (bits - 1)) - 0.5
    block = weights.block_structure or (1, weights.group_size or n_in)
    if weights.strategy == "tensor":
        block = (n_out, n_in)
    rows, cols = -(-n_out // block[0]), -(-n_in // block[1])
    padded = np.zeros((rows * block[0], cols * block[1]), np.float32)
    padded[:n_out, :n_in] = w
    tiles = padded.reshape(rows, block[0], cols, block[1])
    scale = np.abs(tiles).max((1, 3)) / largest
    zero = None
    if not symmetric:
        low, high = tiles.min((1, 3)), tiles.max((1, 3))
        scale = (high - low) / ((1 << bits) - 1)
        zero = t(np.clip(np.round(-low / scale) - (1 << (bits - 1)), -(1 << (bits - 1)), (1 << (bits - 1)) - 1).astype(np.int8))
    if weights.strategy == "tensor":
        scale = scale.reshape(1)
    state = {"weight": t(w), "weight_scale": t(scale.astype(np.float32), dtype)}
    if zero is not None:
        state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(form)
    state["weight_scale"] = state["weight_scale"].float()
    packed = compressor.compress(state, scheme)
    again = compressor.decompress(dict(packed), scheme)["weight"].float().numpy()
    packed["weight_scale"] = packed["weight_scale"].to(dtype)
    if old:
        packed = whole_codes(packed, n_out, n_in, bits)
    group = {"targets": list(targets), "weights": weights.model_dump(mode="json"), "input_activations": None}
    keys = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quantization_status": "compressed"}
    return {"." + k: v for k, v in packed.items()}, {"quantization_config": keys}, again


def read_nvfp4(packed, rounded):
    """The values of NVFP4 by the format's description; `rounded` has them rounded to bf16."""
    codes = packed["weight_packed"].numpy()
    codes = np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    scales = packed["weight_scale"].double().numpy() / packed["weight_global_scale"].double().numpy()
    weights = numbers * np.repeat(scales, 16, 1)
    assert np.all(np.abs(weights - rounded) <= 2**-8 * np.abs(weights))
    return weights.astype(np.float32)


def compressed_mx(w, form, bits, size):
    """As compressed(), for the formats with blocks of small floats."""
    weights = QuantizationArgs(num_bits=bits, type="float", strategy="tensor_group" if size == 16 else "group", group_size=size)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    largest = 6.0 if bits == 4 else 448.0
    scale = np.abs(w.reshape(w.shape[0], -1, size)).max(-1) / largest
    state = {"weight": t(w)}
    if size == 16:
        overall = np.float32(448 * 6 / np.abs(w).max())
        state |= {"weight_global_scale": t(np.array([overall])), "weight_scale": t((scale * overall).astype(np.float32)).to(torch.float8_e4m3fn).float()}
    else:
        state["weight_scale"] = t(np.exp2(np.ceil(np.log2(scale))).astype(np.float32))
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(dict(state), scheme)
    again = compressor.decompress(dict(packed), scheme)["weight"].float().numpy()
    if size == 16:  # the library rounds these to bf16
        again = read_nvfp4(packed, again)
    group = {"targets": ["Linear"], "weights": weights.model_dump(mode="json"), "input_activations": None, "format": form}
    keys = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    return {"." + k: v for k, v in packed.items()}, {"quantization_config": keys}, again


def fp8(w, block=None, name=".weight_scale_inv", dtype=torch.float32, per_row=False, method="fp8"):
    """block: rows and columns that share a scale; otherwise one scale for all, or one for each row."""
    n_out, n_in = w.shape
    size = block or ((1, n_in) if per_row else (n_out, n_in))
    rows, cols = -(-n_out // size[0]), -(-n_in // size[1])
    padded = np.zeros((rows * size[0], cols * size[1]), np.float32)
    padded[:n_out, :n_in] = w
    scale = t(np.abs(padded.reshape(rows, size[0], cols, size[1])).max((1, 3)) / 448)
    if dtype == torch.float8_e8m0fnu:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    scale = scale.to(dtype)
    spread = scale.float().repeat_interleave(size[0], 0).repeat_interleave(size[1], 1)[:n_out, :n_in]
    codes = (t(w) / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    if not block and not per_row:
        scale = scale.reshape(())
    keys = {"quant_method": method, "activation_scheme": "dynamic"} | ({"weight_block_size": list(block)} if block else {})
    return {".weight": codes, name: scale}, {"quantization_config": keys}, (codes.float() * spread).numpy()


def modelopt(w, algorithm):
    """The layout that NVIDIA's Model Optimizer writes and reads, under its export names. algorithm: its quant_algo."""
    from modelopt.torch.quantization import qtensor  # the import is slow
    x, scalar = t(w), t(np.array(1.0, np.float32))
    kinds = {"FP8": (qtensor.FP8QTensor, {}, None), "FP8_PER_CHANNEL_PER_TOKEN": (qtensor.FP8QTensor, {"axis": 0}, None),
             "FP8_PB_WO": (qtensor.FP8QTensor, {}, {-1: 128, -2: 128}), "MXFP8": (qtensor.MXFP8QTensor, {}, None),
             "MXFP4": (qtensor.MXFP4QTensor, {"block_size": 32}, {-1: 32}), "NVFP4": (qtensor.NVFP4QTensor, {"block_size": 16}, {-1: 16})}
    kind, args, block_sizes = kinds[algorithm]
    if kind is qtensor.FP8QTensor:
        args["block_sizes"] = block_sizes
    packed, *scales = kind.quantize(x.clone(), **args)
    more = {"double_scale": scales[1]} if algorithm == "NVFP4" else {}
    weights = packed.dequantize(dtype=torch.float32, scale=scales[0], block_sizes=block_sizes, **more).numpy()
    scale = scales[0].reshape(w.shape[0], -1) if algorithm == "MXFP4" else scales[0]
    scale = scale.reshape(scalar.shape) if algorithm == "FP8" else scale.reshape(-1) if algorithm == "FP8_PER_CHANNEL_PER_TOKEN" else scale
    tensors = {".weight": packed._quantized_data, ".weight_scale": scale}
    if algorithm == "NVFP4":
        tensors[".weight_scale_2"] = scales[1].reshape(scalar.shape)
    if algorithm in ("FP8", "NVFP4"):
        tensors[".input_scale"] = scalar
    group = {"NVFP4": {"group_size": 16}, "MXFP4": {"group_size": 32}}.get(algorithm, {})
    keys = {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]} | group
    return tensors, {"producer": {"name": "modelopt"}, "quantization": keys}, weights
