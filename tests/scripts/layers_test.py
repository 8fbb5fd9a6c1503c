"""scripts/layers.py reports the place of a breach of each rule, and accepts allowed code."""
import os
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import layers

ARCH = 'constexpr Arch kArchs[] = {\n  {.gguf_name = "llama", .hf_name = "llama"},\n  {.gguf_name = "gemma2"},\n};\n'

# (file, its text, the line of the breach, a part of the rule)
BREACHES = [
    ("base/a.h", '#pragma once\n#include "io/gguf/gguf.h"\n', 2, "base must not include io/"),
    ("quant/a.h", '#include "backend/tensor.h"\n', 1, "quant must not include backend/"),
    ("quant/a.h", '#include "text/tokenizers/vocab.h"\n', 1, "quant must not include text/"),
    ("text/a.cc", '#include "io/gguf/gguf.h"\n', 1, "text must not include io/"),
    ("text/a.cc", "void f(Tensor x);\n", 1, "text must not know tensors"),
    ("io/a.cc", '#include "backend/tensor.h"\n', 1, "io must not include backend/"),
    ("io/a.cc", 'bool f(auto x) {\n  return x == "gemma2";\n}\n', 2, "io must not know architectures"),
    ("backend/a.cc", '#include "model/config/config.h"\n', 1, "backend must not include model/"),
    ("backend/a.cc", '#include "io/gguf/gguf.h"\n', 1, "backend must not include io/"),
    ("backend/ref/a.cc", '#include "text/tokenizers/vocab.h"\n', 1, "backend must not include text/"),
    ("backend/cpu/a.cc", '#include "backend/cuda/stream.h"\n', 1, "cpu and cuda"),
    ("backend/cuda/a.cu", '#include "backend/cpu/kernels.h"\n', 1, "cpu and cuda"),
    ("model/a.cc", '#include "engine/engine.h"\n', 1, "model must not include engine/"),
    ("model/a.cc", '#include "backend/cpu/cpu_backend.h"\n', 1, "model must not include backend/cpu"),
    ("model/a.cc", "#include <cuda_runtime.h>\n", 1, "CUDA headers"),
    ("backend/fused.cc", "#include <cublasLt.h>\n", 1, "CUDA headers"),
    ("engine/a.h", '#include "quant/format.h"\n', 1, "engine must not include quant/"),
    ("engine/a.h", '#include "backend/tensor.h"\n', 1, "engine must not include backend/tensor"),
    ("engine/a.h", '#include "backend/cpu/cpu_backend.h"\n', 1, "engine must not include backend/cpu/"),
    ("engine/a.h", "int f(DType t);\n", 1, "engine must not know dtypes"),
    ("engine/a.cc", "#include <nlohmann/json.hpp>\n", 1, "JSON or HTTP"),
    ("engine/a.cc", '#include "base/json.h"\n', 1, "JSON or HTTP"),
    ("engine/a.cc", "#include <boost/beast.hpp>\n", 1, "JSON or HTTP"),
    ("text/a.cc", "#include <nlohmann/json.hpp>\n", 1, "include base/json.h"),
    ("server/a.cc", '#include "cli/args.h"\n', 1, "server must not include cli/"),
    ("backend/fused.cc", "#if INGOT_CUDA\n#endif\n", 1, "INGOT_CUDA"),
    ("quant/encode.cc", "int f(Format x) {\n  switch (x) {\n    case Format::Q4_K: return 1;\n  }\n}\n", 3, "switch over Format"),
    ("model/a.cc", "using enum ingot::Format;\n", 1, "switch over Format"),
    ("newdir/a.cc", '#include "base/error.h"\n', 1, "newdir/ has no layer"),
]

ALLOWED = [
    ("base/json.h", "#include <nlohmann/json.hpp>\n"),
    ("base/a.h", '// io/ includes this: #include "io/gguf/gguf.h"\n#include <fmt/format.h>\n'),
    ("io/a.cc", '#include "quant/format.h"\n#include "base/error.h"\n#include "io/value.h"\n// not "llama"\n'),
    ("backend/cpu/a.cc", '#include "backend/backend.h"\n#include "backend/cpu/pool.h"\n#include "quant/q4_k.h"\n'),
    ("backend/cuda/a.cu", "#include <cuda_runtime.h>\n"),
    ("quant/format.h", "switch (f) { case Format::Q4_K: break; }\n"),
    ("model/a.cc", '#include "backend/backend.h"\n#include "io/gguf/gguf.h"\nif (f == Format::F32) return;\n/* switch:\n case Format::F32: */\n'),
    ("engine/a.cc", '#include "model/program/runner.h"\n#include "backend/batch.h"\n#include "text/tokenizers/vocab.h"\n'),
    ("cli/a.cc", '#include "engine/engine.h"\n#include "server/requests/http.h"\nauto s = "#include \\"";  // DType\n'),
]


def found(check, *files):
    with tempfile.TemporaryDirectory() as folder:
        src = pathlib.Path(folder) / "src"
        for name, text in (*files, ("model/config/arch.cc", ARCH)):
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            (src / name).write_text(text)
        return list(check(src))


def breaches(*files):
    return found(layers.breaches, *files)


def circles(*files):
    return [place[:2] for place in found(layers.circles, *files)]


class Layers(unittest.TestCase):
    def test_each_breach_is_found_once_where_it_is(self):
        for name, text, line, rule in BREACHES:
            with self.subTest(rule):
                found = breaches((name, text))
                self.assertIn((name, line), [f[:2] for f in found])
                self.assertTrue(any(rule in f[2] for f in found), found)
                self.assertTrue(all(f[:2] == (name, line) for f in found), found)

    def test_what_is_allowed_is_quiet(self):
        for name, text in ALLOWED:
            with self.subTest(name):
                self.assertEqual(breaches((name, text)), [])

    def test_rooms_have_one_direction(self):
        random.seed(seed := int(os.environ.get("INGOT_TEST_SEED", random.randrange(1 << 30))))
        for _ in range(20):
            rooms = random.sample(["", "/a", "/b", "/c", "/d", "/e"], random.randint(2, 6))  # "": the layer's own folder
            line = lambda i, j: (f"server{rooms[i]}/f{i}{j}.cc", f'// a comment\n#include "server{rooms[j]}/x.h"\n')
            down = [line(i, j) for i in range(len(rooms)) for j in range(i) if j == i - 1 or random.random() < 0.5]
            up = line(*sorted(random.sample(range(len(rooms)), 2)))
            with self.subTest(seed=seed, rooms=rooms, up=up[0]):
                self.assertEqual(circles(*down), [])
                self.assertIn((up[0], 2), circles(*down, up))

    def test_exit_status(self):
        for text, status in (('#include "io/gguf/gguf.h"\n', 1), ('#include "base/log.h"\n', 0)):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "src/base").mkdir(parents=True)
                (root / "src/base/a.h").write_text(text)
                self.assertEqual(layers.main(root), status)


if __name__ == "__main__":
    unittest.main()
