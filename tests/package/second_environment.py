# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment for the package's tests and installs the wheel into it, as a user would.

    second_environment.py WHEELS FOLDER SOURCE...

WHEELS is the folder with the one wheel, FOLDER becomes the environment, and the wheel must be newer than
the SOURCEs (files, or folders of them).

The environment gets the packages of the interpreter that runs this script (torch, pytest, what the models
of the tests need) as hard links, so that nothing is downloaded and torch lies beside remat as it would for a
user; a remat that is installed there is left out. Neither the source tree nor the build tree is on its path.
Here the wheel is checked without a compiler: its libraries, the command, the import.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

LEFT_OUT = shutil.ignore_patterns("remat", "remat-*", "_distutils_hack", "distutils-precedence.pth")


def make_environment(folder):
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    shutil.copytree(sysconfig.get_path("platlib"), paths["platlib"], copy_function=os.link, ignore=LEFT_OUT,
                    dirs_exist_ok=True)  # fmt: skip
    return pathlib.Path(paths["platlib"])


def run(*command, expected=0, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != expected:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}, expected {expected}\n"
                 f"{done.stdout}{done.stderr}")  # fmt: skip
    return done.stdout


def check_libraries(package):
    """They are found from where they lie: nothing that they name is absolute."""
    binaries = [package / "bin" / "remat", *package.glob("*.so"), *package.glob("lib/*.so*")]
    if len(binaries) < 3:
        sys.exit(f"the wheel lacks the tool, the module or HiGHS: it has {binaries}")
    for binary in binaries:
        for line in run("readelf", "-d", binary).splitlines():
            if "PATH)" in line:
                for path in line[line.index("[") + 1 : line.index("]")].split(":"):
                    if not path.startswith("$ORIGIN"):
                        sys.exit(f"{binary.name} looks for libraries in {path}; expected $ORIGIN/...")


def check_command(folder, environment):
    """On the path, with the arguments and the exit codes of the tool."""
    graph = folder / "one.graph"
    graph.write_text("remat-graph 1\nop a forward kind=make time_ns=1 creates=v:64\n")
    for arguments, expected in [(["--help"], 0), (["plan", graph, "--budget", "64B"], 0),
                                (["plan", graph, "--budget", "63B"], 3), (["plan"], 2)]:  # fmt: skip
        run("remat", *arguments, expected=expected, env=environment, cwd=folder)


def the_wheel(wheels, sources):
    found = list(wheels.glob("remat-*.whl"))
    if len(found) != 1:
        sys.exit(f"expected one wheel in {wheels}, found {len(found)}: make wheel")
    for source in sources:
        for file in source.glob("*.py*") if source.is_dir() else [source]:
            if file.is_file() and file.stat().st_mtime > found[0].stat().st_mtime:
                sys.exit(f"{found[0].name} is older than {file}: make wheel")
    return found[0]


def main():
    wheels, folder, *sources = (pathlib.Path(each).absolute() for each in sys.argv[1:])
    wheel = the_wheel(wheels, sources)
    site_packages = make_environment(folder)
    python = folder / "bin" / "python"
    # Also checks that the versions of its dependencies are there.
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", wheel)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = str(folder / "bin")
    check_libraries(site_packages / "remat")
    check_command(folder, environment)
    where = run(python, "-c", "import remat; print(remat.__file__)", env=environment, cwd=folder).strip()
    if pathlib.Path(where) != site_packages / "remat" / "__init__.py":
        sys.exit(f"remat was imported from {where}")


main()
