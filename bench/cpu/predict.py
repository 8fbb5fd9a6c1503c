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
KERNELS_H = pathlib.Path(__file__).resolve().parents[2] / "src/backend/cpu/kernels.h"
BLOCK = 1024  # weights
PRODUCTS = re.compile(r"\b(?:(vpdpbusd|vpmaddubsw)\b.*%([yz])mm|(sdot)\b)")  # what multiplies codes


def kinds():
    """(formats, bits of a weight in memory) of each line of kQuantKinds."""
    table = KERNELS_H.read_text().split("kQuantKinds[] = {")[1].split("};")[0]
    for bits, _, group, has_min, scales, names in re.findall(
            r"\{(\d+), (\d+), (\d+), (\w+), Scales::k(\w+)\},\s*// (.*)", table):
        fields = 2 if has_min == "true" else 1
        scale_bits = {"F16": 16 * fields, "SuperNibbles": 8}.get(scales, 8 * fields)
        head = 16 * fields / 256 if scales in ("Super", "SuperNibbles") else 0
        yield names.strip(), int(bits) + scale_bits / int(group) + head


def one_row_loops(kernel_object, objdump):
    """The instructions of the innermost loop of quant_tile<kind, 1>, by kind."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", str(kernel_object)], check=True, capture_output=True,
                          text=True).stdout
    loops, same = {}, {}
    for name, body in re.findall(r"^[0-9a-f]+ <([^\n]*)>:\n((?: +[0-9a-f]+:.*\n?)+)", text, re.M):
        match = re.search(r"quant_tile<(\d+), 1>", name)
        if match:
            loops[int(match[1])] = innermost([line.split(":", 1) for line in body.splitlines()])
            jump = re.search(r"\s(?:jmp|b)\s.*quant_tile<(\d+), 1>", body)
            if jump:  # the compiler merged the functions of two kinds
                same[int(match[1])] = int(jump[1])
    return {kind: loops[same.get(kind, kind)] for kind in loops}


def products(code):
    """The number of weights that an instruction multiplies."""
    match = PRODUCTS.search(code)
    return 0 if match is None else 16 if match[3] else 64 if match[2] == "z" else 32


def innermost(lines):
    """The shortest loop that multiplies codes, without its jump."""
    addresses = [int(address, 16) for address, _ in lines]
    best = None
    for i, (_, code) in enumerate(lines):
        target = re.match(r"\s*(?:j\w+|b\.\w+)\s+0x([0-9a-f]+)", code)
        start = addresses.index(int(target[1], 16)) if target and int(target[1], 16) in addresses else len(lines)
        if start < i and any(products(c) > 0 for _, c in lines[start:i]):
            if best is None or i - start < len(best):
                best = [re.split(r"\s# |//", c)[0].strip() for _, c in lines[start:i]]
    return best


def cycles(loop, core, mca):
    arm = core.startswith(("neoverse", "cortex", "apple"))
    flags = ["-mtriple=aarch64", "-mattr=+i8mm,+bf16"] if arm else ["-mtriple=x86_64"]
    if core == "znver4":  # in LLVM's model, broadcasts from memory need an arithmetic unit; the core only loads
        loop = [re.sub(r"^v(pbroadcastd|broadcastss)(\s+[^,]*\()", r"vmovups\2", code) for code in loop]
    n = 200
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
    loops = {}
    for isa in sorted(set(cores.values())):
        found = sorted(args.build.glob(f"CMakeFiles/ingot_cpu_{isa}.dir/**/quant_tile.cc.o*"))
        if found:
            loops[isa] = one_row_loops(found[0], "llvm-objdump" + args.llvm)
    cores = {core: isa for core, isa in cores.items() if isa in loops}
    if not cores:
        sys.exit(f"predict.py: no kernels of these cores in {args.build}")
    print("| formats | bits |" + "".join(f" {core} ({isa}) |" for core, isa in cores.items()))
    print("|---|---|" + "---|" * len(cores))
    for kind, (names, bits) in enumerate(kinds()):
        row = f"| {names} | {bits:.2f} |"
        for core, isa in cores.items():
            loop = loops[isa][kind]
            blocks = sum(products(code) for code in loop) / BLOCK  # in an iteration
            block_bytes = bits * BLOCK / 8
            per_block = cycles(loop, core, "llvm-mca" + args.llvm) / blocks
            row += f" {len(loop) / blocks / block_bytes:.2f}, {per_block:.0f}, {block_bytes / per_block:.1f} |"
        print(row)


if __name__ == "__main__":
    main()
