#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc made of the kernels: check_sass.py OBJECTS PTXAS

OBJECTS holds NAME.cu.o and ptxas' report NAME.cu.o.log. Machine code is read from the objects: an
instruction is 16 bytes, its opcode the low 9 bits, the width of an access bits 73 to 75. First
kernels with the wanted instructions, without them and with local memory are assembled and judged:
the numbers are those of this ptxas, and the rules can fail.
"""
import collections
import glob
import os
import re
import struct
import subprocess
import sys
import tempfile

OPCODES = {0x181: "LDG", 0x186: "STG", 0x184: "LDS", 0x188: "STS", 0x1AE: "LDGSTS", 0x03B: "LDSM",
           0x03C: "HMMA", 0x1F0: "HGMMA", 0x1B4: "UTMALDG", 0x183: "LDL", 0x187: "STL"}
WIDTHS = {4: "32", 5: "64", 6: "128"}
CUDA_MACHINE = 190

HEAD = """.version 8.0
.target %s
.address_size 64
.visible .entry probe(.param .u64 a, .param .u32 n) {
.reg .b64 %%a, %%q<4>; .reg .b32 %%r<24>; .reg .f32 %%f<8>; .reg .pred %%p;
.shared .align 128 .b8 sm[4096]; .local .align 16 .b8 local[512];
ld.param.u64 %%a, [a]; ld.param.u32 %%r0, [n]; cvta.to.global.u64 %%a, %%a; mov.u32 %%r1, sm;
mov.u32 %%r2, %%tid.x; cvt.rn.f32.u32 %%f0, %%r2;
"""
PRODUCT = """ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%a];
cp.async.cg.shared.global [%r1], [%a], 16; cp.async.wait_all; bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r1];
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r4, %r5, %r6, %r7},
  {%r8, %r9}, {%f0, %f0, %f0, %f0};
st.global.v4.f32 [%a + 64], {%f1, %f2, %f3, %f4}; st.global.u32 [%a + 128], %r10;
"""
LOCAL = """and.b32 %r12, %r0, 31; mul.wide.u32 %q0, %r12, 4; mov.u64 %q1, local;
add.u64 %q2, %q1, %q0;
st.local.u32 [%q1 + 8], %r0; st.local.u32 [%q2], %r2; ld.local.u32 %r13, [%q2 + 32];
st.global.u32 [%a], %r13;
"""
HOPPER = """mbarrier.init.shared::cta.b64 [%r1], 1;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
  [%r1 + 128], [%a, {%r0, %r2}], [%r1];
mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; setp.ne.u32 %p, %r0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %a, %a, %p, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
st.global.v4.f32 [%a + 64], {%f0, %f1, %f2, %f3};
"""

# kernel<types, elements>, where so many of the first type are 16 bytes
VECTORS = re.compile(r"[\w:]+<(double(, [a-z][\w:]*)*, 2|float(, [a-z][\w:]*)*, 4|"
                     r"bdlm::bfloat16(, [a-z][\w:]*)*, 8)\b")

Kernel = collections.namedtuple("Kernel", "file name arch counts")
Report = collections.namedtuple("Report", "file name arch registers shared stack spills")


def sections(elf):
    """(name, content) of a cubin's sections."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    base = headers[names][4]
    for name, _, _, _, offset, length in headers:
        start = base + name
        yield elf[start:elf.index(b"\0", start)].decode(), elf[offset:offset + length]


def count_instructions(code):
    counts = collections.Counter()
    for at in range(0, len(code) - 15, 16):
        low, high = struct.unpack_from("<QQ", code, at)
        name = OPCODES.get(low & 0x1FF)
        if name:
            counts[name] += 1
            counts["%s.%s" % (name, WIDTHS.get(high >> 9 & 7, "other"))] += 1
    return counts


def kernels_in(path, archs):
    """Kernels of an object or a cubin; archs: of its cubins, in their order."""
    data = open(path, "rb").read()
    starts = [m.start() for m in re.finditer(b"\x7fELF", data)
              if struct.unpack_from("<H", data, m.start() + 18)[0] == CUDA_MACHINE]
    if len(starts) != len(archs):
        sys.exit("%s: %d cubins for %s; are they compressed?" % (path, len(starts), archs))
    for start, arch in zip(starts, archs):
        for name, code in sections(data[start:]):
            if name.startswith(".text."):
                yield Kernel(os.path.basename(path), name[6:], arch, count_instructions(code))


def reports_in(path):
    text = open(path).read()
    entry = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'.*?(\d+) bytes stack frame, "
                       r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers"
                       r"([^\n]*)", re.S)
    for m in entry.finditer(text):
        shared = re.search(r"(\d+) bytes smem", m[7])
        yield Report(os.path.basename(path)[:-len(".log")], m[1], m[2], int(m[6]),
                     int(shared[1]) if shared else 0, int(m[3]), int(m[4]) + int(m[5]))


def missing(kernel, plain):
    """What the kernel has not, or should not have; `plain`: its demangled name."""
    has = kernel.counts
    tensor = None
    if re.match("attention_mma", kernel.file):
        tensor = ["HMMA"]
    if re.match("attention_wgmma", kernel.file):
        tensor = ["HGMMA", "UTMALDG"] if kernel.arch == "sm_90a" else None
    wrong = ["no " + name for name in tensor or [] if not has[name]]
    if tensor == ["HMMA"] and not any(has[n] for n in ("LDG.128", "LDGSTS.128")):
        wrong.append("no 128-bit load from global memory")
    if tensor and not any(has[n] for n in ("LDSM", "LDS.128", "HGMMA")):
        wrong.append("no wide load from shared memory")
    if VECTORS.match(plain) and not has["LDG.128"]:
        wrong.append("no 128-bit load from global memory")
    # nvcc splits the stores of a struct whose elements were computed one by one (vector_io.cuh).
    if VECTORS.match(plain) and re.match("swiglu|rms_norm|head_rotary", kernel.file):
        if not has["STG.128"]:
            wrong.append("no 128-bit store to global memory")
    if kernel.file.startswith("attention_") and (has["LDL"] or has["STL"]):
        wrong.append("local memory: LDL %d, STL %d" % (has["LDL"], has["STL"]))
    return wrong


def demangled(names):
    lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                           check=True).stdout.split("\n")
    return dict(zip(names, (re.sub(r"\(anonymous namespace\)::|bdlm::cuda::|^void ", "", line)
                            for line in lines)))


def assemble(ptxas, arch, body, file):
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = folder + "/probe.ptx", folder + "/probe.cubin"
        with open(source, "w") as out:
            out.write(HEAD % arch + body + "ret;\n}\n")
        subprocess.run([ptxas, "-arch=" + arch, source, "-o", cubin], check=True)
        (kernel,) = kernels_in(cubin, [arch])
        return kernel._replace(file=file)  # as if it came from there


def check_self(ptxas):
    expected = [
        ("sm_80", PRODUCT, "attention_mma", []),
        ("sm_80", "st.global.u32 [%a], %r0;\n", "attention_mma",
         ["no HMMA", "no 128-bit load from global memory", "no wide load from shared memory"]),
        ("sm_80", PRODUCT + LOCAL, "attention_mma", ["local memory: LDL 1, STL 2"]),
        ("sm_90a", HOPPER, "attention_wgmma", []),
        ("sm_90a", PRODUCT, "attention_wgmma", ["no HGMMA", "no UTMALDG"]),
        ("sm_80", PRODUCT, "swiglu", []),
        ("sm_80", LOCAL, "swiglu",
         ["no 128-bit load from global memory", "no 128-bit store to global memory"]),
    ]
    for arch, body, file, wanted in expected:
        kernel = assemble(ptxas, arch, body, file)
        got = missing(kernel, "probe<float, 4>(float*)" if file == "swiglu" else "probe")
        if got != wanted:
            sys.exit("check_sass.py itself: %s of %s is judged %s, not %s (%s)" %
                     (file, arch, got, wanted, dict(kernel.counts)))


def main():
    folder, ptxas = sys.argv[1:]
    check_self(ptxas)
    objects = sorted(glob.glob(folder + "/*.cu.o"))
    reports = [r for o in objects for r in reports_in(o + ".log")]
    kernels = []
    for path in objects:
        archs = list(dict.fromkeys(r.arch for r in reports if r.file == os.path.basename(path)))
        kernels += kernels_in(path, archs)
    plain = demangled(sorted({k.name for k in kernels} | {r.name for r in reports}))
    code = {(k.file, k.name, k.arch): k for k in kernels}
    failed = 0
    print("%-7s %9s %7s %6s %6s  %s" % ("arch", "registers", "shared", "stack", "spills", "kernel"))
    for r in sorted(reports, key=lambda r: (r.file, plain[r.name], r.arch)):
        kernel = code.get((r.file, r.name, r.arch))
        wrong = ["no machine code"] if kernel is None else missing(kernel, plain[r.name])
        if r.spills:
            wrong.append("spills")
        if r.stack and r.file.startswith("attention_"):
            wrong.append("a stack")
        failed += bool(wrong)
        name = "%s: %s" % (r.file[:-len(".cu.o")], plain[r.name].split(">(")[0][:70])
        verdict = "FAILED: " + ", ".join(wrong) if wrong else ""
        print("%-7s %9d %7d %6d %6d  %s %s" % (r.arch, r.registers, r.shared, r.stack, r.spills,
                                               name, verdict))
    print("%d kernels of %d objects, %d failed" % (len(reports), len(objects), failed))
    sys.exit(1 if failed or not any(r.file.startswith("attention_") for r in reports) else 0)


main()
