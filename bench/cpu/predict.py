#!/usr/bin/env python3
"""Predicts the decoding speed of cores that this machine does not have: llvm-mca on the inner loops of the one-row
products.

    bench/cpu/predict.py build                              # all cores whose kernels this build has
    bench/cpu/predict.py build --core znver4=avx512bf16     # CORE=INSTRUCTION SET, several times
    bench/cpu/predict.py build-arm --core neoverse-v1=neon_dot

An iteration of such a loop multiplies 32 elements of k of several rows of a panel. For each kind of panel, the table
has the bits of a weight. For each core it has the instructions per byte, the cycles for a block of 1,024 weights, and
the bytes per cycle. All loads are assumed to hit the first-level cache. A core reads from memory at this rate or at the
memory's rate, whichever is lower. Needs LLVM 16 or newer, for znver4.

A second table has the same of panels that hold the file's blocks (--weights small). An iteration there reads and then
multiplies a block of each of 8 or 16 rows.
"""
import argparse
import pathlib
import re
import subprocess
import sys

CORES = {  # the instruction set that ingot takes there: Skylake's servers have AVX-512 without VNNI
    "znver4": "avx512bf16", "znver3": "avx2", "icelake-server": "avx512", "skylake-avx512": "avx2", "alderlake": "avx_vnni",
    "neoverse-v1": "neon_dot",
}
CPU = pathlib.Path(__file__).resolve().parents[2] / "src/backend/cpu"
BLOCK = 1024  # weights
FILE_BLOCK = 256
PRODUCTS = re.compile(r"\b(?:(vpdpbusd|vpmaddubsw)\b.*%([yz])mm|(sdot)\b)")  # what multiplies codes


def kinds():
    """(formats, bits of a weight in memory) of each line of kQuantKinds."""
    table = (CPU / "kernels.h").read_text().split("kQuantKinds[] = {")[1].split("};")[0]
    for bits, _, group, has_min, scales, names in re.findall(
            r"\{(\d+), (\d+), (\d+), (\w+), Scales::k(\w+)\},\s*// (.*)", table):
        fields = 2 if has_min == "true" else 1
        scale_bits = {"F16": 16 * fields, "SuperNibbles": 8}.get(scales, 8 * fields)
        head = 16 * fields / 256 if scales in ("Super", "SuperNibbles") else 0
        yield names.strip(), int(bits) + scale_bits / int(group) + head


def file_blocks():
    """(format, bytes of a block) of each format whose panels may hold the file's blocks."""
    text = (CPU / "kernels/file_block.h").read_text()
    return re.findall(r"^struct (\w+) \{\n  static constexpr int bytes = (\d+)", text, re.M)


def functions_of(build, isa, source, objdump):
    """(name, [(address, instruction)]) of each function that an instruction set has of a source file."""
    objects = sorted(build.glob(f"CMakeFiles/ingot_cpu_{isa}.dir/**/{source}.o*"))
    if not objects:
        return []
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", str(objects[0])], check=True, capture_output=True,
                          text=True).stdout
    return [(name, [(int(address, 16), code) for address, code in re.findall(r"^ +([0-9a-f]+):\s+(.*)", body, re.M)])
            for name, body in re.findall(r"^[0-9a-f]+ <([^\n]*)>:\n((?: .*\n?)+)", text, re.M)]


def one_row_loops(functions):
    """The instructions of the innermost loop of quant_tile<kind, 1>, by kind."""
    loops, same = {}, {}
    for name, lines in functions:
        match = re.search(r"quant_tile<(\d+), 1>", name)
        if match:
            loops[int(match[1])] = innermost(lines)
            for _, code in lines:
                jump = re.match(r"(?:jmp|b)\s.*quant_tile<(\d+), 1>", code)
                if jump:  # the compiler merged the functions of two kinds
                    same[int(match[1])] = int(jump[1])
    return {kind: loops[same.get(kind, kind)] for kind in loops}


def file_block_loops(functions, rows):
    """What an iteration runs for a block of each of `rows` rows and one token, by format."""
    def length(loop):
        return loop[1] - loop[0]

    loops = {}
    for name, lines in functions:
        match = re.search(r"dot_rows<(?:.*::(\w+), )?1>", name)
        if match:
            inner = min((loop for loop in loops_of(lines) if runs_row(lines[slice(*loop)])), key=length)
            around = min((loop for loop in loops_of(lines) if loop[0] < inner[0] and loop[1] > inner[1]), key=length)
            loops[match[1] or "TQ1_0"] = in_order(functions, lines[slice(*around)], rows)
    return loops


def runs_row(lines):
    return any(re.search(r"dot_row<|^prefetch|^prfm", code) for _, code in lines)


def in_order(functions, lines, rows):
    """The instructions in the order in which they run, without jumps. Loops run `rows` times."""
    for start, end in sorted(loops_of(lines), reverse=True):
        lines = lines[:start] + lines[start:end] * rows + lines[end:]
    result = []
    for _, code in lines:
        call = re.match(r"(?:call\w*|bl)\s+0x([0-9a-f]+)", code)
        if call:
            body = next(body for _, body in functions if body[0][0] == int(call[1], 16))
            result += in_order(functions, body, rows)
        elif not re.match(r"j\w+|b\.\w+|cbn?z|b\s|ret|nop", code):
            result.append(plain(code))
    return result


def products(code):
    """The number of weights that an instruction multiplies."""
    match = PRODUCTS.search(code)
    return 0 if match is None else 16 if match[3] else 64 if match[2] == "z" else 32


def plain(code):
    """An instruction without its comment."""
    return re.split(r"\s# |//", code)[0].strip()


def loops_of(lines):
    """(first instruction, jump back) of each loop."""
    at = {address: i for i, (address, _) in enumerate(lines)}
    for i, (_, code) in enumerate(lines):
        target = re.match(r"(?:j\w+|b\.\w+)\s+0x([0-9a-f]+)", code)
        start = at.get(int(target[1], 16), len(lines)) if target else len(lines)
        if start < i:
            yield start, i


def innermost(lines):
    """The shortest loop that multiplies codes, without its jump."""
    loops = [lines[start:end] for start, end in loops_of(lines)]
    loops = [[plain(code) for _, code in loop] for loop in loops if any(products(code) > 0 for _, code in loop)]
    return min(loops, key=len, default=None)


def cycles(loop, core, mca):
    arm = core.startswith(("neoverse", "cortex", "apple"))
    flags = ["-mtriple=aarch64", "-mattr=+i8mm,+bf16"] if arm else ["-mtriple=x86_64"]
    # LLVM's models of Zen have too many cycles for some instructions that load; the cores take as long as for these.
    if core == "znver4":
        loop = [re.sub(r"^v(pbroadcastd|broadcastss)(\s+[^,]*\()", r"vmovups\2", code) for code in loop]
    if core.startswith("znver"):
        loop = [re.sub(r"^vpinsr\w\s+\$\w+, (.*\()", r"vpunpckldq \1", code) for code in loop]
        loop = [re.sub(r"^vpmovzx\w+\s+([^,]*\()", r"vpshufd $0, \1", code) for code in loop]
    n = min(200, 40000 // len(loop))
    text = subprocess.run([mca, f"-mcpu={core}", f"-iterations={n}", *flags, "-"], input="\n".join(loop) + "\n", check=True,
                          capture_output=True, text=True).stdout
    return int(re.search(r"Total Cycles:\s+(\d+)", text)[1]) / n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--core", action="append", metavar="CORE=ISA")
    parser.add_argument("--llvm", default="-19", help="what follows llvm-mca and llvm-objdump in their names")
    args = parser.parse_args()
    cores = dict(core.split("=") for core in args.core) if args.core else CORES
    objdump, mca = "llvm-objdump" + args.llvm, "llvm-mca" + args.llvm
    loops, block_loops = {}, {}
    for isa in sorted(set(cores.values())):
        loops[isa] = one_row_loops(functions_of(args.build, isa, "quant_tile.cc", objdump))
        rows = 16 if "512" in isa else 8  # kRowsAtOnce
        for source in ("file_blocks.cc", "ternary_rows.cc"):
            found = file_block_loops(functions_of(args.build, isa, source, objdump), rows)
            block_loops.setdefault(isa, {}).update({name: (loop, rows) for name, loop in found.items()})
    cores = {core: isa for core, isa in cores.items() if loops[isa]}
    if not cores:
        sys.exit(f"predict.py: no kernels of these cores in {args.build}")

    def cell(loop, core, weights, bits):
        blocks, block_bytes = weights / BLOCK, bits * BLOCK / 8
        per_block = cycles(loop, core, mca) / blocks
        return f" {len(loop) / blocks / block_bytes:.2f}, {per_block:.0f}, {block_bytes / per_block:.1f} |"

    heads = "".join(f" {core} ({isa}) |" for core, isa in cores.items()) + "\n|---|---|" + "---|" * len(cores)
    print("| formats | bits |" + heads)
    for kind, (names, bits) in enumerate(kinds()):
        print(f"| {names} | {bits:.2f} |" + "".join(
            cell(loops[isa][kind], core, sum(products(code) for code in loops[isa][kind]), bits)
            for core, isa in cores.items()))
    print("\n| small | bits |" + heads)
    for name, block_bytes in file_blocks():
        bits = int(block_bytes) * 8 / FILE_BLOCK
        row = f"| {name} | {bits:.2f} |"
        for core, isa in cores.items():
            loop, rows = block_loops[isa][name]
            row += cell(loop, core, rows * FILE_BLOCK, bits)
        print(row)


if __name__ == "__main__":
    main()
