#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the kernel tests red when a kernel is wrong?  mutate.py BUILD [--all | TEXT]

Reads mutations_*.txt here, a mutation a line: file, what stands there once, what takes its place,
and the test filter that has to notice, with tabs between. Each is compiled apart from the tree,
linked before the library of BUILD and run in three modes of the emulation until a test fails. By
default a dozen of them, with --all all, with TEXT those whose line has it. Exit status 1 when one
survives or does not apply.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(HERE + "/../../..")
MODES = ["forward lazy lazy", "reverse eager eager", "random random random"]
DOZEN = 12
RUN_SECONDS = 120


def mutations():
    for path in sorted(glob.glob(HERE + "/mutations_*.txt")):
        for number, line in enumerate(open(path), 1):
            if line.strip() and not line.startswith("#"):
                fields = line.rstrip("\n").split("\t")
                if len(fields) != 4:
                    sys.exit("%s:%d: wants four fields with tabs between" % (path, number))
                yield fields


def including(header):
    """Source files of the backend that include the header, also through other headers."""
    files = {path: open(path).read()
             for path in glob.glob(SOURCE + "/kernels/cuda/*") if os.path.isfile(path)}
    found, new = set(), {header}
    while new:
        found |= new
        new = {path for path, text in files.items() for name in new
               if '"%s"' % os.path.relpath(name, SOURCE) in text} - found
    return sorted(path for path in found if path.endswith((".cu", ".cpp")))


def affected(path, tests):
    """What has to be compiled anew for these tests to see it; inline functions of other files are
    then those of the first object at the link."""
    if path.endswith((".cu", ".cpp")):
        return [path]
    words = set(re.findall(r"[a-z]+", tests.replace("cuda ", "")))
    users = including(path)
    named = [u for u in users if words <= set(re.findall(r"[a-z]+", os.path.basename(u)))]
    return named or users


class Build:
    def __init__(self, folder):
        self.folder = folder
        self.commands = {c["file"]: c["command"]
                         for c in json.load(open(folder + "/compile_commands.json"))
                         if "bdlm_cuda_emu.dir" in c["command"]}
        text = folder + "/tests/CMakeFiles/test_cuda.dir/link.txt"  # of CMake's makefiles
        if os.path.exists(text):
            self.link, self.at = open(text).read(), folder + "/tests"
        else:
            lines = subprocess.run(["ninja", "-t", "commands", "tests/test_cuda"], cwd=folder,
                                   capture_output=True, text=True, check=True).stdout.splitlines()
            self.link, self.at = lines[-1], folder
        self.link = re.search(r"\S*(c\+\+|g\+\+|clang\+\+).*", self.link)[0].split(" && ")[0]

    def compile(self, scratch, source, original, copy):
        """The object of `source` with `copy` in the place of `original`; None when it does not
        compile."""
        command = self.commands[source].replace(" -I", " -I%s -I" % scratch, 1)
        output = os.path.join(scratch, os.path.basename(source) + ".o")
        command = re.sub(r" -o \S+", " -o " + output, command)
        if source == original:
            command = command.replace(" -c " + source, " -c " + copy)
        done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True)
        return output if done.returncode == 0 else None

    def link_tests(self, scratch, objects):
        program = scratch + "/test_cuda"
        command = re.sub(r" -o \S+", " %s -o %s" % (" ".join(objects), program), self.link)
        subprocess.run(command, shell=True, cwd=self.at, check=True)
        return program


def run(program, tests, mode):
    """Whether the tests fail: None, or how."""
    order, copies, streams = mode.split()
    environment = dict(os.environ, OMP_NUM_THREADS="1", BDLM_EMU_ORDER=order,
                       BDLM_EMU_ASYNC=copies, BDLM_EMU_STREAMS=streams)
    try:
        done = subprocess.run([program, tests, "-a"], env=environment, capture_output=True,
                              text=True, errors="replace", timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return "hangs"
    if "No test cases matched" in done.stdout:
        sys.exit("no test is called %s" % tests)
    if done.returncode < 0:
        return "crashes"
    return "red" if done.returncode else None


def judge(build, file, before, after, tests):
    path = os.path.join(SOURCE, file)
    if not os.path.exists(path) or open(path).read().count(before) != 1:
        return "DOES NOT APPLY"
    with tempfile.TemporaryDirectory() as scratch:
        copy = os.path.join(scratch, file)
        os.makedirs(os.path.dirname(copy))
        with open(copy, "w") as out:
            out.write(open(path).read().replace(before, after))
        objects = [build.compile(scratch, source, path, copy)
                   for source in affected(path, tests)]
        if None in objects:
            return "DOES NOT COMPILE"
        program = build.link_tests(scratch, objects)
        for mode in MODES:
            how = run(program, tests, mode)
            if how:
                return "%s (%s)" % (how, mode.split()[0])
    return "SURVIVES"


def main():
    build = Build(os.path.abspath(sys.argv[1]))
    chosen = list(mutations())
    wanted = sys.argv[2] if len(sys.argv) > 2 else None
    if wanted is None:
        chosen = [chosen[i * len(chosen) // DOZEN] for i in range(DOZEN)]
    elif wanted != "--all":
        chosen = [m for m in chosen if wanted in "\t".join(m)]
    for tests in sorted({m[3] for m in chosen}):
        if run(build.folder + "/tests/test_cuda", tests, MODES[0]):
            sys.exit("%s fails without any mutation" % tests)
    bad = 0
    for file, before, after, tests in chosen:
        start = time.time()
        verdict = judge(build, file, before, after, tests)
        bad += verdict[0].isupper()
        print("%-26s %4.0f s  %s: %s -> %s" %
              (verdict, time.time() - start, os.path.basename(file), before.strip(),
               after.strip() or "nothing"), flush=True)
    print("%d mutations, %d not noticed" % (len(chosen), bad))
    sys.exit(1 if bad or not chosen else 0)


main()
