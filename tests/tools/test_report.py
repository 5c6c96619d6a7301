#!/usr/bin/env python3
"""motley report: the page opens in a browser without an error, asks no network, and has the figures of simulate.

Arguments: the program, the source tree. Chromium opens the pages; without it these tests are skipped (tools/test --all
installs it). Pictures of the pages stay in the folder report-pages beside the program. No test looks at colours.
"""

import functools
import html
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILED, USAGE, INFEASIBLE, MISMATCH, MISSING = range(6)
PICTURES = PROGRAM.parent / "report-pages"
BROWSER = shutil.which("chromium")
SANITIZED = "MOTLEY_SANITIZED" in os.environ
SCENARIOS = ("quickstart",) if SANITIZED else ("quickstart", "h2-four-types-1024", "mixed-fleet")
TITLES = ("The step in time", "Where the step goes", "Memory of a chip, by stage", "What moves between chips",
          "Kernels beside the chip's peaks", "What would make the step shorter", "Where the figures come from")
HEADLINES = ("Step", "At best", "Tokens", "MFU", "A billion tokens", "Fullest chip", "Chips")


def motley(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=600, check=False)


@functools.lru_cache
def side_of(scenario):
    """The scenario's part of the page, as data, without trials of other scenarios."""
    return json.loads(motley("report", scenario, "--json", "--no-parts", "--no-changes").stdout)["scenarios"][0]


def simulated(scenario, *words):
    answer = motley("simulate", scenario, "--json", *words)
    assert answer.returncode == OK, answer.stderr
    return json.loads(answer.stdout)


HAS_PLOTS = motley("doctor", "--need", "D3").returncode == OK
NO_PLOTS = "this build has no D3: libjs-d3 was not installed"
NO_BROWSER = "chromium is not here (tools/test --all installs it), or sanitizers slow this program down"
need_plots = unittest.skipUnless(HAS_PLOTS, NO_PLOTS)
need_browser = unittest.skipUnless(BROWSER and HAS_PLOTS and not SANITIZED, NO_BROWSER if HAS_PLOTS else NO_PLOTS)


class Tags(html.parser.HTMLParser):
    """The elements of a page, with their attributes, and the text of its data."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.data, self.inside = [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.inside = attributes.get("id") if tag == "script" else ""

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "data":
            self.data += data


def text_of(dom):
    """What a person reads of the page that the browser built."""
    dom = re.sub(r"(?s)<(script|style|title)\b.*?</\1>", " ", dom)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", dom)))


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def page(self, *words, name="page.html"):
        path = self.folder / name
        answer = motley("report", *words, "-o", path)
        self.assertEqual((OK, ""), (answer.returncode, answer.stdout), answer.stderr)
        return path

    def browse(self, path, *options):
        """What the browser prints when it opens the page; no error may stand in its console."""
        run = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                              "--enable-logging=stderr", f"--user-data-dir={self.folder / 'profile'}", *options,
                              path.as_uri()], capture_output=True, text=True, timeout=300, check=False,
                             stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C.UTF-8"})
        self.assertEqual(0, run.returncode, run.stderr)
        self.assertEqual([], [line for line in run.stderr.splitlines() if "CONSOLE" in line])
        return run.stdout

    def read(self, path):
        """The text of the page, as built by the browser."""
        return text_of(self.browse(path, "--dump-dom"))

    def picture(self, path, name, width, height):
        PICTURES.mkdir(exist_ok=True)
        picture = PICTURES / name
        picture.unlink(missing_ok=True)
        self.browse(path, f"--window-size={width},{height}", f"--screenshot={picture}")
        self.assertGreater(picture.stat().st_size, 20_000)

    @need_plots
    def test_a_page_asks_no_network_for_anything(self):
        tags = Tags(self.page("quickstart", "--no-changes", "--no-parts").read_text())
        for tag, attributes in tags.elements:
            for key in ("src", "href", "data", "action", "srcset"):
                self.assertRegex(attributes.get(key) or "#", r"^(#|data:)", tag)
        policies = [attributes["content"] for tag, attributes in tags.elements
                    if attributes.get("http-equiv") == "Content-Security-Policy"]
        self.assertTrue(policies and policies[0].startswith("default-src 'none';"), policies)

    @need_plots
    def test_the_page_has_the_data_that_json_prints(self):
        words = ("quickstart", "--no-changes", "--no-parts", "--set", "strategy.schedule=gpipe")
        tags = Tags(self.page(*words).read_text())
        printed = motley("report", *words, "--json")
        self.assertEqual(OK, printed.returncode, printed.stderr)
        self.assertEqual(json.loads(printed.stdout), json.loads(tags.data))
        self.assertEqual(["strategy.schedule=gpipe"], json.loads(tags.data)["scenarios"][0]["settings"])

    def test_figures_are_those_of_simulate_and_explain(self):
        for scenario in SCENARIOS:
            answer = motley("report", scenario, "--json")
            self.assertEqual(OK, answer.returncode, answer.stderr)
            data = json.loads(answer.stdout)
            self.assertEqual("motley.report/1", data["schema"])
            side = data["scenarios"][0]
            report, shown = simulated(scenario), side["simulate"]
            for key in report.keys() - {"advice", "simulation_bytes"}:
                self.assertEqual(report[key], shown[key], (scenario, key))
            explained = json.loads(motley("explain", scenario, "--json").stdout)
            explained.pop("schema")
            self.assertEqual(explained, {key: side["explain"][key] for key in explained})

    def test_the_timeline_has_the_computes_of_each_stage_in_the_step(self):
        for scenario in SCENARIOS:
            side = side_of(scenario)
            timeline, report = side["timeline"], side["simulate"]
            self.assertEqual([row["stage"] for row in report["breakdown"]], [row["stage"] for row in timeline["rows"]])
            self.assertEqual(report["iteration_s"], timeline["step_s"])
            for row, spent in zip(timeline["rows"], report["breakdown"]):
                marks = row["marks"]
                busy_s = sum(length for kind, length in zip(marks["kind"], marks["length_s"])
                             if timeline["kinds"][kind] in ("forward", "backward", "weight gradient", "optimizer"))
                work_s = sum(spent[key] for key in ("compute_s", "recompute_s", "optimizer_s"))
                self.assertGreaterEqual(busy_s, work_s * (1 - 1e-6))
                self.assertLessEqual(busy_s, timeline["span_s"] * (1 + 1e-6))
                for begin, length in zip(marks["begin_s"], marks["length_s"]):
                    self.assertGreaterEqual(begin, 0)
                    self.assertLessEqual(begin + length, timeline["span_s"] * (1 + 1e-6))
            for use in side["network"]:
                self.assertLessEqual(use["busy_s"], timeline["span_s"] * (1 + 1e-6))

    def test_no_kernel_is_above_the_peaks_of_its_chip(self):
        for scenario in SCENARIOS:
            side = side_of(scenario)
            for roof in side["rooflines"]:
                peak = max(each["flops"] for each in roof["peaks"])
                for kernel in roof["kernels"]:
                    self.assertLessEqual(kernel["flops"], peak * kernel["seconds"], (roof["chip"], kernel))
                    self.assertLessEqual(kernel["bytes"], roof["memory_bandwidth"] * kernel["seconds"] * (1 + 1e-9),
                                         (roof["chip"], kernel))

    def test_every_figure_of_a_chip_has_its_source(self):
        for scenario in SCENARIOS:
            side = side_of(scenario)
            chips = {row["chip"] for row in side["simulate"]["breakdown"]}
            figures = [figure for figure in side["figures"] if figure["part"] in chips]
            self.assertEqual(chips, {figure["part"] for figure in figures})
            for figure in figures:
                self.assertTrue(figure["source"], figure)

    @need_browser
    def test_a_browser_shows_every_section_without_an_error(self):
        for scenario in SCENARIOS:
            path = self.page(scenario, name=f"{scenario}.html")
            report, text = simulated(scenario), self.read(path)
            for words in (scenario, *TITLES, *HEADLINES, "The same as text", "exposed pipeline", "parameters",
                          "Better parts, each by 10 %"):
                self.assertIn(words, text, scenario)
            printed = motley("simulate", scenario).stdout
            step = re.search(r"^ +iteration +(.+)$", printed, re.M)[1]
            tokens = re.search(r"^ +tokens +(\S+ \S+/s),", printed, re.M)[1]
            likely = re.search(r"^ +likely +(.+?), as", printed, re.M)[1]
            share = f"{100 * max(row['fraction'] for row in report['memory']):.1f} %"
            for words in (f"Step {step}", f"Tokens {tokens}", f"MFU {100 * report['mfu']:.1f} %", f"likely {likely}",
                          f"Fullest chip {share}", f"Chips {report['chips']:,}"):
                self.assertIn(words, text, scenario)
            for row in report["memory"]:
                self.assertRegex(text, rf"stage {row['stage']} {100 * row['fraction']:.1f} %")
            self.picture(path, f"{scenario}.png", 1280, 4200)
            self.picture(path, f"{scenario}-phone.png", 500, 6000)

    @need_browser
    def test_a_timeline_says_what_is_under_the_mouse_and_zooms(self):
        path = self.page("quickstart", "--no-changes", "--no-parts")
        script = """<script>document.addEventListener("DOMContentLoaded", () => {
          const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
          const hint = document.querySelector(".hint"), seen = [];
          const point = (kind, share, y) => canvas.dispatchEvent(new MouseEvent(kind, {bubbles: true,
            clientX: box.left + 66 + share * (box.width - 78), clientY: box.top + y}));
          const press = (words) =>
            [...document.querySelectorAll("button")].find((each) => each.textContent === words).click();
          const look = (share, y) => { point("mousemove", share, y); seen.push(hint.hidden ? "-" : hint.textContent); };
          look(0.001, 10);
          look(0.999, 10);
          look(0.001, 34);
          press("Zoom in");
          press("Zoom in");
          look(0.001, 10);
          press("Left");
          point("mousedown", 0.5, 10);
          point("mousemove", 0.9, 10);
          point("mouseup", 0.9, 10);
          point("dblclick", 0.5, 10);
          canvas.dispatchEvent(new WheelEvent("wheel", {ctrlKey: true, deltaY: -10, clientX: box.left + 90}));
          for (const key of ["+", "-", "ArrowLeft", "ArrowRight", "0"])
            canvas.dispatchEvent(new KeyboardEvent("keydown", {key}));
          look(0.001, 10);
          document.body.replaceChildren(...seen.map((words) => el("p", {}, "[" + words + "]")));
        });</script>"""
        path.write_text(path.read_text().replace("</body>", script + "</body>"))
        seen = re.findall(r"\[(.*?)\]", text_of(self.browse(path, "--dump-dom")))
        self.assertEqual(5, len(seen), seen)
        first, last, below, zoomed, again = seen
        self.assertRegex(first, r"^forwardmicro-batch 0, stage 0, rank 0begins at 0 s, takes \S+ ms")
        self.assertTrue(last.startswith("optimizer") or last == "-", last)
        self.assertEqual("-", below)
        self.assertRegex(zoomed, r"micro-batch [1-9]")
        self.assertEqual(first, again)

    @need_browser
    def test_every_figure_of_a_page_is_a_number(self):
        for scenario in ("deepseek-v3-2048", "dgx-h100", "llama-2-13b-offload", "mixtral-8x7b-256", "quickstart-train",
                         "two-site-wan"):
            dom = self.browse(self.page(scenario, "--no-changes", "--no-parts"), "--dump-dom")
            shown = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", dom)
            self.assertNotRegex(shown, r"NaN|undefined|Infinity|\[object", scenario)

    @need_browser
    def test_two_scenarios_stand_side_by_side(self):
        path = self.page("quickstart", "mixed-fleet")
        text = self.read(path)
        for words in ("quickstart beside mixed-fleet", "B / A", "Why one is faster", "A: quickstart", "B: mixed-fleet",
                      "They differ in"):
            self.assertIn(words, text)
        steps = [simulated(name, "--no-changes")["iteration_s"] for name in ("quickstart", "mixed-fleet")]
        self.assertIn(f"{steps[1] / steps[0]:.2f}", text)
        self.picture(path, "two.png", 1280, 5000)

    @need_plots
    def test_a_hostile_name_does_no_harm(self):
        name = "</script><script>alert(1)</script><!--<script>&amp;\u2028"
        scenario = self.folder / "hostile.yaml"
        text = (ROOT / "scenarios/quickstart.yaml").read_text()
        text = "\n".join(line for line in text.splitlines() if not line.startswith("name:"))
        scenario.write_text(f"name: {json.dumps(name)}\n{text}\n")
        path = self.page(scenario, "--no-changes", "--no-parts")
        tags = Tags(path.read_text())
        self.assertEqual(3, sum(tag == "script" for tag, _ in tags.elements))
        self.assertEqual(name, json.loads(tags.data)["scenarios"][0]["scenario"])
        if BROWSER:
            dom = self.browse(path, "--dump-dom")
            self.assertEqual(3, dom.count("<script"))
            self.assertIn("alert(1)", text_of(dom))  # as words

    def test_a_build_without_plots_says_so(self):
        part = next(part for part in json.loads(motley("doctor", "--json").stdout)["parts"] if part["name"] == "D3")
        self.assertEqual("ran" if HAS_PLOTS else "absent", part["state"])
        if not HAS_PLOTS:
            answer = motley("report", "quickstart")
            self.assertEqual(MISSING, answer.returncode)
            self.assertIn("libjs-d3", answer.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
