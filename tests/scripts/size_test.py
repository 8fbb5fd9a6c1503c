"""scripts/size.py counts the lines of files and functions as a reader would, and fails if one is too long."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import size

CPP = r'''// Not a function: f() {
#include <vector>
#define MACRO(x) { \
  x }
namespace ingot {
namespace {

constexpr int kTable[] = {1, 2, 3};
constexpr Row kRows[] = {
    {.name = "a{", .make = make('{')},
    {.name = R"(} } })", .n = 1'000'000},
};

int one() { return 1; }

template <class T>
bool two(const T& x,
         int y = 3) {
  if (x) {
    for (;;) { }
  }
  auto lambda = [&](int i) {
    return i;
  };
  return lambda(y);
}

}  // namespace

class Thing : public Base {
 public:
  Thing(int a, int b) : a_{a}, b_(b) {
    work();
  }
  explicit operator bool() const { return a_; }
  int get() const override { return a_; }
  auto pair() -> std::pair<int, int> {
    return {a_,
            b_};
  }

 private:
  int a_ = 0, b_{1};
  std::function<void()> f_ = [] {};
};

Thing::~Thing() {
}

enum class Kind { kA, kB };
struct Plain { int x; };

TEST(Suite, Name) {
  EXPECT_TRUE(two(1));
}

}  // namespace ingot
'''

EXPECTED = [("one", 14, 1), ("two", 16, 11), ("Thing", 32, 3), ("operator bool", 35, 1), ("get", 36, 1), ("pair", 37, 4),
            ("Thing::~Thing", 47, 2), ("TEST(Suite, Name)", 53, 3)]


def run(files):
    """The status and the output of size.py over these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = size.main(root)
        return status, out.getvalue()


def function_of(n_lines):
    return "void long_one() {\n" + "  work();\n" * (n_lines - 2) + "}\n"


class Size(unittest.TestCase):
    def test_functions_of_cpp(self):
        self.assertEqual(list(size.cpp_functions(CPP)), EXPECTED)

    def test_functions_of_python(self):
        text = "class A:\n    def f(self):\n        return (1,\n                2)\n\n\ndef g():\n    pass\n"
        self.assertEqual(sorted(size.python_functions(text)), [("f", 2, 3), ("g", 7, 2)])

    def test_a_long_file_fails(self):
        status, out = run({"src/a.cc": "int x;\n" * 601})
        self.assertEqual(status, 1)
        self.assertIn("src/a.cc: 601 lines", out)
        self.assertEqual(run({"src/a.cc": "int x;\n" * 600})[0], 0)

    def test_a_reason_excuses_a_long_file(self):
        self.assertEqual(run({"src/a.cc": "// Long because it is one table.\n" + "int x;\n" * 700})[0], 0)
        self.assertEqual(run({"src/a.cc": "int x;\n" * 700 + "// Long because it is one table.\n"})[0], 1)

    def test_a_long_function_fails_in_either_language(self):
        status, out = run({"src/a.cc": "int x;\n" + function_of(121)})
        self.assertEqual(status, 1)
        self.assertIn("src/a.cc:2: long_one is 121 lines", out)
        self.assertEqual(run({"src/a.cc": function_of(120)})[0], 0)
        self.assertEqual(run({"tools/a.py": "def f():\n" + "    x = 1\n" * 120})[0], 1)
        self.assertEqual(run({"tools/a.py": "def f():\n" + "    x = 1\n" * 119})[0], 0)

    def test_functions_over_the_aim_are_listed(self):
        status, out = run({"src/a.cc": function_of(80), "src/b.cc": function_of(20).replace("long_one", "short_one")})
        self.assertEqual(status, 0)
        self.assertIn("80 src/a.cc:1 long_one", out)
        self.assertNotIn("short_one", out)

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(run({})[0], 1)


if __name__ == "__main__":
    unittest.main()
