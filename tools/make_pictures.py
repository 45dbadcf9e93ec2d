# SPDX-License-Identifier: Apache-2.0
"""The pictures in docs/pictures, from pages in Debian's chromium:   make_pictures.py TOOL MAKE_PAGES FOLDER

ResNet-50 as bench/graphs has it, planned at half of its memory; so the pictures need no training, and are the same on
every machine. But for those of a sweep and of a GPT, which are what docs/tutorial.md does: their op times are measured, by
a tool that was built with LibTorch.
"""

import base64
import io
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
import browser  # noqa: E402

GRAPH = ROOT / "bench" / "graphs" / "resnet50.graph"
TUTORIAL = ROOT / "docs" / "tutorial.md"
# A narrow page, drawn with two pixels for one: in a README it is shown about as large as it is.
WIDTH, SCALE = 700, 2
ANIMATION_WIDTH = 1200
HEIGHT = 1500
FRAMES = 90
FRAME_MS = 110


def section(driver, title):
    return next(each for each in driver.find_elements("css selector", "section")
                if each.find_element("css selector", "h2").text == title)


def take(driver, element):
    # All of it, wherever the window ends.
    box = driver.execute_script("const {x, y, width, height} = arguments[0].getBoundingClientRect();"
                                "return {x: x + scrollX, y: y + scrollY, width, height, scale: 1};", element)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": box})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")


def below(pictures):
    """One picture of several, one below the other."""
    whole = Image.new("RGB", (max(each.width for each in pictures), sum(each.height for each in pictures)), "white")
    top = 0
    for each in pictures:
        whole.paste(each, (0, top))
        top += each.height
    return whole


def of_the_tutorial(start):
    """The arguments of the first command there that starts like this, but for its files."""
    line = next(line for line in TUTORIAL.read_text(encoding="utf-8").splitlines() if line.startswith("remat " + start))
    return line.split(" --html ")[0].split()[1:]


def save(picture, path):
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def stills(driver, pages, folder):
    shown = [("profile", "profile", ["Memory over the step", "At the peak"]), ("plan", "plan", ["Before and after"]),
             ("arena", "plan", ["The arena"]), ("update", "gpt", ["Memory over the step"]),
             ("sweep", "sweep", ["Peak against batch size", "Time against budget, batch 32"])]
    for scheme, suffix in [("light", ""), ("dark", "_dark")]:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                               {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        for name, page, titles in shown:
            if not (pages / f"{page}.html").exists():
                continue
            browser.load(driver, pages / f"{page}.html")
            # What a mouse can do means nothing in a picture.
            driver.execute_script("for (const each of document.querySelectorAll('.how')) each.hidden = true;")
            save(below([take(driver, section(driver, title)) for title in titles]), folder / f"{name}{suffix}.png")


def animation(driver, page, path):
    """The step, played, as one animated picture."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
    browser.load(driver, page)
    # The controls mean nothing in a picture.
    driver.execute_script("document.querySelector('.animation .controls').hidden = true;"
                          "document.querySelector('.animation .controls').style.display = 'none';")
    played = driver.find_element("css selector", ".animation")
    frames = []
    for i in range(FRAMES + 1):
        driver.execute_script("arguments[0].show(arguments[0].end * arguments[1])", played, i / FRAMES)
        frames.append(take(driver, played).resize((900, round(900 * played.size["height"] / played.size["width"])),
                                                  Image.Resampling.LANCZOS))
    # One palette for all, so that what does not change costs nothing. Colours that are rare in a frame, as that
    # of what is made again, get a place in it too.
    rare = [driver.execute_script("return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])", name)
            for name in ["--again", "--budget", "--planned", "--ink"]]
    patches = [Image.new("RGB", (900, 60), colour.strip()) for colour in rare]
    palette = below([frames[FRAMES // 3], frames[2 * FRAMES // 3], *patches]).quantize(48, dither=Image.Dither.NONE)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=[FRAME_MS] * FRAMES + [2500], loop=0, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def main():
    tool, make_pages, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as pages:
        pages = pathlib.Path(pages)
        def make(page, *arguments):
            subprocess.run([tool, *arguments, "--html", pages / f"{page}.html"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([make_pages, GRAPH, pages, "50%", "keep_all"], check=True)
        make("plan", "plan", GRAPH, "--budget", "50%")
        (pages / "sweep.html").unlink()  # its numbers are made up
        if " sweep " in subprocess.run([tool, "--help"], check=True, capture_output=True, text=True).stdout:
            make("sweep", *of_the_tutorial("sweep "))
            make("gpt", *of_the_tutorial("profile gpt2_small "))
        for width, scale, work in [(WIDTH, SCALE, lambda driver: stills(driver, pages, folder)),
                                   (ANIMATION_WIDTH, 1, lambda driver: animation(driver, pages / "plan.html", folder / "animation.gif"))]:
            driver = browser.start(width, HEIGHT, scale)
            try:
                work(driver)
            finally:
                driver.quit()


if __name__ == "__main__":
    main()
