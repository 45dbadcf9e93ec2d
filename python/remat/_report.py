# SPDX-License-Identifier: Apache-2.0
"""What a step needs and takes, for people and for programs."""

import html

from . import _remat


class Report:
    """Every number of the report is an attribute (`peak_bytes`, `time_ns`, …; as_dict() has them all). Printed
    it is a table; in a notebook, the page that save_html writes."""

    def __init__(self, values, step):
        self.__dict__.update(values)
        self._values = values
        self._page = step._page

    def as_dict(self):
        return dict(self._values)

    def __repr__(self):
        return (
            f"<remat.Report: {_remat.format_bytes(self.peak_bytes)} of "
            f"{_remat.format_bytes(self.keep_all_peak_bytes)}, {self.planned_steps} planned steps>"
        )

    def __str__(self):
        size = _remat.format_bytes
        share = self.peak_bytes / max(self.keep_all_peak_bytes, 1)
        slower = self.time_ns / max(self.keep_all_time_ns, 1) - 1
        rows = [
            ("budget", size(self.budget_bytes) if self.budget_bytes < 2**62 else "none"),
            ("plain step", size(self.keep_all_peak_bytes)),
            ("planned step", f"{size(self.peak_bytes)} ({share:.0%}), {size(self.measured_peak_bytes)} in use"),
            ("least known", size(self.floor_bytes)),
            ("time of ops", f"{_remat.format_ns(self.time_ns)} ({slower:+.1%})"),
            ("strategy", self.strategy),
            ("steps", f"{self.planned_steps} planned, {self.plain_steps} plain, {self.variants} variants"),
            ("first step", f"measured in {self.measure_seconds:.1f} s, planned in {self.plan_seconds:.1f} s"),
        ]
        return "\n".join(f"{name:<13} {value}" for name, value in rows)

    def _repr_html_(self):
        # In a frame of its own: its styles and scripts are not the notebook's.
        page = html.escape(self._page(), quote=True)
        return f'<iframe srcdoc="{page}" title="Report of a step" style="width:100%;height:45em;border:0"></iframe>'
