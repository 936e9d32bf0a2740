"""Makes wheels of sdk/python with both programs inside, one for each platform: scripts/wheel.py [-o FOLDER] [PLATFORM...]

Platforms are linux-x86_64, linux-aarch64, macos-x86_64 and macos-arm64; without any, all of them. The programs are static, so that
those for Linux run on any distribution, old or new. Equal sources make equal wheels: times in them are SOURCE_DATE_EPOCH, or 1980.
"""

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile

try:
    import tomllib
except ImportError:
    sys.exit("scripts/wheel.py: %s is Python %s; 3.11 or later is needed to make wheels (not to install them)" % (sys.executable, sys.version.split()[0]))

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SDK = os.path.join(ROOT, "sdk", "python")
GO = os.path.join(ROOT, "scripts", "go")
PROGRAMS = ["./cmd/daisy-submit", "./cmd/daisy-worker"]

# The tags of a wheel say where it can be installed: static programs need no C library; Go needs macOS 12.
PLATFORMS = {
    "linux-x86_64": ("linux", "amd64", ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"]),
    "linux-aarch64": ("linux", "arm64", ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"]),
    "macos-x86_64": ("darwin", "amd64", ["macosx_12_0_x86_64"]),
    "macos-arm64": ("darwin", "arm64", ["macosx_12_0_arm64"]),
}


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def build(system, machine, folder):
    """Both programs for a platform."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOOS": system, "GOARCH": machine, "GOFLAGS": ""}
    subprocess.run([GO, "build", "-trimpath", "-ldflags=-s -w", "-tags", "urfave_cli_no_docs", "-o", folder + os.sep] + PROGRAMS, cwd=ROOT, env=environment, check=True)


def licences(system, machine):
    """Those of the modules that are in the programs, and of Go, which all want to be passed on."""
    environment = {**os.environ, "GOOS": system, "GOARCH": machine, "CGO_ENABLED": "0"}
    form = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}"
    listed = subprocess.run([GO, "list", "-deps", "-f", form] + PROGRAMS, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    root = subprocess.run([GO, "env", "GOROOT"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    texts = []
    for line in sorted(set(filter(None, listed.splitlines()))) + ["Go\t" + root]:
        module, folder = line.split("\t")
        names = sorted(n for n in os.listdir(folder) if n.upper().startswith(("LICEN", "COPYING", "UNLICENSE", "NOTICE")))
        if not names:
            sys.exit("scripts/wheel.py: %s has no licence in %s, and cannot be passed on without; another Go may have it (scripts/go)" % (module, folder))
        texts += ["%s: %s\n\n%s\n" % (module, name, read(folder, name).decode()) for name in names]
    return ("\n" + "-" * 78 + "\n\n").join(texts).encode()


def metadata(project):
    lines = ["Metadata-Version: 2.4", "Name: " + project["name"], "Version: " + project["version"], "Summary: " + project["description"]]
    lines += ["Requires-Python: " + project["requires-python"], "License-Expression: MIT", "License-File: LICENSE", "License-File: THIRD-PARTY"]
    for extra, needs in project["optional-dependencies"].items():
        lines += ["Provides-Extra: " + extra] + ['Requires-Dist: %s ; extra == "%s"' % (need, extra) for need in needs]
    lines += ["Description-Content-Type: text/markdown", "", read(SDK, project["readme"]).decode()]
    return "\n".join(lines).encode()


def content(project, tags, programs, others):
    """What is in the wheel: for each path its bytes and whether it is a program."""
    stem = "%s-%s" % (project["name"].replace("-", "_"), project["version"])
    info = stem + ".dist-info/"
    package = os.path.join(SDK, "daisy_submit")
    files = {"daisy_submit/" + n: (read(package, n), False) for n in os.listdir(package) if n.endswith((".py", ".typed"))}
    files["daisy_worker.py"] = (read(SDK, "daisy_worker.py"), False)
    for name in os.listdir(programs):
        files["%s.data/scripts/%s" % (stem, name)] = (read(programs, name), True)
    files[info + "METADATA"] = (metadata(project), False)
    wheel = ["Wheel-Version: 1.0", "Generator: scripts/wheel.py", "Root-Is-Purelib: false"] + ["Tag: py3-none-" + t for t in tags]
    files[info + "WHEEL"] = (("\n".join(wheel) + "\n").encode(), False)
    files[info + "licenses/LICENSE"] = (read(ROOT, "LICENSE"), False)
    files[info + "licenses/THIRD-PARTY"] = (others, False)
    record = []
    for path, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d" % (path, digest, len(data)))
    files[info + "RECORD"] = (("\n".join(record + [info + "RECORD,,"]) + "\n").encode(), False)
    return "%s-py3-none-%s.whl" % (stem, ".".join(tags)), files


def write(path, files):
    made = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    part = path + ".part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        # Its own description comes last, as pip wants it.
        for name in sorted(files, key=lambda n: (".dist-info/" in n, n)):
            data, is_program = files[name]
            entry = zipfile.ZipInfo(name, made)
            entry.create_system = 3  # Unix, whose modes these are
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default=os.path.join(ROOT, "dist"), help="folder of the wheels (default: dist)")
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help="any of " + ", ".join(PLATFORMS))
    given = parser.parse_args()
    for name in given.platforms:
        if name not in PLATFORMS:
            parser.error("there is no platform %s; there are %s" % (name, ", ".join(PLATFORMS)))
    os.makedirs(given.output, exist_ok=True)
    project = tomllib.loads(read(SDK, "pyproject.toml").decode())["project"]
    for name in given.platforms or PLATFORMS:
        system, machine, tags = PLATFORMS[name]
        with tempfile.TemporaryDirectory() as folder:
            build(system, machine, folder)
            wheel, files = content(project, tags, folder, licences(system, machine))
        path = os.path.join(given.output, wheel)
        write(path, files)
        print(path)


main()
