# SPDX-License-Identifier: Apache-2.0
"""The results of peers.py as Markdown and as a chart.

Usage: python bench/peers/table.py RESULTS.jsonl [README.md [CHART.svg]]

Without a README the tables are printed. In the README they replace what stands between the two marks.
"""

import json
import pathlib
import sys

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
# The counter sees tensors of a few bytes that live outside of a step and its budget.
SAME_PEAK = 1.005
TITLES = {
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "bert": "BERT",
    "gpt2": "GPT-2",
    "llama": "Llama-like",
    "vit": "ViT",
    "convnext": "ConvNeXt",
    "unet": "U-Net",
}
NAMES = {
    "plain": "plain",
    "checkpoint": "checkpoint, every block",
    "checkpoint_segments": "checkpoint, segments of k blocks",
    "checkpoint_half": "checkpoint, every second block",
    "selective": "selective checkpoint",
    "compile": "compile",
    "compile=0.5": "compile, memory budget 0.5",
}
TIE = 0.02  # closer ratios than this have no winner
STATES = ("gradients", "buffers", "generator")


def read_results(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]


def method_name(row):
    method, _, malloc = row["method"].partition("@")
    at, _, rival = method.partition(" at ")
    name = f"remat at the peak of: {NAMES[rival]}" if rival else NAMES.get(method, method)
    if at.startswith("remat"):
        name = f"**{name}**"
    if row.get("segment"):
        name = name.replace(" k ", f" {row['segment']} ")
    if row.get("at_floor"):
        name += " (at its floor)"
    return name, malloc


def model_table(entry):
    plain = entry["rows"][0]
    lines = [
        f"### {TITLES.get(entry['model'], entry['model'])}",
        "",
        f"Plain step: {plain['wall_seconds']:.2f} s, peak {plain['peak_bytes'] / 2**20:.0f} MiB, "
        f"of it {plain['static_bytes'] / 2**20:.0f} MiB parameters, buffers and batch.",
        "",
        "| method | malloc | peak MiB | of plain | resident MiB | wall | CPU | gradients | buffers | generator | set-up s |",
        "|---|---|---:|---:|---:|---:|---:|---|---|---|---:|",
    ]
    return "\n".join(lines + [_line(row, plain) for row in entry["rows"]]) + "\n"


def _line(row, plain):
    name, variant = method_name(row)
    malloc = {"": "tcmalloc", "malloc": "stock", "hugepages": "tcmalloc, huge pages"}[variant]
    if "wall_ratio" not in row or "error" in row:
        return f"| {name} | {malloc} | {row.get('error', 'not measured').replace('|', '/')} | | | | | | | | |"
    equal = " | ".join("same" if row["equal"][state] else "differ" for state in STATES)
    return (
        f"| {name} | {malloc} | {row['peak_bytes'] / 2**20:.0f} | {row['peak_bytes'] / plain['peak_bytes']:.0%} "
        f"| {row['resident_bytes'] / 2**20:.0f} | {row['wall_ratio']:.2f} | {row['cpu_ratio']:.2f} "
        f"| {equal} | {row['setup_seconds']:.1f} |"
    )


def verdicts(entries):
    """Each rival against the remat row with the most bytes that has no more than it, under the same malloc. Taking the
    fastest of several rows instead would favour remat by its luck."""
    lines = ["| model | rival | its peak | its wall | remat's peak | remat's wall |", "|---|---|---:|---:|---:|---:|"]
    for entry in entries:
        plain = entry["rows"][0]
        measured = [row for row in entry["rows"] if "wall_ratio" in row and "error" not in row]
        ours = [row for row in measured if row["method"].startswith("remat")]
        for row in measured:
            if row in ours:
                continue
            malloc = "@malloc" if row["method"].endswith("@malloc") else ""
            fit = [
                each
                for each in ours
                if each["peak_bytes"] <= SAME_PEAK * row["peak_bytes"] and each["method"].endswith("@malloc") == bool(malloc)
            ]
            lines.append(_verdict(entry, row, max(fit, key=lambda each: each["peak_bytes"], default=None), plain))
    return "\n".join(lines) + "\n"


def _verdict(entry, row, best, plain):
    name, malloc = method_name(row)
    name += {"": "", "malloc": ", stock malloc", "hugepages": ", huge pages"}[malloc]
    start = f"| {TITLES.get(entry['model'], entry['model'])} | {name} | {row['peak_bytes'] / plain['peak_bytes']:.0%} | "
    if best is None:
        return start + f"{row['wall_ratio']:.2f} | none fits | |"
    theirs, ours = f"{row['wall_ratio']:.2f}", f"{best['wall_ratio']:.2f}"
    if best["wall_ratio"] < (1 - TIE) * row["wall_ratio"]:
        ours = f"**{ours}**"
    elif row["wall_ratio"] < (1 - TIE) * best["wall_ratio"]:
        theirs = f"**{theirs}**"
    return start + f"{theirs} | {best['peak_bytes'] / plain['peak_bytes']:.0%} | {ours} |"


KINDS = [  # first match; colour, marker, label
    ("remat", "#d62728", "o", "remat"),
    ("plain", "#222222", "s", "plain"),
    ("checkpoint", "#1f77b4", "^", "checkpoint"),
    ("selective", "#17becf", "v", "selective checkpoint"),
    ("compile", "#2ca02c", "D", "compile"),
]


def save_chart(entries, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "peers"  # the same file for the same results
    from matplotlib import pyplot

    columns = min(4, len(entries))
    rows = -(-len(entries) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 3.0 * rows), squeeze=False)
    for axis in axes.flat[len(entries) :]:
        axis.set_visible(False)
    labels = {}
    for axis, entry in zip(axes.flat, entries, strict=False):
        labels.update(_draw(axis, entry))
    figure.legend(labels.values(), labels.keys(), loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _draw(axis, entry):
    peak = entry["rows"][0]["peak_bytes"]
    handles = {}
    for kind, colour, marker, label in KINDS:
        rows = [row for row in entry["rows"] if row["method"].startswith(kind) and "wall_ratio" in row]
        for malloc, fill, suffix in (("", colour, ""), ("@malloc", "none", ", stock malloc")):
            chosen = [row for row in rows if row["method"].endswith("@malloc") == bool(malloc)]
            if chosen:
                handles[label + suffix] = axis.scatter(
                    [100 * row["peak_bytes"] / peak for row in chosen],
                    [row["wall_ratio"] for row in chosen],
                    edgecolors=colour,
                    facecolors=fill,
                    marker=marker,
                    s=28,
                )
    axis.axhline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    axis.set_title(TITLES.get(entry["model"], entry["model"]))
    axis.set_xlabel("peak, % of plain")
    axis.set_ylabel("wall time, plain = 1")
    axis.set_xlim(left=0)
    return handles


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    entries = read_results(sys.argv[1])
    minutes = sum(entry["seconds"] for entry in entries) / 60
    text = f"Measured on {entries[0]['machine']}, {entries[0]['rounds']} rounds, {minutes:.0f} minutes in all.\n\n"
    text += "\n".join(model_table(entry) for entry in entries)
    text += "\n### At equal or lower peak, under the same malloc\n\n" + verdicts(entries)
    if len(sys.argv) == 2:
        print(text)
        return
    readme = pathlib.Path(sys.argv[2])
    before, _, rest = readme.read_text().partition(BEGIN)
    if not rest or END not in rest:
        sys.exit(f"{readme} has no '{BEGIN}' ... '{END}'")
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
    if len(sys.argv) == 4:
        save_chart(entries, sys.argv[3])


if __name__ == "__main__":
    main()
